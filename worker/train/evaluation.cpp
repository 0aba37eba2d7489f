#include "worker/train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "common/base/result.h"
#include "worker/collectives/exchange.h"

namespace tilewright::train {
namespace {

constexpr std::size_t kMaxLogitBytes = std::size_t{1} << 30;

}  // namespace

collectives::Range share_of(int rank, int world, std::int64_t examples) {
  return {examples * rank / world, examples * (rank + 1) / world};
}

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
    const double most = *std::max_element(row, row + labels);
    double exponentials = 0;
    for (std::size_t c = 0; c < labels; ++c) exponentials += std::exp(row[c] - most);
    sum += most + std::log(exponentials) - row[static_cast<std::size_t>(data.labels[i])];
  }
  result.loss = data.size() == 0 ? 0 : sum / static_cast<double>(data.size());
  return result;
}

}  // namespace tilewright::train
