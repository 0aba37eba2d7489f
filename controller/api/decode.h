// Reads a TrainJob or a PyTorchJob from a manifest or from the JSON of the API server.
#pragma once

#include <nlohmann/json.hpp>

#include "common/json/document.h"
#include "controller/api/findings.h"
#include "controller/api/pytorchjob.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

template <typename Job>
struct Decoded {
  Job job;              // without defaults
  Positions positions;  // for validate()
  std::vector<FieldError> errors;

  bool ok() const { return errors.empty(); }
};
using DecodeResult = Decoded<TrainJob>;
using DecodedPyTorchJob = Decoded<PyTorchJob>;

// Reports all errors: unknown fields with the nearest known name, wrong types and invalid values.
DecodeResult decode_document(Document document);
DecodedPyTorchJob decode_pytorchjob_document(Document document);

// Ignores unknown fields by default: a newer version of the API may have written the object.
DecodeResult decode_object(const nlohmann::json& object,
                           FieldValidation validation = FieldValidation::kIgnore);
DecodedPyTorchJob decode_pytorchjob(const nlohmann::json& object,
                                    FieldValidation validation = FieldValidation::kIgnore);

}  // namespace tilewright::api
