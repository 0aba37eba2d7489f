// The files of predictions that Hugging Face's run_qa writes, byte for byte: json.dumps(...,
// indent=4) and a line feed.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "worker/tasks/squad/examples.h"
#include "worker/tasks/squad/postprocess.h"

namespace tilewright::tasks::squad {

// The content by file name: PREFIX_predictions.json, PREFIX_nbest_predictions.json and, with
// version_2_with_negative, PREFIX_null_odds.json. `prefix`: "eval" or "predict".
std::map<std::string, std::string> make_prediction_files(const Examples& examples,
                                                         std::span<const Prediction> predictions,
                                                         std::string_view prefix,
                                                         bool version_2_with_negative);

// Python's repr of a float: the shortest digits that read back as `value`, with an exponent below
// 1e-4 and from 1e16. NaN and infinities are written as json.dumps does.
std::string python_float(double value);

// A JSON string in ASCII, as json.dumps writes it.
std::string python_json_string(std::string_view text);

}  // namespace tilewright::tasks::squad
