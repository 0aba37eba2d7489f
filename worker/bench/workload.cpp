#include "worker/bench/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "common/base/result.h"
#include "common/host/cpu_plan.h"

namespace tilewright::bench {
namespace {

struct LengthRange {
  explicit LengthRange(const std::vector<std::int32_t>& lengths)
      : least(*std::min_element(lengths.begin(), lengths.end())),
        most(*std::max_element(lengths.begin(), lengths.end())),
        tokens(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})),
        mean(static_cast<double>(tokens) / static_cast<double>(lengths.size())) {}
  std::int32_t least;
  std::int32_t most;
  std::int64_t tokens;
  double mean;
};

// The values of the token ids do not matter, so a linear congruential generator is sufficient.
std::int32_t next_id(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::int32_t>(1000 + (state >> 33) % 29000);
}

}  // namespace

std::string Workload::description() const {
  const LengthRange range(lengths);
  const std::string head = question_answering ? " question answering" : "";
  if (range.least == range.most) {
    return fmt::format("{}{} {} x {}", model, head, lengths.size(), range.most);
  }
  return fmt::format("{}{} {} x {} to {} (mean {:.1f})", model, head, lengths.size(), range.least,
                     range.most, range.mean);
}

void Workload::add_to(nlohmann::ordered_json& json) const {
  const LengthRange range(lengths);
  json["model"] = model;
  json["head"] = question_answering ? "question_answering" : "classification";
  json["dtype"] = name(precision);
  json["gradient_checkpointing"] = gradient_checkpointing;
  json["gemm_backend"] = backend == kernels::GemmBackend::kNative ? "native" : "onednn";
  json["examples"] = lengths.size();
  json["tokens"] = range.tokens;
  json["min_length"] = range.least;
  json["mean_length"] = range.mean;
  json["max_length"] = range.most;
}

nlohmann::ordered_json WorkloadRun::json_of(const char* benchmark, const Workload& workload) const {
  nlohmann::ordered_json json;
  json["benchmark"] = benchmark;
  json["cpu"] = cpu;
  json["isa"] = isa;
  workload.add_to(json);
  json["threads"] = threads;
  return json;
}

nn::EncoderConfig model_config(const Workload& workload) {
  nn::EncoderConfig config;
  if (workload.model == "bert-large") {
    config.hidden_size = 1024;
    config.num_hidden_layers = 24;
    config.num_attention_heads = 16;
    config.intermediate_size = 4096;
  } else if (workload.model == "distilbert") {
    config.family = &nn::kDistilBert;
    config.num_hidden_layers = 6;
    config.type_vocab_size = 0;
    config.classifier_dropout = nn::kDistilBert.default_classifier_dropout;
    config.qa_dropout = nn::kDistilBert.default_qa_dropout;
  } else if (workload.model == "minilm") {
    config.hidden_size = 384;
    config.num_hidden_layers = 6;
    config.intermediate_size = 1536;
  } else if (workload.model != "bert-base") {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--model: found \"{}\", expected one of bert-base, bert-large, "
                              "distilbert, minilm",
                              workload.model));
  }
  config.gradient_checkpointing = workload.gradient_checkpointing;
  if (workload.question_answering) config.head = nn::Head::kQuestionAnswering;
  return config;
}

int pool_threads(int threads) {
  if (threads > 0) return threads;
  return host::plan_cpus(host::this_host(), 1).of(0).threads;
}

nn::Batch random_batch(const Workload& workload, std::int64_t shards) {
  nn::Batch batch;
  std::uint64_t state = 1;
  const std::int64_t n = std::ssize(workload.lengths);
  const bool answers = workload.question_answering;
  batch.open_group(0);
  std::int64_t b = 0;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    for (; b < n && b * shards / n == shard; ++b) {
      const std::int32_t length = workload.lengths[static_cast<std::size_t>(b)];
      std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
      for (std::int32_t& id : ids) id = next_id(state);
      batch.add(ids, ids.size(),
                {.label = answers ? 0 : static_cast<std::int32_t>(b % 2),
                 .last = answers ? length - 1 : 0},
                static_cast<std::int32_t>(b));
    }
    batch.close_shard();
  }
  return batch;
}

}  // namespace tilewright::bench
