// Finds the parameters of a BERT classifier, named as in BertForSequenceClassification, in weight
// files that name them otherwise: without the prefix "bert." (a bare BertModel), or with the older
// LayerNorm.gamma and LayerNorm.beta.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "worker/checkpoint/safetensors.h"

namespace tilewright::checkpoint {

// A parameter or moment where it lies in the caller's memory: fp32, row-major.
struct TensorView {
  std::string name;
  Shape shape;
  float* data = nullptr;
  std::int64_t size() const;
};

// model.safetensors of a model folder; a Failure with kWeights says what stands there instead.
std::unique_ptr<SafetensorsFile> open_weights(const std::filesystem::path& model_folder);

// The name under which the file holds the parameter, or none.
std::optional<std::string> find_parameter(const SafetensorsFile& file, const std::string& hf_name);

// A Failure with the file's code where read_parameter would have one.
void check_parameter(const SafetensorsFile& file, const std::string& hf_name, const Shape& shape);

// Reads the parameter as fp32 from F32, F16 or BF16; a Failure with the file's code when it is
// missing or of another shape.
void read_parameter(const SafetensorsFile& file, const TensorView& into);

}  // namespace tilewright::checkpoint
