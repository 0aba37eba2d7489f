#include "worker/train/evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "worker/collectives/exchange.h"
#include "worker/runtime/float_mode.h"
#include "worker/train/batching.h"
#include "worker/train/collective_limits.h"
#include "worker/train/micro_batches.h"

namespace tilewright::train {
namespace {

constexpr std::size_t kMaxResultBytes = std::size_t{1} << 20;

// Sends rank 0's result without its files to all ranks. Collective.
void share_result(collectives::Mesh& mesh, MonotonicTime deadline, EvaluationResult& result) {
  // MessagePack keeps the bits of a number, also of one that is not finite.
  std::string text;
  if (mesh.rank() == 0) {
    nlohmann::json::to_msgpack({{"metrics", result.metrics}, {"loss", result.loss}}, text);
  }
  text = collectives::broadcast_string(mesh, 0, text, kMaxResultBytes, deadline);
  if (mesh.rank() == 0) return;
  try {
    const nlohmann::json shared = nlohmann::json::from_msgpack(text);
    result.metrics = shared.at("metrics").get<tasks::Metrics>();
    result.loss = shared.at("loss").get<double>();
  } catch (const nlohmann::json::exception& error) {
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("rank 0 sent an invalid evaluation: {}", error.what()));
  }
}

// log(sum of exp(logits)) of `count` logits with a distance of `stride`.
double log_sum_exp(const float* logits, std::size_t count, std::size_t stride) {
  double max = logits[0];
  for (std::size_t c = 1; c < count; ++c) max = std::max<double>(max, logits[c * stride]);
  double exponentials = 0;
  for (std::size_t c = 0; c < count; ++c) exponentials += std::exp(logits[c * stride] - max);
  return max + std::log(exponentials);
}

// -log softmax(logits)[label] of `count` logits with a distance of `stride`.
double cross_entropy(const float* logits, std::size_t count, std::size_t stride,
                     std::int32_t label) {
  return log_sum_exp(logits, count, stride) - logits[static_cast<std::size_t>(label) * stride];
}

// (1 - smoothing) times the cross entropy plus smoothing times the mean of -log softmax(logits).
double smoothed_cross_entropy(const float* logits, std::size_t count, std::int32_t label,
                              double smoothing) {
  const double sum = std::accumulate(logits, logits + count, 0.0);
  return log_sum_exp(logits, count, 1) - (1 - smoothing) * logits[label] -
         smoothing * sum / static_cast<double>(count);
}

// The loss of one example, see nn::Head.
double loss_of(const tasks::Task& task, const tasks::Dataset& data, std::size_t example,
               const std::vector<float>& logits, double label_smoothing) {
  const nn::Target target = data.target_of(example);
  const auto width = static_cast<std::size_t>(task.num_labels());
  switch (task.head()) {
    case nn::Head::kClassification:
      return smoothed_cross_entropy(logits.data() + example * width, width, target.label,
                                    label_smoothing);
    case nn::Head::kRegression: {
      const double difference = static_cast<double>(logits[example]) - target.value;
      return difference * difference;
    }
    case nn::Head::kQuestionAnswering: {
      const float* first = logits.data() + static_cast<std::size_t>(data.offsets[example]) * width;
      const std::size_t length = data.length(example);
      return (cross_entropy(first, length, width, target.label) +
              cross_entropy(first + 1, length, width, target.last)) /
             2;
    }
  }
  TW_CHECK(false, "unknown head {}", static_cast<int>(task.head()));
}

std::size_t count_logits(const tasks::Task& task, const tasks::Dataset& data) {
  const std::size_t rows =
      task.head() == nn::Head::kQuestionAnswering ? data.tokens() : data.size();
  return rows * static_cast<std::size_t>(task.num_labels());
}

}  // namespace

std::vector<float> gather_logits(collectives::Mesh& mesh, std::span<const float> own,
                                 std::size_t total, MonotonicTime deadline, std::size_t piece) {
  const auto text_of = [](std::span<const float> logits) {
    return std::string_view(reinterpret_cast<const char*>(logits.data()), logits.size_bytes());
  };
  std::vector<std::size_t> counts;  // by rank
  std::size_t left = total;
  for (const std::string& text :
       collectives::all_gather(mesh, std::to_string(own.size()), kMaxCollectiveBytes, deadline)) {
    const auto count = parse_number<std::size_t>(text);
    if (!count || *count > left) {
      throw Failure(ExitCode::kPeerLost,
                    fmt::format("rank {} sent {} as the number of its logits, expected at most {}",
                                counts.size(), quoted_excerpt(text), left));
    }
    left -= *count;
    counts.push_back(*count);
  }
  std::vector<std::size_t> begins(counts.size());  // of each rank in `all`
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::size_t{0});
  std::vector<float> all(mesh.rank() == 0 ? begins.back() + counts.back() : 0);
  const std::size_t most = *std::ranges::max_element(counts);
  for (std::size_t at = 0; at < most; at += piece) {
    const std::span<const float> mine = own.subspan(std::min(at, own.size()));
    const std::vector<std::string> parts =
        collectives::gather(mesh, 0, text_of(mine.first(std::min(piece, mine.size()))),
                            piece * sizeof(float), collective_deadline());
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const std::size_t bytes =
          std::min(piece, counts[rank] - std::min(at, counts[rank])) * sizeof(float);
      if (parts[rank].size() != bytes) {
        throw Failure(ExitCode::kPeerLost, fmt::format("rank {} sent {} bytes of its logits, "
                                                       "expected {}",
                                                       rank, parts[rank].size(), bytes));
      }
      if (bytes > 0) std::memcpy(all.data() + begins[rank] + at, parts[rank].data(), bytes);
    }
  }
  return all;
}

EvaluationResult score(const tasks::Task& task, const EvaluationSet& set,
                       const std::vector<float>& logits, double label_smoothing) {
  const tasks::Dataset& data = set.data;
  if (logits.size() != count_logits(task, data)) {
    throw Failure(ExitCode::kPeerLost, fmt::format("evaluation gathered {} logits, expected {}",
                                                   logits.size(), count_logits(task, data)));
  }
  const runtime::DenormalsScope denormals;  // small probabilities have NumPy's digits
  EvaluationResult result;
  result.suffix = set.suffix;
  result.examples = data.size();
  tasks::Scores scores = task.score(set.part, logits, data);
  result.prediction_files = std::move(scores.prediction_files);
  result.metrics = std::move(scores.metrics);
  if (!data.has_labels()) return result;
  double sum = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    sum += loss_of(task, data, i, logits, label_smoothing);
  }
  result.loss = sum / static_cast<double>(data.size());
  return result;
}

template <typename Activation>
std::vector<float> Evaluator<Activation>::compute_logits(
    const tasks::Dataset& data, collectives::Range range,
    const std::function<void()>& before_batch) {
  std::vector<float> logits;
  for (std::int64_t at = range.begin; at < range.end;) {
    before_batch();
    const std::int64_t end = evaluation_batch_end(job_, data, at, range.end);
    batch_.clear();
    for (; at < end; ++at) {
      const auto example = static_cast<std::size_t>(at);
      batch_.add(data.ids_of(example), data.first_segment_of(example), data.target_of(example),
                 static_cast<std::int32_t>(at), job_.padding);
    }
    append_logits(model_.forward(batch_, {}, false), logits);
  }
  return logits;
}

// The model's logits without those of padded positions.
template <typename Activation>
void Evaluator<Activation>::append_logits(std::span<const Activation> found,
                                          std::vector<float>& logits) const {
  if (job_.task->head() != nn::Head::kQuestionAnswering) {
    for (const Activation logit : found) logits.push_back(runtime::to_float(logit));
    return;
  }
  const auto width = static_cast<std::size_t>(job_.task->num_labels());
  for (std::size_t b = 0; b < batch_.lengths.size(); ++b) {
    const auto begin = static_cast<std::size_t>(batch_.cu_seqlens[b]) * width;
    const auto count = static_cast<std::size_t>(batch_.lengths[b]) * width;
    for (const Activation logit : found.subspan(begin, count)) {
      logits.push_back(runtime::to_float(logit));
    }
  }
}

template <typename Activation>
EvaluationResult Evaluator<Activation>::evaluate(collectives::Mesh& mesh, const EvaluationSet& set,
                                                 const std::function<void()>& before_batch) {
  const MonotonicTime begin = monotonic_now();
  const auto examples = static_cast<std::int64_t>(set.data.size());
  const std::vector<float> own =
      compute_logits(set.data, equal_share(mesh.rank(), mesh.world(), examples), before_batch);
  const std::vector<float> logits = gather_logits(mesh, own, count_logits(*job_.task, set.data),
                                                  collective_deadline(begin, monotonic_now()));
  EvaluationResult result;
  if (mesh.rank() == 0) {
    result =
        score(*job_.task, set, logits, static_cast<double>(job_.settings.label_smoothing_factor));
  } else {
    result.suffix = set.suffix;
    result.examples = set.data.size();
  }
  share_result(mesh, collective_deadline(), result);
  result.seconds = in_seconds(monotonic_now() - begin);
  const std::int64_t batch = job_.settings.per_device_eval_batch_size;
  result.steps = ((examples + mesh.world() - 1) / mesh.world() + batch - 1) / batch;
  return result;
}

template class Evaluator<float>;
template class Evaluator<runtime::bf16>;

}  // namespace tilewright::train
