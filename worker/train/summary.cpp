#include "worker/train/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/log_lines.h"
#include "worker/nn/parameters.h"

namespace tilewright::train {
namespace {

// Cut to kMaxSummaryColumns: a long CPU model or run name must not widen the log.
std::string line(std::string_view name, const std::string& text) {
  const std::string whole = fmt::format("{}: {}", name, text);
  return whole.substr(0, utf8_prefix_length(whole, kMaxSummaryColumns));
}

// "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz" is "Intel Xeon Platinum 8488C".
std::string short_cpu_model(std::string model) {
  constexpr std::size_t kMaxColumns = 32;
  if (const auto at = model.find(" @ "); at != std::string::npos) model.resize(at);
  for (const std::string_view word : {"(R)", "(TM)", "(r)", "(tm)", " CPU", " Processor"}) {
    for (auto at = model.find(word); at != std::string::npos; at = model.find(word)) {
      model.erase(at, word.size());
    }
  }
  model.resize(utf8_prefix_length(model, kMaxColumns));
  return model;
}

// "22.7 tokens on average, 30 at most"
std::string describe_lengths(const tasks::Dataset& data) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < data.size(); ++i) longest = std::max(longest, data.length(i));
  return fmt::format("{:.1f} tokens on average, {} at most",
                     static_cast<double>(data.tokens()) / static_cast<double>(data.size()),
                     longest);
}

std::size_t evaluated(const Job& job) {
  std::size_t examples = 0;
  for (const EvaluationSet& set : job.evaluation_sets) examples += set.data.size();
  return examples;
}

std::size_t predicted(const Job& job) {
  std::size_t examples = 0;
  for (const EvaluationSet& set : job.prediction_sets) examples += set.data.size();
  return examples;
}

}  // namespace

std::string format_metrics(const tasks::Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

std::string machine_line(const MachineSummary& machine) {
  const std::string times =
      machine.workers > 1 ? fmt::format("{} x ", machine.workers) : std::string();
  return line(
      log_lines::kMachine,
      fmt::format("{}, {}{}, {}{}, peak {}{:.0f} GFLOP/s", short_cpu_model(machine.cpu_model),
                  times, counted(static_cast<std::size_t>(machine.threads), "thread"),
                  runtime::name(machine.isa), machine.bf16 ? "" : " in fp32", times,
                  machine.peak_gflops));
}

std::string max_seq_length_line(std::int64_t asked, const Job& job) {
  const std::int64_t tokens = job.settings.max_seq_length;
  if (tokens == asked) return "";
  return fmt::format("--max_seq_length={}: the model takes at most {} tokens; using {}", asked,
                     tokens, tokens);
}

std::string data_line(const Job& job) {
  const Settings& s = job.settings;
  if (!s.do_train) {
    const auto& sets = s.do_eval ? job.evaluation_sets : job.prediction_sets;
    const std::string also =
        s.do_eval && s.do_predict ? fmt::format(", {} to predict", predicted(job)) : "";
    return line(
        log_lines::kData,
        fmt::format("{} to {} ({}){}",
                    counted(s.do_eval ? evaluated(job) : predicted(job), "example"),
                    s.do_eval ? "evaluate" : "predict", describe_lengths(sets.front().data), also));
  }
  std::string text = fmt::format("{} ({})", counted(job.train_data.size(), "example"),
                                 describe_lengths(job.train_data));
  if (s.do_eval) text += fmt::format(", {} to evaluate", evaluated(job));
  if (s.do_predict) text += fmt::format(", {} to predict", predicted(job));
  return line(log_lines::kData, text);
}

std::string columns_line(const Job& job) {
  const std::string layout = job.task->layout();
  return layout.empty() ? "" : line(log_lines::kColumns, layout);
}

std::string model_line(const Job& job) {
  const nn::EncoderConfig& encoder = job.model.encoder;
  return line(log_lines::kModel,
              fmt::format("{}, {} layers, hidden size {}, {:.1f} million parameters",
                          encoder.family->name, encoder.num_hidden_layers, encoder.hidden_size,
                          static_cast<double>(nn::ParameterLayout(encoder).count) * 1e-6));
}

std::string training_line(const Job& job) {
  const Settings& s = job.settings;
  return line(log_lines::kTraining,
              fmt::format("{} of {}, {}, {}{}",
                          counted(static_cast<std::size_t>(job.schedule.total_steps), "step"),
                          counted(static_cast<std::size_t>(s.global_batch), "example"),
                          counted(static_cast<std::size_t>(s.virtual_shards), "virtual shard"),
                          s.exact ? "exact" : "not exact",
                          s.run_name.empty() ? "" : ", run " + excerpt(s.run_name)));
}

std::string results_line(const EvaluationResult& evaluation) {
  return line(log_lines::kResults,
              fmt::format("{}; loss {:.4f}; {}", format_metrics(evaluation.metrics),
                          evaluation.loss, counted(evaluation.examples, "example")));
}

std::string evaluation_line(const EvaluationResult& evaluation, std::int64_t step) {
  return fmt::format("evaluation at step {}: {}; loss {:.4f}", step,
                     format_metrics(evaluation.metrics), evaluation.loss);
}

std::string baselines_line(const std::vector<tasks::Baseline>& baselines) {
  std::string text;
  for (const tasks::Baseline& baseline : baselines) {
    tasks::Metrics metrics = baseline.metrics;
    if (metrics.size() > 1) metrics.pop_back();
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : "; ", baseline.name, format_metrics(metrics));
  }
  return line(log_lines::kBaselines, text);
}

std::vector<std::string> speed_lines(const RankSpeeds& before, const RankSpeeds& now,
                                     const std::vector<std::string>& names, bool exact) {
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < now.speeds.size(); ++rank) {
    const RankSpeed& speed = now.speeds[rank];
    const bool was_slow = !before.speeds.empty() && before.speeds[rank].slow;
    const std::int64_t shards = now.split[rank].size();
    const std::int64_t shards_before = before.split[rank].size();
    if (speed.slow == was_slow && (!speed.slow || shards == shards_before)) continue;
    std::string consequence;
    if (!exact) {
      consequence = speed.slow ? ": shards move only with --exact" : "";
    } else if (shards == shards_before) {
      consequence = fmt::format(": keeps {} of {} shards", shards, now.split.back().end);
    } else {
      consequence =
          fmt::format(": now {} of {} shards, was {}", shards, now.split.back().end, shards_before);
    }
    lines.push_back(fmt::format("{}: {} is {}slow ({:.0f} ms per step, others {:.0f} ms){}",
                                log_lines::kSpeed, names[rank],
                                !speed.slow ? "no longer "
                                : was_slow  ? "still "
                                            : "",
                                1e3 * speed.seconds, 1e3 * speed.others_seconds, consequence));
  }
  return lines;
}

std::string continuation_line(const ContinuationSummary& c) {
  const auto list = [](const std::vector<rendezvous::WorkerProcess>& processes, const char* what) {
    std::string text;
    for (const rendezvous::WorkerProcess& process : processes) {
      text += (text.empty() ? "" : ", ") + rendezvous::to_string(process);
    }
    return text.empty() ? text : text + what;
  };
  std::string change = list(c.lost, c.after_loss ? " lost" : " left");
  if (change.empty() && c.after_loss) change = "a connection lost";
  if (c.steps_lost > 0) change += fmt::format(" in step {}, which runs again", c.step + 1);
  const std::string joined = list(c.joined, " joined");
  change += (change.empty() || joined.empty() ? "" : "; ") + joined;
  if (change.empty()) change = "no worker joined";
  std::string text = fmt::format(
      "{}: {}; {} after step {} in {:.2f} s (join {:.3f}, connect {:.3f}, agree {:.3f}, state "
      "{:.3f} s",
      c.after_loss ? log_lines::kRecovered : log_lines::kResized, change,
      c.workers == 1 ? "1 worker continues" : fmt::format("{} workers continue", c.workers), c.step,
      in_seconds(c.total), in_seconds(c.join), in_seconds(c.connect), in_seconds(c.agree),
      in_seconds(c.transfer));
  if (c.bytes > 0) {
    text += fmt::format(" for {}{} MB", c.in_background ? "a part of " : "",
                        (c.bytes + 500'000) / 1'000'000);
  }
  if (c.after_loss)
    text += fmt::format("; noticed {:.3f} s after the step began", in_seconds(c.noticed));
  return text + ")";
}

std::string state_sent_line(const std::vector<std::string>& names,
                            const std::vector<int>& receivers, std::int64_t first_step,
                            std::int64_t last_step) {
  std::vector<std::string> received;
  received.reserve(receivers.size());
  for (const int rank : receivers) received.push_back(names[static_cast<std::size_t>(rank)]);
  return fmt::format("{} {} the state: its rest was sent during step{}", fmt::join(received, ", "),
                     received.size() == 1 ? "has" : "have",
                     first_step == last_step ? fmt::format(" {}", last_step)
                                             : fmt::format("s {} to {}", first_step, last_step));
}

}  // namespace tilewright::train
