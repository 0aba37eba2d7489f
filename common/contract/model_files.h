// Names of the files of a model directory, as Hugging Face's transformers writes them.
#pragma once

#include <array>

namespace tilewright::model_files {

inline constexpr const char* kConfig = "config.json";

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
inline constexpr const char* kTokenizer = "tokenizer.json";
inline constexpr const char* kVocabulary = "vocab.txt";
inline constexpr const char* kAddedTokens = "added_tokens.json";
inline constexpr const char* kSpecialTokens = "special_tokens_map.json";
// What is downloaded with a model and copied into the output, if it exists.
inline constexpr std::array kTokenizerFiles = {kTokenizerConfig, kTokenizer, kVocabulary,
                                               kSpecialTokens, kAddedTokens};

struct Weights {
  const char* name;
  bool is_safetensors;  // otherwise PyTorch's format
  bool is_index;        // a JSON file that names shards
};
inline constexpr const char* kSafetensors = "model.safetensors";
// In order of preference.
inline constexpr std::array kWeights = {Weights{kSafetensors, true, false},
                                        Weights{"model.safetensors.index.json", true, true},
                                        Weights{"pytorch_model.bin", false, false},
                                        Weights{"pytorch_model.bin.index.json", false, true}};

}  // namespace tilewright::model_files
