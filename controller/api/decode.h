// Reads a TrainJob from a manifest or from the JSON of the API server.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "common/json/document.h"
#include "controller/api/findings.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

struct DecodeResult {
  TrainJob job;         // without defaults
  Positions positions;  // for validate()
  std::vector<FieldError> errors;

  bool ok() const { return errors.empty(); }
};

// Reports all errors: unknown fields with the nearest known name, wrong types and invalid values.
DecodeResult decode_manifest(std::string_view yaml);

// Ignores unknown fields unless `strict`: a newer version of the API may have written the object.
DecodeResult decode_object(const nlohmann::json& object, bool strict = false);

}  // namespace tilewright::api
