// Tests the errors of ranks when another rank dies, stalls or violates the protocol in a step.
// Ranks are processes; a rank reports "at <fault point>" or its Failure on a pipe.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <optional>

#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/collectives/reference.h"
#include "tests/unit/worker/collectives/tested_reducer.h"
#include "worker/collectives/reducer.h"

namespace tilewright::collectives {
namespace {

constexpr int kGradientShards = 8;
constexpr std::int64_t kCount = 100'000;

std::string place(const std::string& name) { return "at " + name; }

// Runs steps until killed or failed. At fault point `stop_at` it reports the point and stops, with
// its sockets open. Rank 2 leaves the transfer to its communication threads.
int run_rank(Listeners& listeners, int rank, int fd, const std::string& stop_at) {
  // Close the listeners of the other ranks, which a real rank does not have.
  for (int other = 0; other < static_cast<int>(listeners.listeners.size()); ++other) {
    if (other != rank) auto gone = std::move(listeners.listeners[static_cast<std::size_t>(other)]);
  }
  const auto mesh = connect(listeners.listeners[static_cast<std::size_t>(rank)],
                            listeners.config(rank), test_key());
  ReducerOptions options;
  options.chunk_elements = 5'000;
  std::atomic<int> hits = 0;
  options.faults.hook = [&](const char* name) {
    if (stop_at != name || ++hits < 3) return;  // in the middle of the second step
    RankProcess::report(fd, place(name));
    while (true) pause();
  };
  const std::vector<Range> buckets{{kCount / 2, kCount}, {0, kCount / 2}};
  try {
    TestedReducer reducer(*mesh, even_split(mesh->world(), kGradientShards), kGradientShards,
                          kCount, options);
    LocalParts own = reducer.parts(shard_gradients(kGradientShards, kCount));
    while (true) {  // each step sums the result of the previous one; the values do not matter
      reducer.begin_step(own.view, buckets);
      reducer.start(0);
      if (rank == 2) {
        reducer.start(1);
        reducer.wait(test_deadline());
      } else {
        reducer.finish(test_deadline());
      }
    }
  } catch (const Failure& failure) {
    RankProcess::report(fd, failure.code() == ExitCode::kPeerLost
                                ? failure.what()
                                : std::string("another code: ") + failure.what());
    // Keep the connections open until the test has read the reports of all ranks.
    while (true) pause();
  }
}

enum class Links { kTcp, kTls, kSharedMemory, kGradientMemory, kStreams };
class RankDeath : public ::testing::TestWithParam<std::tuple<std::string, Links>> {
 protected:
  RankDeath() {
    const Links links = std::get<1>(GetParam());
    tested_gradient_memory = links == Links::kGradientMemory;
    if (tested_gradient_memory || links == Links::kSharedMemory) {
      tested_links = SharedMemory::kRequired;
    }
    if (links == Links::kStreams) tested_streams = 2;
  }
  ~RankDeath() override {
    tested_links = SharedMemory::kNever;
    tested_streams = 1;
    tested_gradient_memory = false;
  }
};

TEST_P(RankDeath, AtAnyFaultPointIsReportedByEveryOtherRank) {
  const auto [point, links] = GetParam();
  Listeners listeners(4, links == Links::kTls);
  const auto rank = [&listeners, point = point](int which) {
    return [&listeners, which, point](int fd) {
      return run_rank(listeners, which, fd, which == 1 ? point : "");
    };
  };
  RankProcess zero(rank(0)), one(rank(1)), two(rank(2)), three(rank(3));
  ASSERT_EQ(one.line(), place(point));
  const MonotonicTime killed = monotonic_now();
  one.kill_now();
  const std::string name = "rank 1 (" + net::to_string(listeners.addresses[1]) + ") is lost: ";
  for (RankProcess* other : {&zero, &two, &three}) {
    const std::string line = other->line();
    EXPECT_TRUE(mentions(line, name)) << line;
    EXPECT_TRUE(mentions(line, "in membership epoch 1")) << line;
  }
  const auto noticed = monotonic_now() - killed;
  RecordProperty("noticed_microseconds", std::to_string(noticed / std::chrono::microseconds(1)));
}

std::string name_of(const ::testing::TestParamInfo<RankDeath::ParamType>& tested) {
  const auto& [point, links] = tested.param;
  std::string name = point + (links == Links::kTls              ? "_with_tls"
                              : links == Links::kSharedMemory   ? "_over_shared_memory"
                              : links == Links::kGradientMemory ? "_in_gradient_memory"
                              : links == Links::kStreams        ? "_with_two_streams"
                                                                : "");
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

const std::vector<std::string> kFaultPoints = {"reduce_scatter.before_send",
                                               "reduce_scatter.after_send",
                                               "all_gather.before_send", "bucket.done"};
INSTANTIATE_TEST_SUITE_P(
    FaultPoints, RankDeath,
    ::testing::Combine(::testing::ValuesIn(kFaultPoints),
                       ::testing::Values(Links::kTcp, Links::kTls, Links::kSharedMemory,
                                         Links::kGradientMemory, Links::kStreams)),
    name_of);

// The calls of a step after begin_step(), with one bucket.
using EndOfStep = void (*)(Reducer&, MonotonicTime);
void start_and_wait(Reducer& reducer, MonotonicTime deadline) {
  reducer.start(0);
  reducer.wait(deadline);
}
void only_finish(Reducer& reducer, MonotonicTime deadline) { reducer.finish(deadline); }
constexpr std::array<EndOfStep, 2> kEndsOfStep{start_and_wait, only_finish};

class FailuresTest : public WithLinks {};
INSTANTIATE_TEST_SUITE_P(Links, FailuresTest, kLinksWithStreams, name_of_links);

TEST_P(FailuresTest, AStalledPeerEndsTheStepAfterTheIdleDeadline) {
  const auto gradients = shard_gradients(2, 1000);
  for (const EndOfStep end_step : kEndsOfStep) {
    net::WakeUp over;
    const auto errors = run_ranks(2, [&](Mesh& mesh) {
      ReducerOptions options;
      options.idle_timeout = std::chrono::milliseconds(100);
      TestedReducer reducer(mesh, even_split(2, 2), 2, 1000, options);
      if (mesh.rank() == 1) {  // alive and connected, but sends nothing
        net::wait_ready(over.fd(), POLLIN, test_deadline());
        return;
      }
      LocalParts own = reducer.parts(gradients);
      const std::vector<Range> buckets{{0, 1000}};
      reducer.begin_step(own.view, buckets);
      try {
        end_step(reducer, test_deadline());
      } catch (...) {
        over.signal();
        throw;
      }
    });
    EXPECT_TRUE(mentions(errors[0],
                         "rank 0: no data transferred for 0.1 s in membership epoch 1; waiting for "
                         "rank 1 (127.0.0.1"))
        << errors[0];
  }
}

TEST_P(FailuresTest, WaitEndsAtItsDeadline) {
  const auto gradients = shard_gradients(2, 1000);
  for (const EndOfStep end_step : kEndsOfStep) {
    net::WakeUp over;
    const auto errors = run_ranks(2, [&](Mesh& mesh) {
      TestedReducer reducer(mesh, even_split(2, 2), 2, 1000);
      if (mesh.rank() == 1) {  // does not begin a step
        net::wait_ready(over.fd(), POLLIN, test_deadline());
        return;
      }
      LocalParts own = reducer.parts(gradients);
      const std::vector<Range> buckets{{0, 1000}};
      reducer.begin_step(own.view, buckets);
      EXPECT_THROW(end_step(reducer, monotonic_now() + std::chrono::milliseconds(50)), Failure);
      over.signal();
      reducer.begin_step(own.view, buckets);  // throws again
    });
    EXPECT_TRUE(mentions(errors[0], "is not finished by the deadline")) << errors[0];
  }
}

TEST_P(FailuresTest, ADeathIsDetectedDuringTheComputationOfOtherRanks) {
  const auto gradients = shard_gradients(2, 1000);
  const auto errors = run_ranks(2, [&](Mesh& mesh) {
    TestedReducer reducer(mesh, even_split(2, 2), 2, 1000);
    if (mesh.rank() == 1) return;  // closes its connections
    LocalParts own = reducer.parts(gradients);
    const std::vector<Range> buckets{{0, 1000}};
    reducer.begin_step(own.view, buckets);
    const MonotonicTime limit = test_deadline();
    while (monotonic_now() < limit) reducer.throw_if_failed();  // the computation
  });
  EXPECT_TRUE(mentions(errors[0], "rank 1 (")) << errors[0];
  EXPECT_TRUE(mentions(errors[0], "closed the connection")) << errors[0];
}

TEST_P(FailuresTest, AbortEndsAStepAndEveryLaterOne) {
  const auto gradients = shard_gradients(2, 1000);
  const auto errors = run_ranks(2, [&](Mesh& mesh) {
    TestedReducer reducer(mesh, even_split(2, 2), 2, 1000);
    LocalParts own = reducer.parts(gradients);
    const std::vector<Range> buckets{{0, 500}, {500, 1000}};
    reducer.begin_step(own.view, buckets);
    reducer.start(0);  // the second bucket never starts
    std::thread aborter([&mesh] { mesh.abort("the membership changed to epoch 2"); });
    const MonotonicTime limit = test_deadline();
    try {
      while (monotonic_now() < limit) reducer.throw_if_failed();
    } catch (const Failure&) {
    }
    aborter.join();
    EXPECT_THROW(reducer.wait(test_deadline()), Failure);
    EXPECT_THROW(reducer.start(1), Failure);
    reducer.begin_step(own.view, buckets);
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(mentions(error, "aborted: the membership changed to epoch 2") ||
                mentions(error, "is lost"))
        << error;
  }
}

TEST_P(FailuresTest, AbortEndsFinish) {
  const auto gradients = shard_gradients(2, 1000);
  net::WakeUp over;
  const auto errors = run_ranks(2, [&](Mesh& mesh) {
    net::WakeUp started;
    ReducerOptions options;
    options.faults.hook = [&started](const char*) { started.signal(); };
    TestedReducer reducer(mesh, even_split(2, 2), 2, 1000, options);
    if (mesh.rank() == 1) {  // does not begin a step
      net::wait_ready(over.fd(), POLLIN, test_deadline());
      return;
    }
    LocalParts own = reducer.parts(gradients);
    std::thread aborter([&] {
      net::wait_ready(started.fd(), POLLIN, test_deadline());
      mesh.abort("the membership changed to epoch 2");
    });
    const std::vector<Range> buckets{{0, 1000}};
    reducer.begin_step(own.view, buckets);
    EXPECT_THROW(reducer.finish(test_deadline()), Failure);
    aborter.join();
    over.signal();
    reducer.begin_step(own.view, buckets);  // throws again
  });
  EXPECT_TRUE(mentions(errors[0], "aborted: the membership changed to epoch 2")) << errors[0];
}

// Rank 1 sends all frames of a step to rank 0 and none to rank 2, then closes its connection to
// rank 2. Rank 0 waits only for rank 2, so only rank 2 can tell it which rank failed.
TEST(Failures, ADeathThatOneRankSeesIsForwardedToTheOthers) {
  const std::vector<float> zeros(1000, 0.0F);
  net::WakeUp two_is_connected, over;
  std::atomic<int> failed = 0;
  const auto errors = run_ranks(3, [&](Mesh& mesh) {
    if (mesh.rank() == 2) two_is_connected.signal();
    const auto slice_bytes = [](int rank) {
      return static_cast<std::size_t>(slice_of({0, 1000}, rank, 3).size()) * sizeof(float);
    };
    if (mesh.rank() == 1) {
      FrameHeader got;
      std::vector<std::byte> partials(slice_bytes(1));
      socket_of(mesh, 0)
          .read_exact(std::as_writable_bytes(std::span(&got, 1)), test_deadline())
          .or_throw();
      socket_of(mesh, 0).read_exact(partials, test_deadline()).or_throw();
      for (const FrameKind kind : {FrameKind::kPartials, FrameKind::kSums}) {
        FrameHeader header;
        header.kind = kind;
        header.epoch = header.operation = 1;
        iovec frame[2] = {
            net::make_iovec(&header, sizeof header),
            net::make_iovec(zeros.data(), slice_bytes(kind == FrameKind::kPartials ? 0 : 1))};
        seal(header, std::span(frame).subspan(1));
        socket_of(mesh, 0).write_all(std::span<iovec>(frame), test_deadline()).or_throw();
      }
      EXPECT_EQ(net::wait_ready(two_is_connected.fd(), POLLIN, test_deadline()), net::Ready::kYes);
      socket_of(mesh, 2).close();
      EXPECT_EQ(net::wait_ready(over.fd(), POLLIN, test_deadline()), net::Ready::kYes);
      return;
    }
    const auto gradients = shard_gradients(4, 1000);
    Reducer reducer(mesh, even_split(3, 4), 4);
    LocalParts own(gradients, reducer.local_parts());
    const std::vector<Range> buckets{{0, 1000}};
    try {
      reducer.begin_step(own.view, buckets);
      reducer.start(0);
      reducer.wait(test_deadline());
    } catch (...) {
      // The first rank to fail keeps its connections open until the other has failed too.
      if (++failed == 2) over.signal();
      EXPECT_EQ(net::wait_ready(over.fd(), POLLIN, test_deadline()), net::Ready::kYes);
      throw;
    }
  });
  EXPECT_TRUE(mentions(errors[2], "rank 1 (")) << errors[2];
  EXPECT_TRUE(mentions(errors[2], "is lost: ")) << errors[2];
  EXPECT_TRUE(mentions(errors[0], "rank 0 in membership epoch 1: rank 2 (")) << errors[0];
  EXPECT_TRUE(mentions(errors[0], "rank 1 (")) << errors[0];
}

// Rank 1 ends after it has sent its partial sums. Rank 2 computes; the others have started the
// bucket and wait for the partial sums of rank 2.
class AfterPartialSums : public FailuresTest {
 protected:
  // Returns what rank 0, 2 and 3 report after `end` on rank 1.
  static std::vector<std::string> errors_after(const std::function<void(Mesh&)>& end) {
    const auto gradients = shard_gradients(4, 1000);
    std::latch begun(4), ended(4);
    net::WakeUp sent;
    auto errors = run_ranks(4, [&](Mesh& mesh) {
      try {
        std::optional<LocalParts> own;  // outlives the reducer
        std::atomic<int> streams = 0;
        ReducerOptions options;
        options.faults.hook = [&](const char* name) {
          if (mesh.rank() == 1 && name == std::string("reduce_scatter.after_send") &&
              ++streams == mesh.streams()) {
            sent.signal();
          }
        };
        TestedReducer reducer(mesh, even_split(4, 4), 4, 1000, options);
        own.emplace(reducer.parts(gradients));
        const std::vector<Range> buckets{{0, 1000}};
        reducer.begin_step(own->view, buckets);
        begun.arrive_and_wait();
        const MonotonicTime deadline = test_deadline();
        while (mesh.rank() == 2 && monotonic_now() < deadline) {
          reducer.throw_if_failed();
          std::this_thread::yield();
        }
        reducer.start(0);
        if (mesh.rank() == 1) {
          EXPECT_EQ(net::wait_ready(sent.fd(), POLLIN, deadline), net::Ready::kYes);
          end(mesh);
        }
        reducer.wait(deadline);
      } catch (...) {
        ended.arrive_and_wait();  // a reset connection would lose what is unread
        throw;
      }
      ended.arrive_and_wait();
    });
    errors.erase(errors.begin() + 1);
    return errors;
  }
};
INSTANTIATE_TEST_SUITE_P(Links, AfterPartialSums, kLinksWithStreams, name_of_links);

TEST_P(AfterPartialSums, ADeathIsNoticed) {
  const auto errors = errors_after([](Mesh& mesh) {
    for (int stream = 0; stream < mesh.streams(); ++stream) {
      for (const int peer : {0, 2, 3}) socket_of(mesh.stream(stream), peer).shutdown_write();
    }
  });
  for (const std::string& error : errors) EXPECT_TRUE(mentions(error, "is lost: ")) << error;
}

TEST_P(AfterPartialSums, TheReasonOfAnAbortIsRead) {
  const auto errors = errors_after([](Mesh& mesh) { mesh.abort("the host is drained"); });
  for (const std::string& error : errors) {
    EXPECT_TRUE(mentions(error, "the host is drained")) << error;
  }
}

// With two ranks per host, ranks 0 and 3 are on different hosts and have different places.
TEST_P(FailuresTest, ALostRankEndsTheStepOfARankThatExchangesNothingWithIt) {
  const auto gradients = shard_gradients(4, 1000);
  ReducerOptions options;
  options.ranks_per_host = 2;
  const auto errors = run_ranks(4, [&](Mesh& mesh) {
    TestedReducer reducer(mesh, even_split(4, 4), 4, 1000, options);
    if (mesh.rank() == 3) return;
    LocalParts own = reducer.parts(gradients);
    const std::vector<Range> buckets{{0, 1000}};
    reducer.begin_step(own.view, buckets);
    reducer.start(0);
    reducer.wait(test_deadline());
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(mentions(errors[static_cast<std::size_t>(rank)], "in membership epoch 1"))
        << "rank " << rank << ": " << errors[static_cast<std::size_t>(rank)];
  }
}

TEST_P(FailuresTest, DifferentBucketsOrShardsAreReported) {
  const auto gradients = shard_gradients(4, 1000);
  const auto errors = run_ranks(2, [&](Mesh& mesh) {
    const std::vector<Range> split{{0, mesh.rank() == 0 ? 2 : 1}, {mesh.rank() == 0 ? 2 : 1, 4}};
    TestedReducer reducer(mesh, split, 4, 1000);
    LocalParts own = reducer.parts(gradients);
    const std::vector<Range> buckets{{0, 1000}};
    reducer.begin_step(own.view, buckets);
    reducer.start(0);
    reducer.wait(test_deadline());
  });
  EXPECT_TRUE(mentions(errors[0] + errors[1], "the ranks differ in shards or buckets"))
      << errors[0] << " / " << errors[1];
}

TEST(Failures, AnOversizeFrameOrChunksOutOfOrderAreRefused) {
  for (const bool oversize : {false, true}) {
    const auto gradients = shard_gradients(2, 1000);
    const auto errors = run_ranks(2, [&](Mesh& mesh) {
      if (mesh.rank() == 1) {  // authenticated, but violates the protocol
        FrameHeader header;
        header.kind = FrameKind::kPartials;
        header.epoch = 1;
        header.operation = 1;
        header.chunk = oversize ? 0 : 5;
        const std::byte* none = nullptr;
        const iovec payload = net::make_iovec(none, oversize ? std::size_t{1} << 60 : 2000);
        seal(header, {&payload, 1}, true);  // as with TLS, without reading the payload
        socket_of(mesh, 0)
            .write_all(std::as_bytes(std::span(&header, 1)), test_deadline())
            .or_throw();
        std::vector<std::byte> sink(10'000);
        EXPECT_FALSE(socket_of(mesh, 0).read_exact(sink, test_deadline()).ok());
        return;
      }
      Reducer reducer(mesh, even_split(2, 2), 2);
      LocalParts own(gradients, reducer.local_parts());
      const std::vector<Range> buckets{{0, 1000}};
      reducer.begin_step(own.view, buckets);
      reducer.start(0);
      reducer.wait(test_deadline());
    });
    EXPECT_TRUE(mentions(errors[0], oversize ? "sent 1152921504606846976 bytes in partial sums"
                                             : "partial sums of chunk 5, expected chunk 0"))
        << errors[0];
  }
}

// Rank 1, on the host of rank 0, sends its partial sums of all three chunks at once, more than the
// window of two allows; ranks 2 and 3, of the other host, send nothing yet.
TEST(Failures, PartialSumsOfAHostBeyondTheWindowAreRefused) {
  const auto gradients = shard_gradients(4, 96);
  net::WakeUp over;
  const auto errors = run_ranks(4, [&](Mesh& mesh) {
    if (mesh.rank() == 1) {
      const std::vector<float> zeros(16);  // half of a chunk
      for (std::uint64_t chunk = 0; chunk < 3; ++chunk) {
        FrameHeader header;
        header.kind = FrameKind::kPartials;
        header.epoch = header.operation = 1;
        header.chunk = chunk;
        iovec frame[2] = {net::make_iovec(&header, sizeof header),
                          net::make_iovec(zeros.data(), zeros.size() * sizeof(float))};
        seal(header, std::span(frame).subspan(1));
        socket_of(mesh, 0).write_all(std::span<iovec>(frame), test_deadline()).or_throw();
      }
    }
    if (mesh.rank() != 0) {
      EXPECT_EQ(net::wait_ready(over.fd(), POLLIN, test_deadline()), net::Ready::kYes);
      return;
    }
    ReducerOptions options;
    options.ranks_per_host = 2;
    options.chunk_elements = 32;
    options.window = 2;
    Reducer reducer(mesh, even_split(4, 4), 4, options);
    LocalParts own(gradients, reducer.local_parts());
    const std::vector<Range> buckets{{0, 96}};
    try {
      reducer.begin_step(own.view, buckets);
      reducer.start(0);
      reducer.wait(test_deadline());
    } catch (...) {
      over.signal();
      throw;
    }
  });
  EXPECT_TRUE(mentions(errors[0], "sent partial sums of chunk 2, expected chunk 2 below 2"))
      << errors[0];
}

TEST_P(FailuresTest, DestroyingAReducerInTheMiddleOfAStepEndsIt) {
  const auto gradients = shard_gradients(2, 1000);
  std::latch started(2);  // no rank leaves before both have started a bucket
  expect_no_errors(run_ranks(2, [&](Mesh& mesh) {
    std::optional<LocalParts> own;  // outlives the reducer
    TestedReducer reducer(mesh, even_split(2, 2), 2, 1000);
    own.emplace(reducer.parts(gradients));
    const std::vector<Range> buckets{{0, 500}, {500, 1000}};
    reducer.begin_step(own->view, buckets);
    reducer.start(0);
    started.arrive_and_wait();
  }));
}

class AlteredByte : public ::testing::TestWithParam<bool> {};

TEST_P(AlteredByte, EndsTheStepAndNeverReachesASum) {
  const bool tls = GetParam();
  const auto gradients = shard_gradients(2, 100'000);
  std::atomic<int> wrong{0};
  net::Relay* relay = nullptr;
  const auto errors = through_relay(tls, relay, [&](Mesh& mesh) {
    Reducer reducer(mesh, even_split(2, 2), 2);
    for (int step = 0; step < 1000; ++step) {
      LocalParts own(gradients, reducer.local_parts());
      const std::vector<Range> buckets{{0, 100'000}};
      reducer.begin_step(own.view, buckets);
      reducer.start(0);
      reducer.wait(test_deadline());
      wrong += !same_bits(own.sum(), tree_sum(gradients));
      if (step == 1 && mesh.rank() == 1) relay->alter_next_byte();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(mentions(errors[0], tls ? "altered in transit" : "checksum")) << errors[0];
  EXPECT_TRUE(mentions(errors[1], "rank 0")) << errors[1];
}

INSTANTIATE_TEST_SUITE_P(Failures, AlteredByte, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Tls" : "Plain"; });

}  // namespace
}  // namespace tilewright::collectives
