// The final output in Hugging Face's layout: config.json, model.safetensors and the tokenizer's
// files, which AutoModelForSequenceClassification.from_pretrained and AutoTokenizer load.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "worker/checkpoint/hashed_file.h"
#include "worker/checkpoint/parameters.h"

namespace tilewright::checkpoint {

struct ModelFolderContent {
  std::vector<TensorView> weights;  // every parameter by its name in BertForSequenceClassification
  std::string config_json;          // from classifier_config_json()
  std::filesystem::path tokenizer_source;  // the model folder whose tokenizer files are copied
  std::map<std::string, std::string> extra_files;  // name -> content: all_results.json, ...
  std::function<void()> before_commit = {};  // called when all is written aside: a fault point
};

// The tokenizer's files that stand in the folder, by name.
std::map<std::string, std::string> tokenizer_files(const std::filesystem::path& model_folder);

// Makes `output_dir`, or adds the files to it where it stands (beside checkpoints); then at any
// instant model.safetensors is absent or all files belong together. Gives the digest of
// model.safetensors. Failures carry kOutput.
FileDigest write_model_folder(const std::filesystem::path& output_dir,
                              const ModelFolderContent& content);

}  // namespace tilewright::checkpoint
