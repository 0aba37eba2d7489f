#include "worker/bench/scaling_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <thread>

#include "common/base/clock.h"
#include "common/base/strings.h"
#include "common/contract/virtual_shards.h"
#include "common/host/host.h"
#include "worker/bench/emulated_network.h"
#include "worker/bench/rank_group.h"
#include "worker/bench/slowed_transport.h"
#include "worker/bench/statistics.h"
#include "worker/bench/training_setup.h"
#include "worker/collectives/buckets.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/hosts.h"
#include "worker/collectives/reducer.h"
#include "worker/collectives/sum.h"
#include "worker/runtime/available_memory.h"
#include "worker/runtime/memory.h"

namespace tilewright::bench {
namespace {

using collectives::Range;

// Of a rank besides its gradient: receive buffers of the Reducer and the kernel, code and stacks.
constexpr std::uint64_t kRankBytes = 64 << 20;
constexpr Duration kTimeout = std::chrono::hours(6);
// A stopped machine is no lost peer.
constexpr Duration kIdleTimeout = std::chrono::minutes(10);
// Runs of the computation for each repetition; they take less time than an emulated step.
constexpr int kComputationRuns = 3;
// Elements of the gradient that a thread rounds at once.
constexpr std::int64_t kRoundGrain = 1 << 16;
// Of summands, whose sums over all nodes are bf16 numbers.
constexpr int kBf16SummandBits = 2;
static_assert(((1 << kBf16SummandBits) - 1) * kMaxNodes <= 256);
// Sums are checked at each of these elements, so in each chunk.
constexpr std::int64_t kCheckStride = 1009;

MonotonicTime deadline() { return monotonic_now() + kTimeout; }

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What is emulated for one number of nodes.
struct Plan {
  int nodes = 1;
  std::int64_t shards = 1;          // of all nodes
  std::vector<std::int32_t> words;  // ids of the global batch
  std::int64_t elements = 0;        // of the gradient, with what training appends
  std::int64_t bf16_count = 0;      // of GradientParts
  std::vector<Range> buckets;
  std::vector<StepTimeline> timelines;
};

Plan make_plan(const ScalingBenchOptions& options, int nodes) {
  const Workload& workload = options.workload;
  Plan plan;
  plan.nodes = nodes;
  Workload global = workload;
  global.lengths.clear();
  for (int node = 0; node < nodes; ++node) {
    global.lengths.insert(global.lengths.end(), workload.lengths.begin(), workload.lengths.end());
  }
  plan.shards =
      options.bf16_gradients ? nodes : choose_virtual_shards(std::ssize(global.lengths), nodes);
  plan.words = random_batch(global, 1).ids;
  const nn::EncoderConfig config = model_config(workload);
  nn::TouchedRows touched(config.vocab_size);
  touched.mark(plan.words);
  const std::int64_t parameters =
      nn::ParameterLayout(config).word_embeddings + touched.R() * config.hidden_size;
  // The loss; the stop request and the times of the nodes (worker/train/step.h).
  plan.elements = parameters + 1 + 1 + nodes;
  plan.bf16_count = options.bf16_gradients ? parameters : 0;
  collectives::split_into_buckets(plan.elements, plan.bf16_count, plan.buckets);
  return plan;
}

std::vector<Plan> make_plans(const ScalingBenchOptions& options) {
  std::vector<Plan> plans;
  for (const int nodes : options.nodes) plans.push_back(make_plan(options, nodes));
  return plans;
}

void check_memory(const Plan& plan) {
  const std::uint64_t needed =
      static_cast<std::uint64_t>(plan.nodes) *
      (static_cast<std::uint64_t>(plan.elements) * sizeof(float) + kRankBytes);
  const std::uint64_t available = runtime::available_memory();
  if (plan.nodes == 1 || needed <= available) return;
  throw Failure(
      ExitCode::kMemory,
      fmt::format("the gradients of {} nodes need {:.1f} GB of memory, {:.1f} GB are available; "
                  "use fewer --nodes or a smaller --model",
                  plan.nodes, 1e-9 * static_cast<double>(needed),
                  1e-9 * static_cast<double>(available)));
}

// Measures the computation of all plans in alternation.
template <typename Activation>
void measure(const ScalingBenchOptions& options, runtime::Isa isa, ScalingBench& bench,
             std::vector<Plan>& plans) {
  TrainingSetup<Activation> setup(options.workload, isa, plans.front().shards);
  bench.threads = setup.pool().size();
  for (int run = -1; run < options.repetitions * kComputationRuns; ++run) {
    for (Plan& plan : plans) {
      const nn::Batch batch = random_batch(options.workload, plan.shards / plan.nodes);
      setup.set_global_words(plan.words);
      std::vector<GradientReady> events;
      events.reserve(100);
      StepTimeline timeline;
      const MonotonicTime begin = monotonic_now();
      setup.compute(batch, [&](std::int64_t gradient_begin, std::int64_t end) {
        if (end <= plan.bf16_count) {
          setup.pool().for_ranges(end - gradient_begin, kRoundGrain, [&](auto from, auto to) {
            collectives::round_to_bf16(setup.gradient().data() + gradient_begin + from, to - from);
          });
        }
        events.push_back({end, in_seconds(monotonic_now() - begin)});
      });
      timeline.compute = in_seconds(monotonic_now() - begin);
      timeline.update = seconds([&] { setup.update(); });
      timeline.bucket_ready = bucket_times(plan.buckets, events, timeline.compute);
      if (run >= 0) plan.timelines.push_back(std::move(timeline));
    }
  }
}

// What a rank reports. By repetition, in seconds of this machine.
struct RankTimes {
  std::vector<double> exchange, exposed, step, cpu;
  double load = 0;  // CPUs that the process used in the timed steps, of itself and the kernel
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTimes, exchange, exposed, step, cpu, load)

// One node: the exchange alone, then steps with a computation that takes the times of `timeline`.
class Rank {
 public:
  Rank(collectives::Mesh& mesh, const collectives::MeshConfig& config, const Plan& plan,
       const StepTimeline& timeline, double slowdown)
      : mesh_(mesh),
        plan_(plan),
        timeline_(timeline),
        slowdown_(slowdown),
        gradient_(static_cast<std::size_t>(plan.elements)) {
    for (int stream = 0; stream < mesh.streams(); ++stream) {
      auto slowed = std::make_unique<SlowedTransport>(mesh.stream(stream).transport(), slowdown);
      transports_.push_back(slowed.get());
      auto slowed_stream = std::make_unique<collectives::Mesh>(config, std::move(slowed));
      if (stream == 0) {
        slowed_mesh_ = std::move(slowed_stream);
      } else {
        slowed_mesh_->add_stream(std::move(slowed_stream));
      }
    }
    const auto shards = static_cast<int>(plan.shards);
    collectives::ReducerOptions options;
    options.idle_timeout = kIdleTimeout;
    options.chunk_elements = collectives::chunk_elements_for(mesh.world());
    reducer_ = std::make_unique<collectives::Reducer>(
        *slowed_mesh_, collectives::even_split(mesh.world(), shards), shards, options);
    parts_.count = plan.elements;
    parts_.bf16_count = plan.bf16_count;
    parts_.parts = {{reducer_->local_parts().front(), gradient_.data()}};
    parts_.sum = gradient_.data();
  }

  RankTimes run(int repetitions) {
    RankTimes times;
    const int bits = plan_.bf16_count > 0 ? kBf16SummandBits : kSummandBits;
    fill_summands(gradient_.span(), mesh_.rank(), bits);
    collectives::barrier(mesh_, deadline());
    exchange();
    check_sums(gradient_.span(), mesh_.world(), kCheckStride, bits);
    std::ranges::fill(gradient_.span(), 0.0f);  // stays zero in further sums
    for (int i = 0; i < repetitions; ++i) {
      collectives::barrier(mesh_, deadline());
      times.exchange.push_back(seconds([&] { exchange(); }));
    }
    collectives::barrier(mesh_, deadline());
    RankTimes warm_up;
    step(warm_up);
    const double cpu = process_cpu_seconds();
    const MonotonicTime begin = monotonic_now();
    for (int i = 0; i < repetitions; ++i) step(times);
    times.load = (process_cpu_seconds() - cpu) / in_seconds(monotonic_now() - begin);
    collectives::barrier(mesh_, deadline());
    return times;
  }

 private:
  void exchange() {
    reducer_->begin_step(parts_, plan_.buckets);
    for (int i = 0; i < static_cast<int>(plan_.buckets.size()); ++i) reducer_->start(i);
    reducer_->wait(deadline());
  }

  // `seconds` of the hosts after `begin`.
  void sleep_until(MonotonicTime begin, double seconds) const {
    std::this_thread::sleep_until(begin + std::chrono::duration_cast<Duration>(
                                              std::chrono::duration<double>(seconds * slowdown_)));
  }

  void step(RankTimes& times) {
    const double cpu = communication_cpu_seconds();
    const MonotonicTime begin = monotonic_now();
    reducer_->begin_step(parts_, plan_.buckets);
    for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
      sleep_until(begin, timeline_.bucket_ready[i]);
      reducer_->start(static_cast<int>(i));
    }
    sleep_until(begin, timeline_.compute);
    reducer_->wait(deadline());
    const MonotonicTime exchanged = monotonic_now();
    times.exposed.push_back(in_seconds(monotonic_now() - begin) - timeline_.compute * slowdown_);
    sleep_until(exchanged, timeline_.update);
    times.step.push_back(in_seconds(monotonic_now() - begin));
    times.cpu.push_back(communication_cpu_seconds() - cpu);
  }

  double communication_cpu_seconds() const {
    double sum = 0;
    for (const SlowedTransport* transport : transports_) sum += transport->cpu_seconds();
    return sum;
  }

  collectives::Mesh& mesh_;
  const Plan& plan_;
  const StepTimeline& timeline_;
  const double slowdown_;
  runtime::Buffer<float> gradient_;
  std::unique_ptr<collectives::Mesh> slowed_mesh_;
  std::vector<const SlowedTransport*> transports_;  // of its streams
  std::unique_ptr<collectives::Reducer> reducer_;
  collectives::GradientParts parts_;
};

// The median over the repetitions of the slowest rank's time.
double median_of_slowest(const std::vector<RankTimes>& ranks,
                         std::vector<double> RankTimes::*times) {
  std::vector<double> slowest = ranks.front().*times;
  for (const RankTimes& rank : ranks) {
    for (std::size_t i = 0; i < slowest.size(); ++i) {
      slowest[i] = std::max(slowest[i], (rank.*times)[i]);
    }
  }
  return median(std::move(slowest));
}

void emulate(const ScalingBenchOptions& options, const Plan& plan, const StepTimeline& timeline,
             int cpus, ScalingRow& row) {
  const EmulatedNetwork network(plan.nodes, options.link_rate / options.slowdown);
  std::vector<net::Listener> listeners;
  listeners.reserve(static_cast<std::size_t>(plan.nodes));
  for (int node = 0; node < plan.nodes; ++node) listeners.push_back(network.listen(node));
  RankGroup group(std::move(listeners));
  constexpr auto kTcp = collectives::SharedMemory::kNever;
  const std::vector<std::string> results = run_ranks(plan.nodes, [&](int node) {
    network.enter(node);
    const auto mesh = group.connect(node, kTcp, options.streams);
    Rank rank(*mesh, group.config(node, kTcp), plan, timeline, options.slowdown);
    return nlohmann::json(rank.run(options.repetitions)).dump();
  });
  std::vector<RankTimes> ranks;
  std::vector<double> cpu;
  for (const std::string& result : results) {
    ranks.push_back(nlohmann::json::parse(result).get<RankTimes>());
    cpu.push_back(median(ranks.back().cpu));
    row.machine_load += ranks.back().load / cpus;
  }
  row.exchange = median_of_slowest(ranks, &RankTimes::exchange) / options.slowdown;
  row.exposed = median_of_slowest(ranks, &RankTimes::exposed) / options.slowdown;
  row.step = median_of_slowest(ranks, &RankTimes::step) / options.slowdown;
  row.communication_cpu = *std::ranges::max_element(cpu);
}

// Sorts the numbers of nodes and adds one node, to which the others are compared.
void check_nodes(std::vector<int>& nodes) {
  for (const int one : nodes) {
    if (one < 1 || one > kMaxNodes || !std::has_single_bit(static_cast<unsigned>(one))) {
      throw Failure(
          ExitCode::kUsage,
          fmt::format("--nodes: found {}, expected powers of two from 1 to {}", one, kMaxNodes));
    }
  }
  nodes.push_back(1);
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

}  // namespace

ScalingBench bench_scaling(const ScalingBenchOptions& options, runtime::Isa isa) {
  ScalingBenchOptions resolved = options;
  check_nodes(resolved.nodes);
  const auto cpus = static_cast<int>(host::allowed_cpus().size());
  if (resolved.slowdown == 0) {
    resolved.slowdown =
        default_slowdown(resolved.nodes.back(), resolved.streams, cpus, resolved.link_rate);
  }
  std::vector<Plan> plans = make_plans(resolved);
  check_memory(plans.back());
  if (resolved.nodes.back() > 1) EmulatedNetwork::check_supported();
  // The model's memory is free before the ranks start.
  auto bench =
      run_workload<ScalingBench>(resolved, isa, [&]<typename Activation>(ScalingBench& run) {
        measure<Activation>(resolved, isa, run, plans);
      });
  for (const Plan& plan : plans) {
    const StepTimeline timeline = faster(shortest_timeline(plan.timelines), resolved.host_speed);
    ScalingRow& row = bench.rows.emplace_back();
    row.nodes = plan.nodes;
    row.shards = plan.shards;
    row.gradient_bytes =
        static_cast<std::int64_t>(sizeof(float)) * (plan.elements - plan.bf16_count) +
        static_cast<std::int64_t>(sizeof(runtime::bf16)) * plan.bf16_count;
    row.compute = timeline.compute;
    row.update = timeline.update;
    row.step = timeline.step();
    if (plan.nodes > 1) emulate(resolved, plan, timeline, cpus, row);
  }
  compare_with_one_node(bench.rows, bench.threads * resolved.host_speed);
  return bench;
}

std::string ScalingBench::to_json() const {
  nlohmann::ordered_json json = json_of("scaling", options.workload);
  json["link_bits_per_second"] = options.link_rate;
  json["slowdown"] = options.slowdown;
  json["host_speed"] = options.host_speed;
  json["ddp_streams"] = options.streams;
  json["ddp_comm_hook"] = options.bf16_gradients ? "bf16" : "no";
  json["repetitions"] = options.repetitions;
  for (const ScalingRow& row : rows) {
    json["nodes"].push_back(
        {{"nodes", row.nodes},
         {"virtual_shards", row.shards},
         {"gradient_bytes", row.gradient_bytes},
         {"compute_seconds", row.compute},
         {"update_seconds", row.update},
         {"exchange_seconds", row.exchange},
         {"exposed_seconds", row.exposed},
         {"hidden_share", row.hidden_share()},
         {"step_seconds", row.step},
         {"examples_per_second",
          row.nodes * static_cast<double>(options.workload.lengths.size()) / row.step},
         {"speedup", row.speedup},
         {"efficiency", row.efficiency},
         {"communication_cpu_seconds", row.communication_cpu},
         {"shared_cores_step_seconds", row.shared_step},
         {"shared_cores_efficiency", row.shared_efficiency},
         {"machine_load", row.machine_load}});
  }
  for (const PublishedScaling& other : published_scaling()) {
    json["published"].push_back({{"nodes", other.nodes},
                                 {"speedup", other.speedup},
                                 {"efficiency", other.efficiency()},
                                 {"what", other.what}});
  }
  return json.dump(2) + "\n";
}

std::string ScalingBench::to_text() const {
  std::string text = fmt::format(
      "{} {} {} on {} of {}, links of {}\n"
      "links, computation and communication threads slowed {:g} times, times divided by it\n",
      options.workload.description(), name(options.workload.precision), isa,
      counted(static_cast<std::size_t>(threads), "thread"), cpu,
      format_link_rate(options.link_rate), options.slowdown);
  if (options.streams > 1) {
    text += fmt::format("{} communication threads per node\n", options.streams);
  }
  if (options.bf16_gradients) text += "gradients rounded to bf16 and sent as such\n";
  if (options.host_speed != 1) {
    text += fmt::format("hosts that compute {:g} times as fast\n", options.host_speed);
  }
  text += fmt::format(
      "{:>5} {:>6} {:>7} {:>9} {:>8} {:>10} {:>9} {:>6} {:>8} {:>8} {:>10} {:>7} {:>6} {:>5}\n",
      "nodes", "shards", "MB", "compute s", "update s", "exchange s", "exposed s", "hidden",
      "step s", "speedup", "efficiency", "CPU s", "shared", "load");
  for (const ScalingRow& row : rows) {
    text += fmt::format(
        "{:>5} {:>6} {:>7.0f} {:>9.4f} {:>8.4f} {:>10.4f} {:>9.4f} {:>4.0f} % {:>8.4f} {:>6.2f} x "
        "{:>8.1f} % {:>7.3f} {:>4.0f} % {:>3.0f} %\n",
        row.nodes, row.shards, 1e-6 * static_cast<double>(row.gradient_bytes), row.compute,
        row.update, row.exchange, row.exposed, 100 * row.hidden_share(), row.step, row.speedup,
        100 * row.efficiency, row.communication_cpu, 100 * row.shared_efficiency,
        100 * row.machine_load);
  }
  text +=
      "exchange: of the complete gradient, alone; exposed: of it in a step, after backward\n"
      "CPU: of a node's communication thread in a step; shared: efficiency if that thread takes "
      "its CPU time from the threads that compute; load: of this machine while the steps ran\n"
      "Published for other programs, hosts and networks:\n";
  for (const PublishedScaling& other : published_scaling()) {
    text += fmt::format("{:>5} nodes {:>6.2f} x {:>6.0f} %  {}\n", other.nodes, other.speedup,
                        100 * other.efficiency(), other.what);
  }
  return text;
}

}  // namespace tilewright::bench
