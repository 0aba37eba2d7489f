// config.json of a Hugging Face model folder: read into the sizes that nn wants, and written back
// with everything it held for the fine-tuned model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/nn/bert_config.h"

namespace tilewright::checkpoint {

struct ModelConfig {
  nn::BertConfig bert;
  std::vector<std::string> labels;  // id2label in order; "LABEL_0", ... where it has none
  std::string json;                 // the file as it was
};

// `path` is a model folder or its config.json. Anything but a BERT encoder with erf GELU and
// absolute positions, or a size missing or out of range: a Failure with kModel.
ModelConfig read_bert_config(const std::filesystem::path& path);

// The text of a config.json for a sequence classifier with these labels and fp32 weights; every
// other field stays as it is in `source_json`, which read_bert_config has accepted.
std::string classifier_config_json(const std::string& source_json,
                                   const std::vector<std::string>& labels);

}  // namespace tilewright::checkpoint
