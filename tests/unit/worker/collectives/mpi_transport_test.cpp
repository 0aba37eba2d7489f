// MpiTransport over a library in memory that completes requests late and in any order, as MPI may.
#include "worker/collectives/mpi_transport.h"

#include <gmock/gmock.h>

#include <deque>
#include <map>
#include <mutex>
#include <random>

#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/collectives/reference.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/mpi_library.h"
#include "worker/collectives/reducer.h"

namespace tilewright::collectives {
namespace {

using ::testing::HasSubstr;

// A message up to this size is copied when it is sent; a longer one is read from the sender's
// memory when it is received, so that a buffer that changes too early changes the result.
constexpr std::size_t kEagerBytes = 64;

struct Message {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::vector<std::byte> copy;
  bool received = false;
};

struct FakeMpi {
  explicit FakeMpi(int ranks) : world(ranks) {}
  const int world;
  std::mutex mutex;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> sent;  // by (from, to)
};

class FakePort : public MpiPort {
 public:
  // Each request needs up to `delay` further tests after it could be complete.
  FakePort(FakeMpi& mpi, int rank, int delay)
      : mpi_(mpi), rank_(rank), delay_(delay), random_(static_cast<unsigned>(rank)) {}

  int rank() const override { return rank_; }
  int world() const override { return mpi_.world; }
  const char* library() const override { return "fake"; }

  Problem start_send(int peer, const void* data, std::size_t bytes, Request& request) override {
    sizes.push_back(bytes);
    if (fails) return "MPI_Isend: no route";
    auto message = std::make_shared<Message>();
    message->data = static_cast<const std::byte*>(data);
    message->bytes = bytes;
    if (bytes <= kEagerBytes) {
      message->copy.assign(message->data, message->data + bytes);
      message->data = message->copy.data();
    }
    request = &transfers_.emplace_back(message, nullptr, delay());
    const std::lock_guard lock(mpi_.mutex);
    mpi_.sent[{rank_, peer}].push_back(message);
    return nullptr;
  }
  Problem probe(int peer, long long& bytes) override {
    const std::lock_guard lock(mpi_.mutex);
    auto& waiting = mpi_.sent[{peer, rank_}];
    bytes = kNone;
    if (waiting.empty()) return nullptr;
    probed_[peer] = waiting.front();
    waiting.pop_front();
    bytes = static_cast<long long>(probed_[peer]->bytes);
    return nullptr;
  }
  Problem start_receive(int peer, void* into, Request& request) override {
    request =
        &transfers_.emplace_back(std::move(probed_[peer]), static_cast<std::byte*>(into), delay());
    return nullptr;
  }
  Problem test(Request& request) override {
    auto* transfer = static_cast<Transfer*>(request);
    const std::lock_guard lock(mpi_.mutex);
    Message& message = *transfer->message;
    if (transfer->into == nullptr && message.copy.empty() && !message.received) return nullptr;
    if (transfer->tests_left-- > 0) return nullptr;
    if (transfer->into != nullptr) {
      std::memcpy(transfer->into, message.data, message.bytes);
      message.received = true;
    }
    request = nullptr;
    return nullptr;
  }
  Problem finish() override { return nullptr; }

  std::vector<std::size_t> sizes;  // of the messages sent
  bool fails = false;

 private:
  struct Transfer {
    Transfer(std::shared_ptr<Message> which, std::byte* target, int tests)
        : message(std::move(which)), into(target), tests_left(tests) {}
    std::shared_ptr<Message> message;
    std::byte* into;  // nullptr: a send
    int tests_left;
  };
  int delay() { return delay_ == 0 ? 0 : static_cast<int>(random_() % unsigned(delay_ + 1)); }

  FakeMpi& mpi_;
  const int rank_, delay_;
  std::minstd_rand random_;
  std::map<int, std::shared_ptr<Message>> probed_;
  std::deque<Transfer> transfers_;
};

std::unique_ptr<Mesh> mesh_over(MpiPort& port) {
  MeshConfig config;
  config.job_uid = "job-1";
  config.epoch = 1;
  config.rank = port.rank();
  config.peers.resize(static_cast<std::size_t>(port.world()), {{"10.0.0.1", 1}, 0});
  return std::make_unique<Mesh>(config, std::make_unique<MpiTransport>(port));
}

// Runs `body` on every rank, each in a thread. Returns each rank's exception message, or "".
std::vector<std::string> run_mpi_ranks(int world, int delay, const RankBody& body) {
  FakeMpi mpi(world);
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      FakePort port(mpi, rank, delay);
      try {
        body(*mesh_over(port));
      } catch (const std::exception& problem) {
        errors[static_cast<std::size_t>(rank)] = problem.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::span<std::byte> bytes_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

TEST(MpiTransport, TakesBytesOnlyWhenTheirMemoryMayChange) {
  FakeMpi mpi(2);
  FakePort port0(mpi, 0, 0), port1(mpi, 1, 0);
  MpiTransport rank0(port0), rank1(port1);
  const std::string text(2 * kEagerBytes, 'a');
  std::string got(text.size(), '-');
  iovec buffer = net::make_iovec(text.data(), text.size());
  EXPECT_EQ(*rank0.try_write(1, std::span(&buffer, 1)), 0u);
  EXPECT_EQ(*rank0.try_write(1, std::span(&buffer, 1)), 0u);
  EXPECT_EQ(*rank1.try_read(0, bytes_of(got)), text.size());
  EXPECT_EQ(*rank0.try_write(1, std::span(&buffer, 1)), text.size());
  EXPECT_EQ(got, text);
  EXPECT_EQ(*rank1.try_read(0, bytes_of(got)), 0u);
  EXPECT_EQ(port0.sizes.size(), 1u);
}

TEST(MpiTransport, FillsAReadFromSeveralMessages) {
  FakeMpi mpi(2);
  FakePort port0(mpi, 0, 0), port1(mpi, 1, 0);
  MpiTransport rank0(port0), rank1(port1);
  const std::string head = "header", one = "one", two = "second";
  iovec buffers[] = {net::make_iovec(head.data(), head.size()),
                     net::make_iovec(one.data(), one.size()), net::make_iovec(nullptr, 0),
                     net::make_iovec(two.data(), two.size())};
  EXPECT_EQ(*rank0.try_write(1, buffers), 15u);
  std::string header(6, '-'), payload(9, '-');
  EXPECT_EQ(*rank1.try_read(0, bytes_of(header)), 6u);
  EXPECT_EQ(*rank1.try_read(0, bytes_of(payload)), 3u);
  EXPECT_EQ(*rank1.try_read(0, bytes_of(payload).subspan(3)), 6u);
  EXPECT_EQ(header + payload, "headeronesecond");
}

TEST(MpiTransport, SplitsABufferThatIsTooLongForAMessage) {
  FakeMpi mpi(2);
  FakePort port(mpi, 0, 0);
  MpiTransport rank0(port);
  const std::size_t bytes = 2 * MpiTransport::kMaxMessage + 5;
  // Only the last bytes, which the library copies, are in memory.
  std::vector<std::byte> tail(bytes - 2 * MpiTransport::kMaxMessage);
  iovec buffer{tail.data() - 2 * MpiTransport::kMaxMessage, bytes};
  EXPECT_EQ(*rank0.try_write(1, std::span(&buffer, 1)), 0u);
  EXPECT_THAT(port.sizes, ::testing::ElementsAre(MpiTransport::kMaxMessage,
                                                 MpiTransport::kMaxMessage, tail.size()));
}

TEST(MpiTransport, RefusesAMessageLongerThanTheReadersMemory) {
  FakeMpi mpi(2);
  FakePort port0(mpi, 0, 0), port1(mpi, 1, 0);
  MpiTransport rank0(port0), rank1(port1);
  const std::string text(40, 'a');
  iovec buffer = net::make_iovec(text.data(), text.size());
  EXPECT_EQ(*rank0.try_write(1, std::span(&buffer, 1)), 40u);
  std::string got(39, '-');
  const auto read = rank1.try_read(0, bytes_of(got));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ExitCode::kPeerLost);
  EXPECT_THAT(read.error().message, HasSubstr("a message of 40 bytes, expected 1 to 39"));
  EXPECT_EQ(got, std::string(39, '-'));
}

TEST(MpiTransport, ReportsWhatTheLibraryReports) {
  FakeMpi mpi(2);
  FakePort port(mpi, 0, 0);
  port.fails = true;
  const auto mesh = mesh_over(port);
  try {
    barrier(*mesh, test_deadline());
    ADD_FAILURE();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kPeerLost);
    EXPECT_THAT(failure.what(), HasSubstr("rank 1 (10.0.0.1:1) is lost: MPI_Isend: no route"));
  }
}

TEST(MpiTransport, ExchangesStrings) {
  expect_no_errors(run_mpi_ranks(4, 3, [](Mesh& mesh) {
    barrier(mesh, test_deadline());
    const std::string own(static_cast<std::size_t>(mesh.rank()) * 1000, 'x');
    const auto all = all_gather(mesh, own, 5000, test_deadline());
    for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(all[rank].size(), rank * 1000);
    EXPECT_EQ(broadcast_string(mesh, 2, own, 5000, test_deadline()), std::string(2000, 'x'));
    std::vector<std::byte> state(100'000, std::byte(mesh.rank()));
    broadcast(mesh, 1, state, test_deadline());
    EXPECT_EQ(state, std::vector<std::byte>(state.size(), std::byte{1}));
  }));
}

// As over TCP: bit for bit the reference sum, with requests that complete late and in any order.
TEST(MpiTransport, ReducesToTheSameBits) {
  for (const int world : {2, 3, 5}) {
    for (const int delay : {0, 1, 7}) {
      expect_no_errors(run_mpi_ranks(world, delay, [&](Mesh& mesh) {
        ReducerOptions options;
        options.chunk_elements = 300;
        options.window = 2;
        Reducer reducer(mesh, even_split(world, 8), 8, options);
        for (unsigned step = 0; step < 3; ++step) {
          const auto gradients = shard_gradients(8, 5003, step);
          const std::int64_t bf16_count = step == 2 ? 3000 : 0;
          LocalParts own(gradients, reducer.local_parts(), bf16_count);
          const std::vector<Range> buckets = {{3000, 5003}, {1000, 3000}, {0, 1000}};
          reducer.begin_step(own.view, buckets);
          for (int i = 0; i < 3; ++i) reducer.start(i);
          reducer.wait(test_deadline());
          EXPECT_TRUE(same_bits(own.sum(), tree_sum(gradients, bf16_count)))
              << "rank " << mesh.rank() << " of " << world << ", delay " << delay;
          barrier(mesh, test_deadline());
        }
      }));
    }
  }
}

TEST(MpiTransport, EndsAStepWhenTheEpochEnds) {
  const auto errors = run_mpi_ranks(2, 0, [](Mesh& mesh) {
    if (mesh.rank() == 1) return;  // is killed: it sends nothing more
    const auto gradients = shard_gradients(4, 1000);
    Reducer reducer(mesh, even_split(2, 4), 4);
    LocalParts own(gradients, reducer.local_parts());
    const std::vector<Range> buckets = {{0, 1000}};
    reducer.begin_step(own.view, buckets);
    reducer.start(0);
    mesh.abort("worker 1: connection closed");
    reducer.wait(test_deadline());
  });
  EXPECT_THAT(errors[0], HasSubstr("worker 1: connection closed"));
}

TEST(MpiLibrary, SaysInOneSentenceThatThePluginIsMissing) {
  try {
    load_mpi("/nowhere/tilewright-mpi.so", 0, 2);
    ADD_FAILURE();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_THAT(failure.what(), HasSubstr("--ddp_backend=mpi: /nowhere/tilewright-mpi.so"));
    EXPECT_THAT(failure.what(), HasSubstr("--ddp_backend=ccl needs no MPI library"));
  }
}

TEST(MpiLibrary, RefusesAnotherLibrary) {
  try {
    load_mpi("libm.so.6", 0, 2);
    ADD_FAILURE();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("libm.so.6 is not Tilewright's plugin"));
  }
}

}  // namespace
}  // namespace tilewright::collectives
