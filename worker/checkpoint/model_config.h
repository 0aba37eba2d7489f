// Reads config.json of a Hugging Face model directory as an nn::EncoderConfig, and makes the
// config.json of the fine-tuned model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/nn/encoder_config.h"

namespace tilewright::checkpoint {

struct ModelConfig {
  nn::EncoderConfig encoder;
  std::vector<std::string> labels;  // id2label in order; default: "LABEL_0", "LABEL_1", ...
  std::string json;                 // the whole object, as JSON
};

// `path` is a model directory or its config.json. The head is that of a classification; the caller
// sets the head that it trains. Throws Failure with ExitCode::kModel if the model is not an encoder
// of one of nn::kModelFamilies with erf GELU and absolute positions, or if a size is missing or out
// of range.
ModelConfig read_model_config(const std::filesystem::path& path);

// The content of config.json for a model of the encoder's family with its head and fp32 weights.
// `labels` are those of a classification. Other fields are copied from `source_json`, the `json` of
// a ModelConfig.
std::string model_config_json(const std::string& source_json,
                              const std::vector<std::string>& labels,
                              const nn::EncoderConfig& encoder);

}  // namespace tilewright::checkpoint
