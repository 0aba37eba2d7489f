// The examples of a split in the form that the trainer reads: token ids of all examples, packed
// without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/nn/head.h"
#include "worker/runtime/thread_pool.h"
#include "worker/text/tokenizer.h"

namespace tilewright::tasks {

// What a task keeps of its input besides the tokens, to score predictions. Each task derives its
// own.
struct Source {
  virtual ~Source() = default;
};

struct Dataset {
  std::vector<std::int32_t> ids;            // [tokens], with [CLS] and [SEP]
  std::vector<std::int32_t> types;          // [tokens], 0 or 1
  std::vector<std::int64_t> offsets = {0};  // [examples + 1]: where each begins, and the end
  // Of the examples, see nn::Target. Lists that the head does not use are empty, and all are empty
  // if the file has no labels.
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> last_labels;
  std::vector<float> values;
  std::shared_ptr<const Source> source;  // may be null
  std::vector<std::string> warnings;     // about the rows, for the log: one sentence each

  std::size_t size() const { return offsets.size() - 1; }
  std::size_t tokens() const { return ids.size(); }
  std::size_t length(std::size_t example) const {
    return static_cast<std::size_t>(offsets[example + 1] - offsets[example]);
  }
  std::span<const std::int32_t> ids_of(std::size_t example) const;
  std::span<const std::int32_t> types_of(std::size_t example) const;
  bool has_labels() const { return !labels.empty() || !values.empty(); }
  nn::Target target_of(std::size_t example) const;

  // Adds an example's tokens. The caller adds its label or value.
  void append(const text::Encoding& encoding);
  // Adds the tokens of `count` examples. encode(i) is called on all threads of `pool` (null: this
  // thread).
  void append_all(std::size_t count, runtime::ThreadPool* pool,
                  const std::function<text::Encoding(std::size_t)>& encode);
};

// Throws Failure(kModel) if a token id is not below vocab_size, the rows of the model's word
// embeddings: tokenizer and model then do not match. `config`: the file that has vocab_size.
void check_ids(const Dataset& dataset, std::int64_t vocab_size, const std::string& config);

}  // namespace tilewright::tasks
