#include "worker/bench/allreduce_bench.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/base/result.h"
#include "common/net/connect.h"
#include "common/net/secret.h"
#include "worker/bench/statistics.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/mesh.h"
#include "worker/collectives/reducer.h"
#include "worker/runtime/cpu.h"

namespace tilewright::bench {
namespace {

using collectives::Range;

constexpr Duration kTimeout = std::chrono::minutes(5);

MonotonicTime deadline() { return monotonic_now() + kTimeout; }

// The addresses and the secret, made before the ranks are started.
struct Group {
  explicit Group(int ranks) : key(net::SecretKey::random()) {
    for (int rank = 0; rank < ranks; ++rank) {
      listeners.push_back(net::Listener::bind({"127.0.0.1", 0}).or_throw());
    }
  }
  std::unique_ptr<collectives::Mesh> connect(int rank, const std::string& transport) {
    collectives::MeshConfig config;
    config.job_uid = "bench";
    config.rank = rank;
    for (const net::Listener& listener : listeners) {
      config.peers.push_back({listener.local_address(), config.peers.size() + 1});
    }
    config.shared_memory = transport == "shm" ? collectives::SharedMemory::kRequired
                                              : collectives::SharedMemory::kNever;
    return collectives::build_mesh(listeners[static_cast<std::size_t>(rank)], config, key,
                                   deadline());
  }
  net::SecretKey key;
  std::vector<net::Listener> listeners;
};

// An integer below 2^16, so that sums of a few ranks are exact; it differs between ranks and places.
float element(std::int64_t index, int rank) {
  return static_cast<float>((index * 7919 + index / 65536 + 31 * rank) & 0xffff);
}

// Sums in place and checks each sum. Returns the median in seconds.
double time_sums(collectives::Mesh& mesh, std::int64_t count, int repetitions) {
  runtime::Buffer<float> gradients(static_cast<std::size_t>(count));
  const int world = mesh.world();
  collectives::Reducer reducer(mesh, collectives::even_split(world, world), world);
  const collectives::GradientParts parts{
      .count = count,
      .parts = {{reducer.local_parts().front(), gradients.data()}},
      .sum = gradients.data()};
  const std::vector<Range> buckets{{0, count}};
  const auto sum = [&] {
    reducer.begin_step(parts, buckets);
    reducer.start(0);
    reducer.wait(deadline());
  };
  std::vector<double> times;
  for (int run = -1; run < repetitions; ++run) {
    for (std::int64_t i = 0; i < count; ++i) gradients.data()[i] = element(i, mesh.rank());
    collectives::barrier(mesh, deadline());
    const double time = seconds(sum);
    if (run >= 0) times.push_back(time);
    for (std::int64_t i = 0; i < count; ++i) {
      float expected = 0;
      for (int rank = 0; rank < world; ++rank) expected += element(i, rank);
      if (gradients.data()[i] != expected) {
        throw Failure(ExitCode::kInternal, fmt::format("sum {} of {} is {}, expected {}", i, count,
                                                       gradients.data()[i], expected));
      }
    }
  }
  return median(times);
}

std::vector<double> run_rank(Group& group, int rank, const AllreduceBenchOptions& options) {
  const auto mesh = group.connect(rank, options.transport);
  std::vector<double> times;
  for (const double megabytes : options.megabytes) {
    const auto count = static_cast<std::int64_t>(megabytes * (1 << 20) / sizeof(float));
    times.push_back(time_sums(*mesh, count, options.repetitions));
  }
  return times;
}

// The other ranks. They end with this process.
class Children {
 public:
  void start(Group& group, int rank, const AllreduceBenchOptions& options) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) throw Failure(ExitCode::kInternal, "fork failed");
    if (child > 0) {
      pids_.push_back(child);
      return;
    }
    int code = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    try {
      run_rank(group, rank, options);
    } catch (const std::exception& problem) {
      fmt::print(stderr, "rank {}: {}\n", rank, problem.what());
      code = 1;
    }
    _exit(code);
  }
  ~Children() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace

AllreduceBench bench_allreduce(const AllreduceBenchOptions& options) {
  Group group(options.ranks);
  Children children;
  for (int rank = 1; rank < options.ranks; ++rank) children.start(group, rank, options);
  const std::vector<double> times = run_rank(group, 0, options);
  AllreduceBench bench{runtime::detect_cpu().model, options.ranks, options.transport, {}};
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double megabytes = options.megabytes[i];
    bench.rows.push_back({megabytes, times[i] * 1e3, megabytes / 1024 / times[i]});
  }
  return bench;
}

std::string AllreduceBench::to_json() const {
  nlohmann::ordered_json json{{"cpu", cpu}, {"ranks", ranks}, {"transport", transport}};
  for (const AllreduceBenchRow& row : rows) {
    json["rows"].push_back({{"megabytes", row.megabytes},
                            {"milliseconds", row.milliseconds},
                            {"gigabytes_per_second", row.gigabytes_per_second}});
  }
  return json.dump(2) + "\n";
}

std::string AllreduceBench::to_text() const {
  std::string text = fmt::format("{}, {} ranks, {}\n{:>10} {:>12} {:>8}\n", cpu, ranks, transport,
                                 "MiB", "ms", "GiB/s");
  for (const AllreduceBenchRow& row : rows) {
    text += fmt::format("{:>10.4g} {:>12.3f} {:>8.2f}\n", row.megabytes, row.milliseconds,
                        row.gigabytes_per_second);
  }
  return text;
}

}  // namespace tilewright::bench
