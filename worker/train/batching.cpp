#include "worker/train/batching.h"

#include <algorithm>

namespace tilewright::train {

std::int64_t rows_of(const tasks::Dataset& data, std::size_t example, const nn::Padding& padding) {
  return std::max(static_cast<std::int64_t>(data.length(example)), padding.length);
}

std::int64_t evaluation_batch_end(const Job& job, const tasks::Dataset& data, std::int64_t begin,
                                  std::int64_t end) {
  std::int64_t tokens = 0;
  for (std::int64_t at = begin; at < end; ++at) {
    tokens += rows_of(data, static_cast<std::size_t>(at), job.padding);
    if (tokens > kEvaluationTokens && at - begin >= job.settings.per_device_eval_batch_size) {
      return at;
    }
  }
  return end;
}

bool pads_training(const Job& job) { return job.padding.length > 0 || job.padding.in_loss; }

std::vector<std::int64_t> training_rows(const Job& job, std::span<const std::int32_t> examples) {
  std::vector<std::int64_t> rows(examples.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = rows_of(job.train_data, static_cast<std::size_t>(examples[i]), job.padding);
  }
  if (!job.padding.in_loss) return rows;
  const auto batch = static_cast<std::size_t>(job.settings.per_device_train_batch_size);
  for (std::size_t begin = 0; begin < rows.size(); begin += batch) {
    const std::span one = std::span(rows).subspan(begin, std::min(batch, rows.size() - begin));
    std::ranges::fill(one, std::ranges::max(one));
  }
  return rows;
}

nn::Target training_target(const Job& job, std::size_t example) {
  nn::Target target = job.train_data.target_of(example);
  const auto length = static_cast<std::int64_t>(job.train_data.length(example));
  if (job.padding.in_loss && target.label == length - 1) {
    target.label = static_cast<std::int32_t>(std::max(length, job.padding.length) - 1);
  }
  return target;
}

}  // namespace tilewright::train
