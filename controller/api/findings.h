// Errors and warnings about a manifest, each with the path and line of its field.
#pragma once

#include <vector>

#include "common/json/field_error.h"

namespace tilewright::api {

// Whether unknown fields are errors. Named like the parameter of the Kubernetes API.
enum class FieldValidation { kIgnore, kStrict };

struct Findings {
  std::vector<FieldError> errors;    // the job is rejected
  std::vector<FieldError> warnings;  // the job is accepted

  bool ok() const { return errors.empty(); }
  void append(Findings other);
};

}  // namespace tilewright::api
