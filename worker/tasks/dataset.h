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

// The lists of a data set while a task makes it.
struct DatasetLists {
  std::vector<std::int32_t> ids = {};             // [tokens], with [CLS] and [SEP]
  std::vector<std::int64_t> offsets = {0};        // [examples + 1]: where each begins, and the end
  std::vector<std::int32_t> first_segments = {};  // [examples]: tokens of type 0; then type 1
  // Of the examples, see nn::Target. Lists that the head does not use are empty, and all are empty
  // if the file has no labels.
  std::vector<std::int32_t> labels = {};
  std::vector<std::int32_t> last_labels = {};
  std::vector<float> values = {};

  // Adds an example's tokens. The caller adds its label or value.
  void append(const text::Encoding& encoding);
  // Adds the tokens of `count` examples. encode(i) is called on all threads of `pool` (null: this
  // thread).
  void append_all(std::size_t count, runtime::ThreadPool* pool,
                  const std::function<text::Encoding(std::size_t)>& encode);
};

// Views of lists as in DatasetLists, in memory or in a mapped file. Copies share them.
struct Dataset {
  std::span<const std::int32_t> ids;
  std::span<const std::int64_t> offsets;
  std::span<const std::int32_t> first_segments;
  std::span<const std::int32_t> labels;
  std::span<const std::int32_t> last_labels;
  std::span<const float> values;
  std::shared_ptr<const void> storage;   // of the lists
  std::shared_ptr<const Source> source;  // may be null
  std::vector<std::string> warnings;     // about the rows, for the log: one sentence each

  Dataset() = default;  // no examples
  explicit Dataset(DatasetLists lists);

  std::size_t size() const { return first_segments.size(); }
  std::size_t tokens() const { return ids.size(); }
  std::size_t length(std::size_t example) const {
    return static_cast<std::size_t>(offsets[example + 1] - offsets[example]);
  }
  std::span<const std::int32_t> ids_of(std::size_t example) const;
  std::size_t first_segment_of(std::size_t example) const {
    return static_cast<std::size_t>(first_segments[example]);
  }
  bool has_labels() const { return !labels.empty() || !values.empty(); }
  nn::Target target_of(std::size_t example) const;
  // The SHA-256 of all lists.
  std::string digest() const;
};

// Throws Failure(kModel) if a token id is not below vocab_size, the rows of the model's word
// embeddings: tokenizer and model then do not match. Also if there is a second segment and the
// model has embeddings of one token type only; type_vocab_size 0: the model has none. `config`: the
// file that has both sizes.
void check_ids(const Dataset& dataset, std::int64_t vocab_size, std::int64_t type_vocab_size,
               const std::string& config);

}  // namespace tilewright::tasks
