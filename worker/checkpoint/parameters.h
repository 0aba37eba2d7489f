// Finds the parameters of a model, named as in transformers, in weight files with other names:
// without the prefix of the base model (nn::ModelFamily::prefix; files of BertModel), with
// "module." before it (files of DataParallel), or with the older names LayerNorm.gamma and
// LayerNorm.beta.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/checkpoint/weight_source.h"

namespace tilewright::checkpoint {

// A parameter or moment in the caller's memory: fp32, row-major.
struct TensorView {
  std::string name;
  Shape shape;
  float* data = nullptr;
  std::int64_t size() const;
};

// Opens the weights of a model directory: model.safetensors, model.safetensors.index.json,
// pytorch_model.bin or pytorch_model.bin.index.json, the first that exists. Throws Failure with
// ExitCode::kWeights; if none exists, the message names a weight file of another format in the
// directory, if there is one.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& model_directory);

// The same, with a Failure (kWeights) if the weights do not have the digest that their header
// states or, in a checkpoint, its checksums.json. `pool` hashes; null: this thread does.
std::unique_ptr<WeightSource> open_intact_weights(const std::filesystem::path& model_directory,
                                                  runtime::ThreadPool* pool);

// A parameter that a model needs.
struct ExpectedParameter {
  std::string name;
  Shape shape;
  bool optional = false;  // if it is missing, the caller initialises it
  // Of an optional parameter: a tensor of another shape counts as missing. Without it, the Failure
  // names --ignore_mismatched_sizes.
  bool ignores_shape = false;
};

// How the files and the model differ. Buffers that are no parameters (position_ids) are left out.
struct ParameterDifferences {
  std::vector<std::string> missing;     // optional parameters that the caller initialises
  std::vector<std::string> unexpected;  // tensors of the files that are no parameter of the model
};

// Checks that read_parameters() can read every parameter that is not optional or is not missing,
// and that its elements are finite. Reads all data, on all threads of `pool` (null: this thread).
// Throws Failure.
ParameterDifferences check_parameters(const WeightSource& source,
                                      std::span<const ExpectedParameter> expected,
                                      runtime::ThreadPool* pool = nullptr);

// The name of the parameter in the files, or nullopt.
std::optional<std::string> find_parameter(const WeightSource& source, const std::string& hf_name);

// Reads the parameters as fp32 from F32, F16, BF16 or F64, on all threads of `pool` (null: this
// thread). Throws Failure with the source's code if one is missing or has another shape or dtype.
void read_parameters(const WeightSource& source, std::span<const TensorView> into,
                     runtime::ThreadPool* pool = nullptr);

// "a, b, c and 4 more" for a log line.
std::string abbreviated_list(const std::vector<std::string>& names);

}  // namespace tilewright::checkpoint
