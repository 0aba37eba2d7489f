// Translates a PyTorchJob into a TrainJob that runs the same training natively. No I/O, no
// clock.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/json/field_error.h"
#include "common/json/positions.h"
#include "controller/api/pytorchjob.h"

namespace tilewright::convert {

// How a line of the PyTorchJob without a counterpart is handled.
struct Note {
  FieldError at;          // the line, and "--no_cuda: Tilewright computes on CPUs only"
  std::string place;      // the field of the TrainJob where the comment stands
  bool trainjob = false;  // true of the TrainJob only, not of the PyTorchJob on the worker image
  bool loses_output = false;  // the trained model is lost
};

struct Conversion {
  nlohmann::ordered_json tree;     // the TrainJob as a manifest, valid for a cluster
  std::vector<Note> notes;         // in the order of the PyTorchJob's lines
  std::vector<FieldError> errors;  // if not empty, there is no TrainJob

  bool ok() const { return errors.empty(); }
};

// `job`: valid, as decoded, without defaults.
Conversion convert(const api::PyTorchJob& job, const Positions& positions);

// The manifest of a conversion without errors, with a comment for each note. `source` names the
// file of the PyTorchJob.
std::string to_manifest(const Conversion& conversion, std::string_view source);

}  // namespace tilewright::convert
