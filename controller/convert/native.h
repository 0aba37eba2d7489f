// Whether Tilewright's trainer, the program of the image tilewright-worker, runs a PyTorchJob as it
// is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/json/field_error.h"
#include "common/json/positions.h"
#include "controller/api/pytorchjob.h"

namespace tilewright::convert {

// Whether a container has the image tilewright-worker, of any registry and tag.
bool has_worker_image(const nlohmann::json& container);

struct NativeCheck {
  std::string summary;             // "run_qa.py on 4 workers"; empty if there are errors
  std::vector<FieldError> errors;  // why the trainer refuses the command
  // A container with such an error has the image, so that its pod fails at once.
  bool fails = false;
  // A container of the image starts the worker itself, by its entrypoint or by its name. Its flags
  // are not checked.
  bool starts_worker = false;
};

// Checks the command as the worker does before it reads a file. `job`: valid, as decoded, without
// defaults.
NativeCheck check_native(const api::PyTorchJob& job, const Positions& positions);

}  // namespace tilewright::convert
