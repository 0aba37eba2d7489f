// Sizes and constants of an encoder and its head. Fields are named as in BERT's config.json.
#pragma once

#include <cstdint>

#include "worker/nn/family.h"
#include "worker/nn/head.h"

namespace tilewright::nn {

struct EncoderConfig {
  const ModelFamily* family = &kBert;
  Head head = Head::kClassification;
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;  // 0: no embeddings of token types
  // A row of the word embeddings that gets no gradient, as that of padding_idx in PyTorch's
  // Embedding; -1: none.
  std::int32_t padding_idx = -1;
  std::int64_t num_labels = 2;  // outputs of the head; 1 for a regression, 2 for an answer
  float layer_norm_eps = 1e-12f;
  float hidden_dropout_prob = 0.1f;
  float attention_probs_dropout_prob = 0.1f;
  float classifier_dropout = 0.1f;  // of classification and regression
  float qa_dropout = 0;             // of question answering
  float label_smoothing = 0;  // of classification, in the loss: see Ops::softmax_cross_entropy
  float initializer_range = 0.02f;
  // A training keeps of each layer only the output and its norm's input, and backward computes the
  // other activations again. The gradients have the same bits.
  bool gradient_checkpointing = false;

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
  float attention_output_dropout_prob() const {
    return family->attention_output_dropout ? hidden_dropout_prob : 0.0f;
  }
};

}  // namespace tilewright::nn
