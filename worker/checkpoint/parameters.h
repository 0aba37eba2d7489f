// Finds the parameters of a BERT classifier, named as in BertForSequenceClassification, in weight
// files with other names: without the prefix "bert." (files of BertModel), or with the older names
// LayerNorm.gamma and LayerNorm.beta.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "worker/checkpoint/safetensors.h"

namespace tilewright::checkpoint {

// A parameter or moment in the caller's memory: fp32, row-major.
struct TensorView {
  std::string name;
  Shape shape;
  float* data = nullptr;
  std::int64_t size() const;
};

// Opens model.safetensors of a model directory. Throws Failure with ExitCode::kWeights; if the file
// is missing, the message names a weight file of another format in the directory, if there is one.
std::unique_ptr<SafetensorsFile> open_weights(const std::filesystem::path& model_folder);

// The name of the parameter in the file, or nullopt.
std::optional<std::string> find_parameter(const SafetensorsFile& file, const std::string& hf_name);

// Checks what read_parameter() checks, and throws the same Failure, without reading the data.
void check_parameter(const SafetensorsFile& file, const std::string& hf_name, const Shape& shape);

// Reads the parameter as fp32 from F32, F16 or BF16. Throws Failure with the file's code if it is
// missing or has another shape or dtype.
void read_parameter(const SafetensorsFile& file, const TensorView& into);

}  // namespace tilewright::checkpoint
