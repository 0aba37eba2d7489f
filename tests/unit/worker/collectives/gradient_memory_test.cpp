#include "worker/collectives/gradient_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/collectives/reference.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/reducer.h"

namespace tilewright::collectives {
namespace {

class GradientMemoryTest : public ::testing::Test {
 protected:
  GradientMemoryTest() { tested_links = SharedMemory::kIfPossible; }
  ~GradientMemoryTest() override { tested_links = SharedMemory::kNever; }
};

// The sum over all ranks of gradients in this memory, or of private ones if it is null.
Floats sum(Mesh& mesh, const GradientMemory* memory, const std::vector<Floats>& gradients,
           ReducerOptions options = {}, std::int64_t bf16_count = 0) {
  const int shards = static_cast<int>(gradients.size());
  options.memory = memory;
  Reducer reducer(mesh, even_split(mesh.world(), shards), shards, options);
  LocalParts own(gradients, reducer.local_parts(), bf16_count, memory);
  std::vector<Range> buckets{{0, own.view.count}};
  if (bf16_count > 0) buckets = {{0, bf16_count}, {bf16_count, own.view.count}};
  reducer.begin_step(own.view, buckets);
  for (std::size_t bucket = 0; bucket + 1 < buckets.size(); ++bucket) {
    reducer.start(static_cast<int>(bucket));
  }
  reducer.finish(test_deadline());
  return own.sum();
}

TEST_F(GradientMemoryTest, IsSeenByAllRanksOfTheHost) {
  constexpr std::size_t kFloats = 3000;  // of rank 0; the other ranks have more
  expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
    const auto rank = static_cast<std::size_t>(mesh.rank());
    const auto memory = GradientMemory::share(mesh, kFloats + rank, test_deadline());
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(memory->own().size(), kFloats + rank);
    EXPECT_TRUE(memory->of(mesh.rank()).empty());
    EXPECT_EQ(std::ranges::count(memory->own(), 0.0f), kFloats + rank);
    barrier(mesh, test_deadline());
    // Each rank writes to its own memory and to that of all others.
    for (int peer = 0; peer < 3; ++peer) {
      const std::span<float> floats = peer == mesh.rank() ? memory->own() : memory->of(peer);
      ASSERT_EQ(floats.size(), kFloats + static_cast<std::size_t>(peer));
      floats[rank] = static_cast<float>(10 * peer + mesh.rank());
    }
    barrier(mesh, test_deadline());
    for (std::size_t writer = 0; writer < 3; ++writer) {
      EXPECT_EQ(memory->own()[writer], static_cast<float>(10 * rank + writer));
    }
  }));
}

TEST_F(GradientMemoryTest, IsNotThereWithoutAPeerOnTheHost) {
  tested_links = SharedMemory::kNever;
  expect_no_errors(run_ranks(2, [](Mesh& mesh) {
    EXPECT_EQ(GradientMemory::share(mesh, 100, test_deadline()), nullptr);
  }));
  EXPECT_EQ(GradientMemory::share(*Mesh::single_rank(), 100, test_deadline()), nullptr);
}

// Rank 1 has no memory, as if the system had refused it: the other two share theirs.
TEST_F(GradientMemoryTest, IsSharedByThoseThatHaveSome) {
  const auto gradients = shard_gradients(4, 1000);
  expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
    const auto memory = GradientMemory::share(mesh, mesh.rank() == 1 ? 0 : 4000, test_deadline());
    ASSERT_EQ(memory == nullptr, mesh.rank() == 1);
    if (memory) {
      EXPECT_TRUE(memory->of(1).empty());
      EXPECT_FALSE(memory->of(2 - mesh.rank()).empty());
    }
    EXPECT_TRUE(same_bits(sum(mesh, memory.get(), gradients), tree_sum(gradients)));
  }));
}

// A rank whose process has resumed writes to the memory of the epoch that it believes in.
TEST_F(GradientMemoryTest, OfAnEarlierMeshIsOtherMemory) {
  expect_no_errors(run_ranks(2, [&](Mesh& mesh) {
    const auto earlier = GradientMemory::share(mesh, 100, test_deadline());
    const auto later = GradientMemory::share(mesh, 100, test_deadline());
    earlier->of(1 - mesh.rank())[7] = 1;
    barrier(mesh, test_deadline());
    EXPECT_EQ(earlier->own()[7], 1);
    EXPECT_EQ(later->own()[7], 0);
  }));
}

// Writes the first `bytes` of the frame of rank 1 that says where its parts of a chunk are.
void write_places(Mesh& mesh, std::uint64_t operation, std::uint64_t chunk,
                  const std::vector<std::uint64_t>& places, std::size_t bytes) {
  FrameHeader header;
  header.kind = FrameKind::kPartials;
  header.epoch = 1;
  header.operation = operation;
  header.chunk = chunk;
  iovec frame[2] = {net::make_iovec(&header, sizeof header),
                    net::make_iovec(places.data(), places.size() * sizeof places[0])};
  mesh.seal(0, header, std::span(frame).subspan(1));
  frame[1].iov_len = bytes - sizeof header;
  ASSERT_EQ(mesh.transport().try_write(0, frame).or_throw(), bytes);
}

// What a peer says about places is checked before memory is accessed there.
TEST_F(GradientMemoryTest, APlaceOutsideOfItIsRefused) {
  for (const bool beyond_the_end : {false, true}) {
    const auto gradients = shard_gradients(2, 1000);
    const auto errors = run_ranks(2, [&](Mesh& mesh) {
      const auto memory = GradientMemory::share(mesh, 1000, test_deadline());
      if (mesh.rank() == 1) {
        const std::uint64_t place = beyond_the_end ? 1 : ~std::uint64_t{0} - 500;
        write_places(mesh, mesh.next_operation(), 0, {0, 512, 0, place}, sizeof(FrameHeader) + 32);
        barrier(mesh, test_deadline());  // rank 0 leaves
        return;
      }
      sum(mesh, memory.get(), gradients);
    });
    EXPECT_TRUE(mentions(errors[0], "sent a gradient of 1000 elements at")) << errors[0];
    EXPECT_TRUE(mentions(errors[0], "in a memory of 1000")) << errors[0];
  }
}

// Rank 1 stops after half of a frame, whose place is wrong, while rank 0 sums the chunk before it.
TEST_F(GradientMemoryTest, HalfOfAPlacementIsNotUsed) {
  constexpr int kWorld = 3;
  constexpr std::int64_t kChunk = 500;
  const auto gradients = shard_gradients(4, 2 * kChunk);
  const auto split = even_split(kWorld, 4);
  std::latch written(1);
  const auto errors = run_ranks(kWorld, [&](Mesh& mesh) {
    const auto memory = GradientMemory::share(mesh, 4 * 2 * kChunk, test_deadline());
    ReducerOptions options;
    options.chunk_elements = kChunk;
    if (mesh.rank() == 1) {
      const std::uint64_t operation = mesh.next_operation();
      const auto slice = static_cast<std::uint64_t>(slice_of({0, kChunk}, 0, kWorld).size());
      std::vector<std::uint64_t> places{0, slice, 0};
      const auto parts = Layout(ReduceMode::kExact, split).slots_of(1);
      places.insert(places.end(), static_cast<std::size_t>(parts), 0);
      write_places(mesh, operation, 0, places, sizeof(FrameHeader) + places.size() * 8);
      places[0] = kChunk;
      places[2] = std::uint64_t{1} << 50;
      write_places(mesh, operation, 1, places, sizeof(FrameHeader) + 3 * 8);
      written.count_down();
      // Rank 0 has summed chunk 0 when its sums have arrived.
      std::vector<std::byte> frames(2 * (sizeof(FrameHeader) + 64));
      std::size_t arrived = 0;
      while (arrived < 2 * sizeof(FrameHeader)) {
        arrived += mesh.transport().try_read(0, std::span(frames).subspan(arrived)).or_throw();
      }
      return;
    }
    if (mesh.rank() == 2) written.wait();
    sum(mesh, memory.get(), gradients, options);
  });
  EXPECT_TRUE(mentions(errors[0], "rank 1 (")) << errors[0];
  EXPECT_TRUE(mentions(errors[0], "is lost")) << errors[0];
}

// The memory belongs to the first stream; the second is without a ring, as after a failed creation.
TEST_F(GradientMemoryTest, IsUsedByAStreamWithoutARing) {
  constexpr std::int64_t kFloats = 3000;
  const auto gradients = shard_gradients(4, kFloats);
  const Floats expected = tree_sum(gradients, 0, 4, kFloats - 10);
  Listeners first(2), second(2);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      MeshConfig config = first.config(static_cast<int>(rank));
      const auto mesh = build_mesh(first.listeners[rank], config, test_key(), test_deadline());
      config = second.config(static_cast<int>(rank));
      config.shared_memory = SharedMemory::kNever;
      mesh->add_stream(build_mesh(second.listeners[rank], config, test_key(), test_deadline()));
      const auto memory = GradientMemory::share(*mesh, 4 * kFloats, test_deadline());
      ReducerOptions options;
      options.chunk_elements = 500;
      EXPECT_TRUE(same_bits(sum(*mesh, memory.get(), gradients, options, kFloats - 10), expected));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tilewright::collectives
