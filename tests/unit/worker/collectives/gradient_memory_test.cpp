#include "worker/collectives/gradient_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
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
Floats sum(Mesh& mesh, const GradientMemory* memory, const std::vector<Floats>& gradients) {
  const int shards = static_cast<int>(gradients.size());
  ReducerOptions options;
  options.memory = memory;
  Reducer reducer(mesh, even_split(mesh.world(), shards), shards, options);
  LocalParts own(gradients, reducer.local_parts(), 0, memory);
  const std::vector<Range> buckets{{0, own.view.count}};
  reducer.begin_step(own.view, buckets);
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

// What a peer says about places is checked before memory is accessed there.
TEST_F(GradientMemoryTest, APlaceOutsideOfItIsRefused) {
  for (const bool beyond_the_end : {false, true}) {
    const auto gradients = shard_gradients(2, 1000);
    const auto errors = run_ranks(2, [&](Mesh& mesh) {
      const auto memory = GradientMemory::share(mesh, 1000, test_deadline());
      if (mesh.rank() == 1) {
        const std::uint64_t place = beyond_the_end ? 1 : ~std::uint64_t{0} - 500;
        const std::vector<std::uint64_t> placed{0, 512, 0, place};
        FrameHeader header;
        header.kind = FrameKind::kPartials;
        header.epoch = 1;
        header.operation = mesh.next_operation();
        iovec frame[2] = {net::make_iovec(&header, sizeof header),
                          net::make_iovec(placed.data(), placed.size() * sizeof placed[0])};
        mesh.seal(0, header, std::span(frame).subspan(1));
        ASSERT_EQ(mesh.transport().try_write(0, frame).or_throw(), sizeof header + 32);
        barrier(mesh, test_deadline());  // rank 0 leaves
        return;
      }
      sum(mesh, memory.get(), gradients);
    });
    EXPECT_TRUE(mentions(errors[0], "sent a gradient of 1000 elements at")) << errors[0];
    EXPECT_TRUE(mentions(errors[0], "in a memory of 1000")) << errors[0];
  }
}

}  // namespace
}  // namespace tilewright::collectives
