// Writes the final output in Hugging Face's layout: config.json, model.safetensors and the
// tokenizer files. AutoModelForSequenceClassification.from_pretrained (or
// AutoModelForQuestionAnswering's) and AutoTokenizer load it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "worker/checkpoint/hashed_file.h"
#include "worker/checkpoint/output_writer.h"
#include "worker/checkpoint/parameters.h"
#include "worker/runtime/thread_pool.h"

namespace tilewright::checkpoint {

struct ModelDirectoryContent {
  std::vector<TensorView> weights;                 // all parameters, named as in transformers
  std::string config_json;                         // from model_config_json()
  std::map<std::string, std::string> extra_files;  // name -> content: tokenizer and result files
  std::function<void()> before_commit = {};  // called before the rename: a fault point for tests
  runtime::ThreadPool* pool = nullptr;       // hashes the weights; null: this thread does
};

// The contents of the tokenizer files in a model directory, by file name. Throws Failure with
// kModel, or with kOutputUnavailable for an error that may pass.
std::map<std::string, std::string> tokenizer_files(const std::filesystem::path& model_directory);

// Adds the files to the output directory. At any time model.safetensors is absent or all files
// belong to the same model. The weights' digest is in the header of model.safetensors, for
// WeightSource::check_digests(). Returns the digest of model.safetensors. Failures have
// output_error_code(), or kSuperseded.
FileDigest write_model_directory(const OutputWriter& output, const ModelDirectoryContent& content);

}  // namespace tilewright::checkpoint
