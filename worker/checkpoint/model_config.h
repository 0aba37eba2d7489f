// Reads config.json of a Hugging Face model directory as an nn::EncoderConfig, and makes the
// config.json of the fine-tuned model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/nn/encoder_config.h"

namespace tilewright::checkpoint {

// Of a classification.
inline constexpr std::size_t kMaxLabels = 1 << 16;

struct ModelConfig {
  nn::EncoderConfig encoder;
  // id2label in order, numbers and booleans as their text; default: "LABEL_0", "LABEL_1", ...
  std::vector<std::string> labels;
  std::string json;  // the whole object, as JSON
  // It has no classifier_dropout of its own, so that the hidden dropout applies.
  bool classifier_has_hidden_dropout = false;
};

// The config.json of a model directory, or the file itself, whatever its name.
std::filesystem::path config_file(const std::filesystem::path& directory_or_file);

// `path`: as for config_file(). The head is that of a classification; the caller sets the head that
// it trains. Throws Failure with ExitCode::kModel if the model is not an encoder of one of
// nn::kModelFamilies with erf GELU and absolute positions, or if a size is missing or out of range.
ModelConfig read_model_config(const std::filesystem::path& path);

// The content of config.json for a model of the encoder's family with its head and fp32 weights.
// `labels` are those of a classification, `finetuning_task` that of run_glue: the task's name;
// empty: none. Other fields are copied from `source_json`, the `json` of
// a ModelConfig.
std::string model_config_json(const std::string& source_json,
                              const std::vector<std::string>& labels,
                              const nn::EncoderConfig& encoder, const std::string& finetuning_task);

// What config.json says that a model was trained for.
struct ModelTask {
  std::string finetuning_task = {};  // empty: none
  bool answers_questions = false;    // "architectures" has a class ...ForQuestionAnswering
};

// `path`: as for config_file(). The default if there is no file. Throws Failure(kModel) if it
// cannot be read.
ModelTask read_model_task(const std::filesystem::path& path);

}  // namespace tilewright::checkpoint
