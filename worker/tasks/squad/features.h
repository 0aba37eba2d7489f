// Turns questions into the model's inputs as Hugging Face's run_qa does with the fast tokenizer:
// [CLS] question [SEP] window of the context [SEP], where windows of a long context overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/tasks/dataset.h"
#include "worker/tasks/squad/examples.h"
#include "worker/text/tokenizer.h"

namespace tilewright::tasks::squad {

inline constexpr std::size_t kSpecialTokens = 3;  // of a feature: [CLS] and two [SEP]

struct FeatureOptions {
  std::size_t max_seq_length = 384;     // tokens of a feature, more than kSpecialTokens
  std::size_t doc_stride = 128;         // tokens that consecutive windows share
  std::size_t max_features = 0;         // keep the first N features only; 0: all
  runtime::ThreadPool* pool = nullptr;  // converts text to tokens; null: this thread
};

// One window of a question's context.
struct Feature {
  std::uint32_t question = 0;      // index in Examples::questions
  std::uint32_t first_token = 0;   // where the window begins in the feature
  std::uint32_t window_begin = 0;  // where it begins in the context, in tokens
  std::uint32_t window_size = 0;   // tokens
  // Tokens of the feature at which the first gold answer begins and ends; 0 ([CLS]) if the window
  // does not hold the whole answer, or there is none. If the answer begins in the last token of the
  // window, `start` is the last token of the feature ([SEP]): run_qa does so, because the offsets
  // (0, 0) of [SEP] are not after the answer's begin.
  std::int32_t start = 0;
  std::int32_t end = 0;

  // Tokens of the feature.
  std::size_t length() const { return std::size_t{first_token} + window_size + 1; }
};

struct Features {
  DatasetLists tokens;            // one example per feature, without labels
  std::vector<Feature> features;  // ordered by question, then by window
  // By context: the spans of its tokens; empty for contexts without features.
  std::vector<std::vector<text::CharacterSpan>> spans;

  // The characters of a context that a token of a feature covers, as in offset_mapping; nullopt for
  // tokens that are not of the context.
  std::optional<text::CharacterSpan> span(const Examples& examples, std::size_t feature,
                                          std::size_t token) const;
};

// Tokenizes each context once. Throws Failure(kData) with the question's id if a context has no
// tokens, or if a context does not fit and the question leaves no more than doc_stride tokens for
// it. `source` names the file in messages.
Features make_features(const Examples& examples, const text::Tokenizer& tokenizer,
                       const FeatureOptions& options, const std::string& source);

}  // namespace tilewright::tasks::squad
