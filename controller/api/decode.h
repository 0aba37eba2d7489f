// From a manifest's text, or an API server's JSON, to a TrainJob.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "controller/api/document.h"
#include "controller/api/findings.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

struct Decoded {
  TrainJob job;         // as written: no defaults applied
  Positions positions;  // for validate()
  std::vector<FieldError> errors;

  bool ok() const { return errors.empty(); }
};

// All errors at once: unknown fields with the nearest known name, wrong types, values that are not
// what their type allows.
Decoded decode_manifest(std::string_view yaml);

// An object of the API server. There, unknown fields are those of a newer version and are ignored
// unless `strict`.
Decoded decode_object(const nlohmann::json& object, bool strict = false);

// Quantities, durations and names as the decoder takes them.
Timestamp parse_timestamp(std::string_view rfc3339);

}  // namespace tilewright::api
