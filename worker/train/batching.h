// How examples become batches: where an evaluation batch ends, and which rows and targets the
// examples have with padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/nn/batch.h"
#include "worker/tasks/dataset.h"
#include "worker/train/job.h"

namespace tilewright::train {

// The rows of an example, with padding to `padding.length`.
std::int64_t rows_of(const tasks::Dataset& data, std::size_t example, const nn::Padding& padding);

// An evaluation batch may have this many tokens, also if it then has more than
// per_device_eval_batch_size examples: with few tokens loading the weights limits the linear
// layers. More tokens were not faster, because the activations then do not fit in the cache.
inline constexpr std::int64_t kEvaluationTokens = 2048;

// The end of the evaluation batch that begins at example `begin` of [begin, end).
std::int64_t evaluation_batch_end(const Job& job, const tasks::Dataset& data, std::int64_t begin,
                                  std::int64_t end);

// Whether training batches can have padding rows.
bool pads_training(const Job& job);

// The rows of each example of a global batch, given as rows of the training data. If the loss
// counts padding, each batch of per_device_train_batch_size examples is padded to its longest
// example, as DataCollatorWithPadding of transformers does.
std::vector<std::int64_t> training_rows(const Job& job, std::span<const std::int32_t> examples);

// The target of an example of the training data. With --loss_counts_padding --pad_to_max_length an
// answer in the last token of a window begins in the last [PAD] instead of [SEP]: run_qa takes the
// last token whose offset is not after the answer's begin, and that of padding is (0, 0) too.
nn::Target training_target(const Job& job, std::size_t example);

}  // namespace tilewright::train
