// Sizes and constants of a BERT encoder and its head. Fields are named as in
// config.json.
#pragma once

#include <cstdint>

#include "worker/nn/head.h"

namespace tilewright::nn {

struct EncoderConfig {
  Head head = Head::kClassification;
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  std::int64_t num_labels = 2;
  float layer_norm_eps = 1e-12f;
  float hidden_dropout_prob = 0.1f;
  float attention_probs_dropout_prob = 0.1f;
  float classifier_dropout = 0.1f;  // from config.json; its default is hidden_dropout_prob
  float initializer_range = 0.02f;

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
};

}  // namespace tilewright::nn
