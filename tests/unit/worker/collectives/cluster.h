// Runs ranks for the tests of worker/collectives, as threads of this process or as child processes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/net/connect.h"
#include "tests/unit/common/net/relay.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/mesh.h"
#include "worker/collectives/streams.h"

namespace tilewright::collectives {

// Long enough that only a test that hangs reaches it.
inline MonotonicTime test_deadline() { return monotonic_now() + std::chrono::seconds(60); }

inline bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline net::SecretKey test_key(const std::string& text = "a secret of enough bytes") {
  return net::SecretKey::from_bytes(text).or_throw();
}

// How the ranks of a test are connected: over TCP, unless a fixture says otherwise. Tests that
// write to a connection or alter its bytes need TCP.
inline SharedMemory tested_links = SharedMemory::kNever;
inline int tested_streams = 1;
inline bool tested_gradient_memory = false;  // whether gradients are in shared memory, too
inline bool tested_background = false;       // whether meshes have Mesh::background()
inline std::uint64_t tested_epoch = 1;       // the membership epoch of run_ranks()

struct TestedLinks {
  SharedMemory shared_memory = SharedMemory::kNever;
  int streams = 1;
  bool gradient_memory = false;
};

// Runs a test over TCP, over shared memory with private and with shared gradients, and with several
// streams.
class WithLinks : public ::testing::TestWithParam<TestedLinks> {
 protected:
  WithLinks() {
    tested_links = GetParam().shared_memory;
    tested_streams = GetParam().streams;
    tested_gradient_memory = GetParam().gradient_memory;
  }
  ~WithLinks() override {
    tested_links = SharedMemory::kNever;
    tested_streams = 1;
    tested_gradient_memory = false;
  }
};

inline std::string name_of_links(const ::testing::TestParamInfo<TestedLinks>& tested) {
  return std::string(tested.param.shared_memory == SharedMemory::kNever ? "Tcp" : "SharedMemory") +
         (tested.param.gradient_memory ? "AndGradients" : "") +
         (tested.param.streams == 1 ? "" : std::to_string(tested.param.streams));
}

inline const auto kAllLinks = ::testing::Values(TestedLinks{SharedMemory::kNever, 1},
                                                TestedLinks{SharedMemory::kRequired, 1});
inline const auto kLinksWithStreams = ::testing::Values(
    TestedLinks{SharedMemory::kNever, 1}, TestedLinks{SharedMemory::kRequired, 1},
    TestedLinks{SharedMemory::kNever, 3}, TestedLinks{SharedMemory::kRequired, 2},
    TestedLinks{SharedMemory::kRequired, 1, true}, TestedLinks{SharedMemory::kRequired, 2, true});

struct Listeners {
  explicit Listeners(int world, bool with_tls = false) : tls(with_tls) {
    for (int rank = 0; rank < world; ++rank) {
      listeners.push_back(net::Listener::bind({"127.0.0.1", 0}).or_throw());
      addresses.push_back(listeners.back().local_address());
    }
  }
  MeshConfig config(int rank, std::uint64_t epoch = 1) const {
    MeshConfig made;
    made.job_uid = "job-1";
    made.epoch = epoch;
    made.rank = rank;
    for (std::size_t peer = 0; peer < addresses.size(); ++peer) {
      made.peers.push_back({addresses[peer], 100 + peer});
    }
    made.tls = tls;
    made.shared_memory = tested_links;
    return made;
  }
  bool tls;
  std::vector<net::Listener> listeners;
  std::vector<net::Address> addresses;
};

// The connection of a mesh over TCP, for tests that write to it themselves.
inline net::Socket& socket_of(Mesh& mesh, int peer) {
  return dynamic_cast<PeerTransport&>(mesh.transport()).socket(peer);
}

// With the tested number of streams.
inline std::unique_ptr<Mesh> connect(net::Listener& listener, const MeshConfig& config,
                                     const net::SecretKey& key) {
  auto mesh = build_mesh(listener, config, key, test_deadline());
  if (tested_streams > 1) {
    open_streams(*mesh, tested_streams, listener, key, test_deadline());
  }
  if (tested_background) {
    barrier(*mesh, test_deadline());  // all ranks have built their meshes
    add_background(*mesh, listener, key, test_deadline());
  }
  return mesh;
}

using RankBody = std::function<void(Mesh&)>;

// Runs `body` on every rank, each in a thread. Returns each rank's exception message, or "".
inline std::vector<std::string> run_ranks(int world, const RankBody& body, bool tls = false) {
  Listeners listeners(world, tls);
  const net::SecretKey key = test_key();
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto mesh = connect(listeners.listeners[rank],
                                  listeners.config(static_cast<int>(rank), tested_epoch), key);
        body(*mesh);
      } catch (const std::exception& problem) {
        errors[rank] = problem.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Runs `body` on two ranks. Rank 1 connects to rank 0 through a relay that records and can alter
// the bytes. Returns each rank's Failure, or "".
inline std::vector<std::string> through_relay(bool tls, net::Relay*& relay, const RankBody& body) {
  Listeners listeners(2, tls);
  net::Relay the_relay(listeners.addresses[0]);
  relay = &the_relay;
  const auto rank = [&](int which) {
    return std::async(std::launch::async, [&, which]() -> std::string {
      MeshConfig config = listeners.config(which);
      if (which == 1) config.peers[0].address = the_relay.address();
      try {
        body(*build_mesh(listeners.listeners[static_cast<std::size_t>(which)], config, test_key(),
                         test_deadline()));
        return "";
      } catch (const Failure& failure) {
        return failure.what();
      }
    });
  };
  auto zero = rank(0), one = rank(1);
  return {zero.get(), one.get()};
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(errors[rank], "") << "rank " << rank;
  }
}

// A rank in a child process that reports lines on a pipe. `body` returns the exit code.
class RankProcess {
 public:
  using Body = std::function<int(int report_fd)>;
  explicit RankProcess(const Body& body) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      int code = 99;
      try {
        code = body(ends[1]);
      } catch (const std::exception& problem) {
        report(ends[1], problem.what());
      }
      _exit(code);
    }
    close(ends[1]);
    pipe_ = FileDescriptor(ends[0]);
  }
  ~RankProcess() { kill_now(); }
  RankProcess(RankProcess&&) = delete;

  static void report(int fd, const std::string& line) {
    const std::string text = line + "\n";
    if (write(fd, text.data(), text.size()) < 0) _exit(98);
  }

  // The next line, "" if the process ended.
  std::string line() {
    std::string text;
    char one = 0;
    while (net::wait_ready(pipe_.get(), POLLIN, test_deadline()) == net::Ready::kYes &&
           read(pipe_.get(), &one, 1) == 1 && one != '\n') {
      text += one;
    }
    return text;
  }
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  FileDescriptor pipe_;
};

}  // namespace tilewright::collectives
