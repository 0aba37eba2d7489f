// The content of squad_goldens.json, and what several tests compare with it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/golden/text/golden.h"
#include "worker/tasks/squad/examples.h"
#include "worker/tasks/squad/features.h"
#include "worker/text/tokenizer.h"

namespace tilewright::testing {

nlohmann::json squad_goldens();

// The questions of a file in the data directory's folder squad.
tasks::squad::Examples squad_examples(const std::string& file);

// The model directory's tokenizer with another `lowercase` of its normaliser.
text::Tokenizer model_tokenizer(bool lowercase);

// FEATURE_CASES of write_squad_goldens.py.
struct FeatureCase {
  bool lowercase;
  tasks::squad::FeatureOptions options;
};
const std::map<std::string, FeatureCase>& feature_cases();

// hash_features of write_squad_goldens.py.
std::vector<std::string> feature_hashes(const tasks::squad::Examples& examples,
                                        const tasks::squad::Features& made);

// make_logits of write_squad_goldens.py.
std::vector<float> make_logits(const tasks::squad::Features& made);

}  // namespace tilewright::testing
