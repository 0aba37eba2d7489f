#include "worker/collectives/shared_memory_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "common/base/file_descriptor.h"
#include "tests/unit/worker/collectives/cluster.h"
#include "worker/collectives/exchange.h"

namespace tilewright::collectives {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Link = SharedMemoryLink;

struct Ends {
  std::unique_ptr<Link> server = Link::create().or_throw();
  std::unique_ptr<Link> client = Link::open(server->offer()).or_throw();
};

std::size_t write(Link& link, std::string_view text) {
  const iovec buffer = net::make_iovec(text.data(), text.size());
  return link.write({&buffer, 1}).or_throw();
}
std::string read(Link& link, std::size_t most = 1000) {
  std::string text(most, ' ');
  text.resize(link.read(std::as_writable_bytes(std::span(text))).or_throw());
  return text;
}

TEST(SharedMemoryLink, CarriesBytesInBothDirections) {
  Ends ends;
  EXPECT_EQ(read(*ends.client), "");
  EXPECT_EQ(write(*ends.server, "to the client"), 13U);
  EXPECT_EQ(write(*ends.client, "to the server"), 13U);
  EXPECT_EQ(ends.client->readable(), 13U);
  EXPECT_EQ(read(*ends.client, 6), "to the");
  EXPECT_EQ(read(*ends.client), " client");
  EXPECT_EQ(read(*ends.server), "to the server");
}

// Two threads, a hundred rings of bytes, in pieces of random sizes.
TEST(SharedMemoryLink, CarriesAStreamThatIsLongerThanTheRing) {
  constexpr std::size_t kBytes = 100 * Link::kRingBytes + 17;
  Ends ends;
  const auto byte_at = [](std::size_t at) {
    return static_cast<std::byte>(at * 2654435761U >> 13);
  };
  std::thread writer([&] {
    std::mt19937 random(1);
    std::vector<std::byte> piece;
    for (std::size_t at = 0; at < kBytes;) {
      piece.resize(std::min<std::size_t>(kBytes - at, 1 + random() % (2 * Link::kRingBytes)));
      for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = byte_at(at + i);
      const std::size_t half = piece.size() / 2;
      const iovec buffers[] = {net::make_iovec(piece.data(), half),
                               net::make_iovec(piece.data() + half, piece.size() - half)};
      at += ends.server->write(buffers).or_throw();
      std::this_thread::yield();
    }
  });
  std::mt19937 random(2);
  std::vector<std::byte> piece;
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < kBytes;) {
    piece.resize(std::min<std::size_t>(kBytes - at, 1 + random() % (2 * Link::kRingBytes)));
    const std::size_t got = ends.client->read(piece).or_throw();
    for (std::size_t i = 0; i < got; ++i) wrong += piece[i] != byte_at(at + i);
    at += got;
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(SharedMemoryLink, TakesNoMoreThanTheRingHolds) {
  Ends ends;
  const std::string many(Link::kRingBytes + 1, 'x');
  EXPECT_EQ(write(*ends.server, many), Link::kRingBytes);
  EXPECT_EQ(ends.server->writable(), 0U);
  EXPECT_EQ(write(*ends.server, many), 0U);
  EXPECT_EQ(read(*ends.client, 10), many.substr(0, 10));
  EXPECT_EQ(ends.server->writable(), 10U);
}

TEST(SharedMemoryLink, AnEndThatSleepsIsWokenOnceForWhatItWaitsFor) {
  Ends ends;
  write(*ends.server, "x");
  EXPECT_FALSE(ends.server->wakes_peer()) << "it does not sleep";
  EXPECT_FALSE(ends.client->sleep_until(Link::kInput)) << "there is input";
  read(*ends.client);
  EXPECT_TRUE(ends.client->sleep_until(Link::kInput));
  EXPECT_FALSE(ends.server->wakes_peer()) << "there is no input yet";
  write(*ends.server, "x");
  EXPECT_TRUE(ends.server->wakes_peer());
  EXPECT_FALSE(ends.server->wakes_peer());
  EXPECT_EQ(read(*ends.client), "x");

  write(*ends.server, std::string(Link::kRingBytes, 'x'));
  EXPECT_TRUE(ends.server->sleep_until(Link::kSpace));
  read(*ends.client, Link::kRingBytes / 2 - 1);
  EXPECT_FALSE(ends.client->wakes_peer()) << "less than half is free";
  read(*ends.client, 1);
  EXPECT_TRUE(ends.client->wakes_peer());
  EXPECT_TRUE(ends.client->sleep_until(Link::kSpace | Link::kNothing) == false)
      << "its ring is empty";
}

// Tries again at once, as the other thread answers within a microsecond; then leaves it the CPU, if
// there is only one.
template <typename Condition>
void await(Condition holds) {
  for (int tries = 0; !holds(); ++tries) {
    if (tries > 1000) std::this_thread::yield();
  }
}

// The server waits for space or input and then, when it has seen the space, for input only, while
// the client gives it first the space and then the input.
TEST(SharedMemoryLink, AnEndIsWokenWhateverItAnnouncesMeanwhile) {
  Ends ends;
  write(*ends.server, std::string(Link::kRingBytes / 2, 'x'));
  std::atomic<int> begun = 0, ended = 0;
  bool woken = false;  // in this round
  constexpr int kRounds = 300'000;
  std::thread client([&] {
    for (int round = 1; round <= kRounds; ++round) {
      await([&] { return begun >= round; });
      read(*ends.client, 1);
      woken = ends.client->wakes_peer();
      write(*ends.client, "x");
      woken = ends.client->wakes_peer() || woken;
      ended = round;
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    write(*ends.server, "x");  // half of the ring is used, and one byte
    begun = round;
    await([&] { return !ends.server->sleep_until(Link::kInput | Link::kSpace); });
    const bool sleeps = ends.server->sleep_until(Link::kInput);
    await([&] { return ended >= round; });
    ends.server->wake();
    read(*ends.server, 1);
    if (sleeps && !woken) {
      ADD_FAILURE() << "round " << round;
      break;
    }
  }
  begun = kRounds;
  client.join();
}

TEST(SharedMemoryLink, OpensNothingButTheOfferedMemory) {
  const auto error_of = [](const std::string& offer) {
    const auto opened = Link::open(offer);
    return opened.ok() ? std::string("opened") : opened.error().message;
  };
  EXPECT_THAT(error_of("1 2"), HasSubstr("PID DESCRIPTOR NAME"));
  EXPECT_THAT(error_of("../../etc 1 passwd"), HasSubstr("PID DESCRIPTOR NAME"));
  EXPECT_THAT(error_of(fmt::format("{} 99999 tilewright-x", getpid())), HasSubstr("No such file"));
  const FileDescriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(error_of(fmt::format("{} {} tilewright-x", getpid(), file.get())),
              HasSubstr("is not the memory that the peer offers"));
  const FileDescriptor small(memfd_create("tilewright-x", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(small.get(), 100), 0);
  EXPECT_THAT(error_of(fmt::format("{} {} tilewright-x", getpid(), small.get())),
              HasSubstr("has 100 bytes"));
  const auto server = Link::create().or_throw();
  const std::string offer = server->offer();
  server->close_offer();
  EXPECT_THAT(error_of(offer), AnyOf(HasSubstr("No such file"), HasSubstr("is not the memory")));
}

// The other end is another process, which a fault may have damaged.
TEST(SharedMemoryLink, AnImpossiblePositionIsAnError) {
  const auto server = Link::create().or_throw();
  const std::string offer = server->offer();
  const int fd = std::stoi(offer.substr(offer.find(' ') + 1));
  void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* other_end = static_cast<std::uint64_t*>(mapped) + 3 * 64 / sizeof(std::uint64_t);
  other_end[0] = Link::kRingBytes + 1;        // written
  other_end[64 / sizeof(std::uint64_t)] = 1;  // consumed, of nothing
  munmap(mapped, 4096);
  std::byte one{};
  EXPECT_FALSE(server->read({&one, 1}).ok());
  const iovec buffer = net::make_iovec(&one, 1);
  EXPECT_FALSE(server->write({&buffer, 1}).ok());
}

// The transport of a mesh.
TEST(Mesh, SharesMemoryOnOneHostByDefault) {
  tested_links = SharedMemory::kIfPossible;
  std::atomic<int> shared{0};
  expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != mesh.rank()) {
        shared += dynamic_cast<PeerTransport&>(mesh.transport()).shares_memory(peer);
      }
    }
    barrier(mesh, test_deadline());
  }));
  tested_links = SharedMemory::kNever;
  EXPECT_EQ(shared, 6);
}

TEST(Mesh, UsesTcpIfAnEndDoesNotShareMemory) {
  Listeners listeners(2);
  const auto rank = [&](int which, SharedMemory shared_memory) {
    return std::async(std::launch::async, [&, which, shared_memory]() -> std::string {
      MeshConfig config = listeners.config(which);
      config.shared_memory = shared_memory;
      try {
        const auto mesh = build_mesh(listeners.listeners[static_cast<std::size_t>(which)], config,
                                     test_key(), test_deadline());
        barrier(*mesh, test_deadline());
        return mesh->links();
      } catch (const Failure& failure) {
        return failure.what();
      }
    });
  };
  using enum SharedMemory;
  for (const auto& [zero, one] : {std::pair{kNever, kIfPossible}, std::pair{kIfPossible, kNever}}) {
    auto first = rank(0, zero), second = rank(1, one);
    // The end that would have shared memory says so.
    const std::string hint =
        " (1 with this rank's address shares no memory; --ddp_backend=shm says why)";
    EXPECT_EQ(first.get(), zero == kIfPossible ? "over TCP" + hint : "over TCP");
    EXPECT_EQ(second.get(), one == kIfPossible ? "over TCP" + hint : "over TCP");
  }
  auto sharing = rank(0, kIfPossible), also_sharing = rank(1, kIfPossible);
  EXPECT_EQ(sharing.get(), "through shared memory");
  EXPECT_EQ(also_sharing.get(), "through shared memory");
  auto first = rank(0, kNever), second = rank(1, kRequired);
  EXPECT_THAT(second.get(), HasSubstr("rank 1 has no shared memory with rank 0 ("));
  EXPECT_THAT(first.get(), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace tilewright::collectives
