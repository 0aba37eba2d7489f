// The families and heads that every test of the model covers, with a small configuration of each.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "worker/nn/batch.h"
#include "worker/nn/encoder_config.h"
#include "worker/runtime/cpu.h"

namespace tilewright::nn::testing {

struct Variant {
  const ModelFamily* family;
  Head head;
};

inline std::string name_of(const Variant& variant) {
  constexpr const char* kHeads[] = {"classification", "regression", "question_answering"};
  return std::string(variant.family->model_type) + "_" +
         kHeads[static_cast<std::size_t>(variant.head)];
}

inline void PrintTo(const Variant& variant, std::ostream* out) { *out << name_of(variant); }

inline std::vector<Variant> all_variants() {
  std::vector<Variant> all;
  for (const ModelFamily* family : kModelFamilies) {
    for (const Head head : {Head::kClassification, Head::kRegression, Head::kQuestionAnswering}) {
      all.push_back({family, head});
    }
  }
  return all;
}

// Sizes that are no multiples of a vector or of a GEMM block, and dropout wherever the family has
// it.
inline EncoderConfig small_config(const Variant& variant) {
  EncoderConfig config;
  config.family = variant.family;
  config.head = variant.head;
  config.vocab_size = 50;
  config.hidden_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.intermediate_size = 80;
  config.max_position_embeddings = 32;
  config.type_vocab_size = variant.family->fields.type_vocab_size.empty() ? 0 : 2;
  config.num_labels = variant.head == Head::kClassification ? 3
                      : variant.head == Head::kRegression   ? 1
                                                            : 2;
  config.hidden_dropout_prob = 0.2f;
  config.attention_probs_dropout_prob = 0.2f;
  config.classifier_dropout = 0.2f;
  config.qa_dropout = variant.family->fields.qa_dropout.empty() ? 0.0f : 0.2f;
  return config;
}

// Adds example b, with a target for every head: a class, a value, or an answer whose tokens exist.
inline void add_example(Batch& batch, Head head, std::int32_t b, std::int32_t length,
                        const Padding& padding = {}) {
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(length));
  for (std::int32_t i = 0; i < length; ++i) ids.push_back((7 * i + 13 * b) % 50);
  Target target = {.label = b % 3, .value = 0.5f * static_cast<float>(b) - 2};
  if (head == Head::kQuestionAnswering) target = {.label = length / 3, .last = length - 1};
  batch.add(ids, b % 2 == 0 ? ids.size() : 0, target, b, padding);
}

struct IsaCase {
  runtime::Isa isa;
  Variant variant;
};

inline std::vector<IsaCase> all_cases() {
  std::vector<IsaCase> all;
  for (const runtime::Isa isa : runtime::detect_cpu().isas) {
    for (const Variant& variant : all_variants()) all.push_back({isa, variant});
  }
  return all;
}

inline std::string case_name(const IsaCase& tested) {
  return std::string(runtime::name(tested.isa)) + "_" + name_of(tested.variant);
}
inline void PrintTo(const IsaCase& tested, std::ostream* out) { *out << case_name(tested); }

}  // namespace tilewright::nn::testing
