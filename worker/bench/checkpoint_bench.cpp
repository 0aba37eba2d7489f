#include "worker/bench/checkpoint_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/strings.h"
#include "worker/bench/statistics.h"
#include "worker/bench/training_setup.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/checkpoint/state_copy.h"
#include "worker/runtime/background_task.h"

namespace tilewright::bench {
namespace {

constexpr const char* kJobUid = "bench-checkpoint";

template <typename Activation>
void run(const CheckpointBenchOptions& options, runtime::Isa isa, CheckpointBench& bench) {
  TrainingSetup<Activation> setup(options.workload, isa, 1);
  const nn::Batch batch = random_batch(options.workload, 1);
  nn::Optimizer<Activation>& optimizer = setup.optimizer();
  const nn::ParameterLayout& layout = setup.model().layout();
  const std::span<float> weights = setup.model().parameters();
  const auto output =
      checkpoint::acquire_output_dir(options.directory / kJobUid, {kJobUid, {}, false});
  const auto write = [&](const checkpoint::TrainingTensors& tensors, std::int64_t step) {
    checkpoint::CheckpointContent content;
    content.state.global_step = step;
    content.tensors = tensors;
    checkpoint::write_checkpoint(output, content);
    checkpoint::prune(output, 1);
  };
  const auto step = [&] { setup.step(batch); };
  step();
  checkpoint::StateCopy copy(weights.size());
  bench.touch = seconds([&] { copy.touch_pages(); });
  runtime::BackgroundTask task;
  std::vector<double> plain;
  std::int64_t checkpoints = 0;
  MonotonicTime committed;
  for (int i = 0; i < options.repetitions; ++i) {
    plain.push_back(seconds(step));
    bench.between_steps.push_back(seconds([&] {
      write(checkpoint::training_tensors(layout, weights.data(), optimizer.exp_avg().data(),
                                         optimizer.exp_avg_sq().data()),
            ++checkpoints);
    }));
    plain.push_back(seconds(step));
    bench.copy.push_back(seconds([&] {
      const auto& kept = std::as_const(optimizer);
      copy.take({weights, kept.exp_avg(), kept.exp_avg_sq()}, setup.pool(),
                setup.plain_parameter_ops());
      task.start([&, number = ++checkpoints] {
        write(copy.tensors(layout), number);
        committed = monotonic_now();
      });
    }));
    const MonotonicTime copied = monotonic_now();
    int steps = 0;
    double during = 0;
    for (; !task.wait({}); ++steps) during += seconds(step);
    bench.write.push_back(in_seconds(committed - copied));
    bench.slowdown.push_back(during - steps * median(plain));
  }
  bench.threads = setup.pool().size();
  bench.bytes = static_cast<double>(checkpoint::StateCopy::bytes(weights.size()));
  bench.plain_step = median(plain);
}

}  // namespace

CheckpointBench bench_checkpoint(const CheckpointBenchOptions& options, runtime::Isa isa) {
  return run_workload<CheckpointBench>(
      options, isa,
      [&]<typename Activation>(CheckpointBench& bench) { run<Activation>(options, isa, bench); });
}

std::string CheckpointBench::to_json() const {
  nlohmann::ordered_json json = json_of("checkpoint", options.workload);
  json["bytes"] = bytes;
  json["seconds_between_steps"] = between_steps;
  json["median_seconds_between_steps"] = median(between_steps);
  json["copy_seconds"] = copy;
  json["median_copy_seconds"] = median(copy);
  json["write_seconds"] = write;
  json["median_write_seconds"] = median(write);
  json["slowdown_seconds"] = slowdown;
  json["median_slowdown_seconds"] = median(slowdown);
  json["median_step_seconds"] = plain_step;
  json["first_touch_seconds"] = touch;
  return json.dump(2) + "\n";
}

std::string CheckpointBench::to_text() const {
  return fmt::format(
      "checkpoints of {}, {:.2f} GB, {} on {}: the training stops for {:.0f} ms (maximum "
      "{:.0f}) while the state is copied; written in {:.1f} s, in which steps of {:.2f} s take "
      "{:.2f} s more; without the copy the training stops for {:.1f} s; first touch of the copy "
      "{:.2f} s\n",
      options.workload.description(), bytes * 1e-9, isa,
      counted(static_cast<std::size_t>(threads), "thread"), 1e3 * median(copy),
      1e3 * *std::ranges::max_element(copy), median(write), plain_step, median(slowdown),
      median(between_steps), touch);
}

}  // namespace tilewright::bench
