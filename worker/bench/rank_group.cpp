#include "worker/bench/rank_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"
#include "worker/collectives/streams.h"

namespace tilewright::bench {
namespace {

constexpr Duration kConnectTimeout = std::chrono::minutes(1);

float summand(std::int64_t index, int rank, int bits) {
  return static_cast<float>((index * 7919 + index / 65536 + 31 * rank) & ((1 << bits) - 1));
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// noexcept: an exception would leave the child process with the parent's stack.
std::string report_of(const std::function<std::string(int)>& body, int rank) noexcept {
  ExitCode code = ExitCode::kInternal;
  std::string message;
  try {
    return nlohmann::json{{"result", body(rank)}}.dump();
  } catch (const Failure& failure) {
    code = failure.code();
    message = failure.what();
  } catch (const std::exception& problem) {
    message = problem.what();
  }
  return nlohmann::json{{"code", code}, {"message", message}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Ranks {
 public:
  Ranks() = default;
  ~Ranks() {
    for (const One& one : ranks_) kill(one.pid, SIGKILL);
    for (const One& one : ranks_) waitpid(one.pid, nullptr, 0);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start(const std::function<std::string(int)>& body) {
    const auto rank = static_cast<int>(ranks_.size());
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Failure(ExitCode::kInternal, "cannot create a pipe");
    FileDescriptor output(ends[0]);
    const FileDescriptor input(ends[1]);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) throw Failure(ExitCode::kInternal, "fork failed");
    if (child > 0) {
      ranks_.push_back({child, std::move(output)});
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    write_all(input.get(), report_of(body, rank));
    _exit(0);
  }

  // Waits for all ranks. The others report a lost peer when one has failed, so another failure is
  // the first.
  std::vector<std::string> results() {
    std::vector<std::string> results;
    std::optional<Error> failure;
    for (const One& one : ranks_) {
      const std::string text = read_all(one.output.get());
      const auto report = nlohmann::json::parse(text, nullptr, false);
      if (report.is_object() && report.contains("result")) {
        results.push_back(report["result"]);
        continue;
      }
      const Error error =
          report.is_object()
              ? Error{report["code"].get<ExitCode>(), report["message"].get<std::string>()}
              : Error{ExitCode::kInternal, fmt::format("rank {} was killed", &one - ranks_.data())};
      if (!failure || failure->code == ExitCode::kPeerLost) failure = error;
    }
    if (failure) throw Failure(*failure);
    return results;
  }

 private:
  struct One {
    pid_t pid;
    FileDescriptor output;
  };
  std::vector<One> ranks_;
};

}  // namespace

collectives::MeshConfig RankGroup::config(int rank, collectives::SharedMemory shared_memory) const {
  collectives::MeshConfig config;
  config.job_uid = "bench";
  config.rank = rank;
  for (const net::Listener& listener : listeners_) {
    config.peers.push_back({listener.local_address(), config.peers.size() + 1});
  }
  config.shared_memory = shared_memory;
  return config;
}

std::unique_ptr<collectives::Mesh> RankGroup::connect(int rank,
                                                      collectives::SharedMemory shared_memory,
                                                      int streams) {
  net::Listener& listener = listeners_[static_cast<std::size_t>(rank)];
  const MonotonicTime deadline = monotonic_now() + kConnectTimeout;
  auto mesh = collectives::build_mesh(listener, config(rank, shared_memory), key_, deadline);
  collectives::open_streams(*mesh, streams, listener, key_, deadline);
  return mesh;
}

std::vector<std::string> run_ranks(int ranks, const std::function<std::string(int rank)>& body) {
  Ranks running;
  for (int rank = 0; rank < ranks; ++rank) running.start(body);
  return running.results();
}

void fill_summands(std::span<float> values, int rank, int bits) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = summand(static_cast<std::int64_t>(i), rank, bits);
  }
}

void check_sums(std::span<const float> values, int ranks, std::int64_t stride, int bits) {
  for (std::int64_t i = 0; i < std::ssize(values); i += stride) {
    float expected = 0;
    for (int rank = 0; rank < ranks; ++rank) expected += summand(i, rank, bits);
    const float found = values[static_cast<std::size_t>(i)];
    if (found != expected) {
      throw Failure(ExitCode::kInternal, fmt::format("sum {} of {} is {}, expected {}", i,
                                                     values.size(), found, expected));
    }
  }
}

}  // namespace tilewright::bench
