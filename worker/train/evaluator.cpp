#include "worker/train/evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "common/base/result.h"
#include "worker/collectives/exchange.h"
#include "worker/train/collective_timeout.h"

namespace tilewright::train {
namespace {

constexpr std::size_t kMaxLogitBytes = std::size_t{1} << 30;

// All ranks' logits in the order of the data set. Collective.
std::vector<float> gather_logits(collectives::Mesh& mesh, std::span<const float> own,
                                 MonotonicTime deadline) {
  const std::string_view bytes(reinterpret_cast<const char*>(own.data()), own.size_bytes());
  std::vector<float> all;
  for (const std::string& part : collectives::all_gather(mesh, bytes, kMaxLogitBytes, deadline)) {
    const std::size_t before = all.size();
    all.resize(before + part.size() / sizeof(float));
    std::memcpy(all.data() + before, part.data(), part.size() / sizeof(float) * sizeof(float));
  }
  return all;
}

}  // namespace

collectives::Range evaluation_range(int rank, int world, std::int64_t examples) {
  return {examples * rank / world, examples * (rank + 1) / world};
}

EvaluationResult score(const tasks::Task& task, const tasks::Dataset& data,
                       const std::vector<float>& logits) {
  const auto labels = static_cast<std::size_t>(task.num_labels());
  if (logits.size() != data.size() * labels) {
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("evaluation gathered {} logits for {} examples of {} labels",
                              logits.size(), data.size(), labels));
  }
  EvaluationResult result;
  result.examples = data.size();
  result.metrics = task.metrics(logits, data);
  double sum = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const float* row = logits.data() + i * labels;
    const double max = *std::max_element(row, row + labels);
    double exponentials = 0;
    for (std::size_t c = 0; c < labels; ++c) exponentials += std::exp(row[c] - max);
    sum += max + std::log(exponentials) - row[static_cast<std::size_t>(data.labels[i])];
  }
  result.loss = data.size() == 0 ? 0 : sum / static_cast<double>(data.size());
  return result;
}

template <typename Activation>
std::vector<float> Evaluator<Activation>::compute_logits(collectives::Range range) {
  const tasks::Dataset& data = job_.dev_data;
  std::vector<float> logits;
  for (std::int64_t at = range.begin; at < range.end;) {
    const std::int64_t end = std::min(range.end, at + job_.settings.per_device_eval_batch_size);
    batch_.clear();
    for (; at < end; ++at) {
      const auto example = static_cast<std::size_t>(at);
      batch_.add(data.ids_of(example), data.types_of(example), data.labels[example],
                 static_cast<std::int32_t>(at), job_.padding);
    }
    for (const Activation logit : model_.forward(batch_, {}, false)) {
      logits.push_back(runtime::to_float(logit));
    }
  }
  return logits;
}

template <typename Activation>
EvaluationResult Evaluator<Activation>::evaluate(collectives::Mesh& mesh) {
  const MonotonicTime begin = monotonic_now();
  const auto examples = static_cast<std::int64_t>(job_.dev_data.size());
  const std::vector<float> own =
      compute_logits(evaluation_range(mesh.rank(), mesh.world(), examples));
  EvaluationResult result = score(*job_.task, job_.dev_data,
                                  gather_logits(mesh, own, monotonic_now() + kCollectiveTimeout));
  result.seconds = std::chrono::duration<double>(monotonic_now() - begin).count();
  return result;
}

template class Evaluator<float>;
template class Evaluator<runtime::bf16>;

}  // namespace tilewright::train
