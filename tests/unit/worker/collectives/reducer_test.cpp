// Compares the all-reduce bit for bit with the reference sum, for many worlds and splits.
#include "worker/collectives/reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>

#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/collectives/reference.h"
#include "tests/unit/worker/collectives/tested_reducer.h"
#include "worker/collectives/exchange.h"

namespace tilewright::collectives {
namespace {

class ReducerTest : public WithLinks {};
INSTANTIATE_TEST_SUITE_P(Links, ReducerTest, kLinksWithStreams, name_of_links);

std::vector<Range> buckets_of(std::int64_t count, std::int64_t size) {
  std::vector<Range> buckets;  // from the last element to the first
  for (std::int64_t end = count; end > 0; end -= size) {
    buckets.push_back({std::max<std::int64_t>(0, end - size), end});
  }
  return buckets;
}

// What a step leaves to finish().
enum class Finish { kNothing, kWait, kLastBucket };

void reduce(Reducer& reducer, const GradientParts& parts, const std::vector<Range>& buckets,
            Finish finish = Finish::kNothing) {
  reducer.begin_step(parts, buckets);
  const int starts = static_cast<int>(buckets.size()) - (finish == Finish::kLastBucket ? 1 : 0);
  for (int i = 0; i < starts; ++i) reducer.start(i);
  if (finish == Finish::kNothing) {
    reducer.wait(test_deadline());
  } else {
    reducer.finish(test_deadline());
  }
}

// The sums of the first elements are rounded to bf16.
enum class Rounded { kNothing, kFirstBucket, kAll };

// Runs `steps` steps and compares every rank's result with the reference sum.
void expect_exact(const std::vector<Range>& split, int shards, std::int64_t count,
                  std::int64_t bucket_size, ReducerOptions options, unsigned steps = 2,
                  Rounded rounded = Rounded::kNothing) {
  const auto buckets = buckets_of(count, bucket_size);
  const std::int64_t bf16_count = rounded == Rounded::kNothing ? 0
                                  : rounded == Rounded::kAll   ? count
                                                               : buckets.back().end;
  const int world = static_cast<int>(split.size());
  std::atomic<int> right{0};
  expect_no_errors(run_ranks(world, [&](Mesh& mesh) {
    TestedReducer reducer(mesh, split, shards, count, options);
    for (unsigned step = 0; step < steps; ++step) {
      const auto gradients = shard_gradients(shards, count, step);
      LocalParts own = reducer.parts(gradients, bf16_count);
      reduce(reducer, own.view, buckets);
      right += same_bits(own.sum(), tree_sum(gradients, bf16_count));
    }
  }));
  EXPECT_EQ(right, world * static_cast<int>(steps))
      << "world " << world << ", " << shards << " shards, " << count << " elements";
}

TEST_P(ReducerTest, GivesTheSameBitsForEveryWorldShardCountAndSize) {
  ReducerOptions options;
  options.chunk_elements = 1000;
  for (int world = 1; world <= 5; ++world) {
    for (const int shards : {4, 8, 16}) {
      if (shards < world) continue;
      for (const std::int64_t count : {1, 17, 1001, 20011}) {
        expect_exact(even_split(world, shards), shards, count, 3001, options);
      }
    }
  }
}

TEST_P(ReducerTest, GivesTheSameBitsForEverySplitOfEightShardsBetweenThreeRanks) {
  ReducerOptions options;
  options.chunk_elements = 300;
  for (int first = 0; first <= 8; ++first) {
    for (int second = first; second <= 8; ++second) {  // includes ranks without shards
      expect_exact({{0, first}, {first, second}, {second, 8}}, 8, 1003, 400, options, 1);
    }
  }
}

TEST_P(ReducerTest, GivesTheSameBitsWhicheverThreadTransfers) {
  constexpr unsigned kSteps = 60;
  std::atomic<int> right{0};
  expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
    std::mt19937 random(static_cast<unsigned>(mesh.rank()));  // the ranks differ
    TestedReducer reducer(mesh, even_split(3, 8), 8, 1003);
    for (unsigned step = 0; step < kSteps; ++step) {
      const auto gradients = shard_gradients(8, 1003, step);
      LocalParts own = reducer.parts(gradients);
      reduce(reducer, own.view, buckets_of(1003, step % 3 == 0 ? 1003 : 400),
             Finish{static_cast<int>(random() % 3)});
      right += same_bits(own.sum(), tree_sum(gradients));
      if (step % 4 == 0) barrier(mesh, test_deadline());  // between steps the caller has the links
    }
  }));
  EXPECT_EQ(right, 3 * kSteps);
}

TEST_P(ReducerTest, GivesTheSameBitsForRandomSplits) {
  std::mt19937 random(11);
  ReducerOptions options;
  options.chunk_elements = 300;
  for (int trial = 0; trial < 20; ++trial) {
    const int world = 2 + static_cast<int>(random() % 4);
    const int shards = 8 << (random() % 3);
    std::vector<std::int64_t> ends{shards};
    while (ends.size() < static_cast<std::size_t>(world)) {
      ends.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(shards + 1)));
    }
    std::ranges::sort(ends);
    std::vector<Range> split;
    split.reserve(ends.size());
    for (const std::int64_t end : ends)
      split.push_back({split.empty() ? 0 : split.back().end, end});
    expect_exact(split, shards, 1003, 400, options, 1);
  }
}

// The texts end at any position of a ring; the sums are of floats there.
TEST_P(ReducerTest, GivesTheSameBitsAfterTextsOfAnyLength) {
  constexpr std::int64_t kElements = 300'001;  // several rings
  const auto gradients = shard_gradients(4, kElements);
  const std::vector<float> expected = tree_sum(gradients);
  for (const int world : {2, 4}) {
    std::atomic<int> right{0};
    expect_no_errors(run_ranks(world, [&](Mesh& mesh) {
      TestedReducer reducer(mesh, even_split(world, 4), 4, kElements);
      for (const std::size_t length : {1U, 2U, 3U, 1001U}) {
        const std::string text(length, static_cast<char>('a' + mesh.rank()));
        const auto texts = all_gather(mesh, text, 2000, test_deadline());
        EXPECT_EQ(texts.back(), std::string(length, static_cast<char>('a' + world - 1)));
        LocalParts own = reducer.parts(gradients);
        reduce(reducer, own.view, buckets_of(kElements, 100'000));
        right += same_bits(own.sum(), expected);
      }
    }));
    EXPECT_EQ(right, 4 * world);
  }
}

// The others have sent all partial sums that they may by then.
TEST_P(ReducerTest, GivesTheSameBitsWhenARankStartsAfterAllOthersHaveSent) {
  constexpr std::int64_t kElements = 300'001;
  const auto gradients = shard_gradients(4, kElements);
  std::atomic<int> right{0}, sent{0};
  net::WakeUp all_sent;
  expect_no_errors(run_ranks(4, [&](Mesh& mesh) {
    ReducerOptions options;
    options.faults.hook = [&, seen = 0](const char* name) mutable {
      if (name == std::string("reduce_scatter.after_send") && seen++ == 0 &&
          ++sent == 3 * mesh.streams()) {
        all_sent.signal();
      }
    };
    TestedReducer reducer(mesh, even_split(4, 4), 4, kElements, options);
    LocalParts own = reducer.parts(gradients);
    const std::vector<Range> buckets = buckets_of(kElements, 100'000);
    reducer.begin_step(own.view, buckets);
    if (mesh.rank() == 2) {
      EXPECT_EQ(net::wait_ready(all_sent.fd(), POLLIN, test_deadline()), net::Ready::kYes);
    }
    for (int bucket = 0; bucket < static_cast<int>(buckets.size()); ++bucket) reducer.start(bucket);
    reducer.wait(test_deadline());
    right += same_bits(own.sum(), tree_sum(gradients));
  }));
  EXPECT_EQ(right, 4);
}

// As when shards move away from a slow rank.
TEST_P(ReducerTest, GivesTheSameBitsWhenTheSplitChangesBetweenSteps) {
  const std::vector<std::vector<Range>> splits = {
      even_split(3, 8), {{0, 5}, {5, 7}, {7, 8}}, {{0, 1}, {1, 7}, {7, 8}}, even_split(3, 8)};
  std::atomic<int> right{0};
  expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
    for (unsigned step = 0; step < splits.size(); ++step) {
      TestedReducer reducer(mesh, splits[step], 8, 1003);
      const auto gradients = shard_gradients(8, 1003, step);
      LocalParts own = reducer.parts(gradients);
      reduce(reducer, own.view, buckets_of(1003, 400));
      right += same_bits(own.sum(), tree_sum(gradients));
    }
  }));
  EXPECT_EQ(right, 12);
}

TEST_P(ReducerTest, GivesTheSameBitsWithEveryWindowAndChunk) {
  for (const int window : {1, 2, 7}) {
    for (const std::int64_t chunk : {1, 16, 50, 100'000}) {
      ReducerOptions options;
      options.window = window;
      options.chunk_elements = chunk;
      expect_exact(even_split(3, 8), 8, 403, 97, options);
    }
  }
}

TEST_P(ReducerTest, TransfersMoreThanTheSocketBuffersHold) {
  expect_exact(even_split(2, 2), 2, 3'000'011, 1'700'000, {}, 1);
  ReducerOptions two_per_host;
  two_per_host.ranks_per_host = 2;
  expect_exact(even_split(4, 4), 4, 1'000'011, 700'000, two_per_host, 1);
}

TEST_P(ReducerTest, GivesTheSameBitsWithSeveralRanksPerHost) {
  ReducerOptions options;
  options.chunk_elements = 300;
  for (const int window : {1, 4}) {
    options.window = window;
    for (const auto& [hosts, ranks] : {std::pair{2, 2}, {3, 2}, {2, 3}, {1, 3}}) {
      options.ranks_per_host = ranks;
      for (const int shards : {8, 16}) {
        for (const std::int64_t count : {1, 17, 2003}) {
          expect_exact(even_split(hosts * ranks, shards), shards, count, 701, options);
        }
      }
    }
  }
}

TEST_P(ReducerTest, GivesTheSameBitsWithSumsRoundedToBf16) {
  ReducerOptions options;
  options.chunk_elements = 300;
  for (const Rounded rounded : {Rounded::kFirstBucket, Rounded::kAll}) {
    for (const auto& [hosts, ranks] : {std::pair{1, 1}, {2, 1}, {3, 1}, {2, 2}, {2, 3}}) {
      options.ranks_per_host = ranks;
      for (const std::int64_t count : {1, 17, 2003}) {
        expect_exact(even_split(hosts * ranks, 8), 8, count, 701, options, 2, rounded);
      }
    }
  }
}

TEST(Reducer, SendsHalfTheBytesOverTcpIfSumsAreRoundedToBf16) {
  constexpr std::int64_t kElements = 100'000;
  const auto gradients = shard_gradients(2, kElements);
  const auto bytes_sent = [&](std::int64_t bf16_count) {
    net::Relay* relay = nullptr;
    std::size_t bytes = 0;
    expect_no_errors(through_relay(false, relay, [&](Mesh& mesh) {
      Reducer reducer(mesh, even_split(2, 2), 2);
      LocalParts own(gradients, reducer.local_parts(), bf16_count);
      reduce(reducer, own.view, {{0, kElements}});
      barrier(mesh, test_deadline());
      if (mesh.rank() == 0) bytes = relay->recorded().size();
    }));
    return static_cast<double>(bytes);
  };
  constexpr double kFloats = 2.0 * kElements * sizeof(float);  // of both ranks, in both directions
  EXPECT_NEAR(bytes_sent(0), kFloats, 0.01 * kFloats);
  EXPECT_NEAR(bytes_sent(kElements), kFloats / 2, 0.01 * kFloats);
}

TEST_P(ReducerTest, GivesTheSameBitsForRandomSplitsWithTwoRanksPerHost) {
  std::mt19937 random(5);
  ReducerOptions options;
  options.chunk_elements = 300;
  options.ranks_per_host = 2;
  for (int trial = 0; trial < 20; ++trial) {
    options.window = 1 + trial % 2;
    std::vector<std::int64_t> ends{8};
    while (ends.size() < 4) ends.push_back(static_cast<std::int64_t>(random() % 9));
    std::ranges::sort(ends);
    std::vector<Range> split;
    split.reserve(ends.size());
    for (const std::int64_t end : ends)
      split.push_back({split.empty() ? 0 : split.back().end, end});
    expect_exact(split, 8, 1003, 400, options, 1);
    expect_exact(split, 8, 1003, 400, options, 1, Rounded::kFirstBucket);
  }
}

TEST_P(ReducerTest, WritesTheSumToASeparateBuffer) {
  const auto gradients = shard_gradients(8, 1003);
  expect_no_errors(run_ranks(3, [&](Mesh& mesh) {
    TestedReducer reducer(mesh, even_split(3, 8), 8, 1003);
    LocalParts own = reducer.parts(gradients);
    Floats separate(1003);
    own.view.sum = reducer.memory() == nullptr ? separate.data() : reducer.memory()->own().data();
    reduce(reducer, own.view, buckets_of(1003, 100));
    EXPECT_TRUE(same_bits(own.sum(), tree_sum(gradients)));
  }));
}

TEST_P(ReducerTest, SumsInTheOrderOfTheRanksInPlainMode) {
  const auto gradients = shard_gradients(5, 1003);
  Floats want = gradients[0];
  for (std::size_t rank = 1; rank < 5; ++rank) {
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = want[i] + gradients[rank][i];
  }
  EXPECT_FALSE(same_bits(want, tree_sum(shard_gradients(8, 1003))));
  expect_no_errors(run_ranks(5, [&](Mesh& mesh) {
    ReducerOptions options;
    options.mode = ReduceMode::kPlain;
    TestedReducer reducer(mesh, even_split(5, 8), 8, 1003, options);
    LocalParts own(gradients, {{mesh.rank(), 1}}, 0, reducer.memory());
    reduce(reducer, own.view, buckets_of(1003, 100));
    EXPECT_TRUE(same_bits(own.sum(), want));
  }));
}

TEST_P(ReducerTest, SumsOverEachHostFirstInPlainMode) {
  const auto gradients = shard_gradients(4, 1003);
  Floats want(1003);
  for (std::size_t i = 0; i < want.size(); ++i) {
    want[i] = (gradients[0][i] + gradients[1][i]) + (gradients[2][i] + gradients[3][i]);
  }
  expect_no_errors(run_ranks(4, [&](Mesh& mesh) {
    ReducerOptions options;
    options.mode = ReduceMode::kPlain;
    options.ranks_per_host = 2;
    TestedReducer reducer(mesh, even_split(4, 8), 8, 1003, options);
    LocalParts own(gradients, {{mesh.rank(), 1}}, 0, reducer.memory());
    reduce(reducer, own.view, buckets_of(1003, 100));
    EXPECT_TRUE(same_bits(own.sum(), want));
  }));
}

// As when shards move in the middle of a membership epoch.
TEST_P(ReducerTest, ANewOneContinuesWithSeveralRanksPerHost) {
  const std::vector<std::vector<Range>> splits = {
      even_split(4, 8), {{0, 5}, {5, 6}, {6, 7}, {7, 8}}, {{0, 1}, {1, 2}, {2, 4}, {4, 8}}};
  ReducerOptions options;
  options.ranks_per_host = 2;
  expect_no_errors(run_ranks(4, [&](Mesh& mesh) {
    for (unsigned step = 0; step < splits.size(); ++step) {
      TestedReducer reducer(mesh, splits[step], 8, 1003, options);
      const auto gradients = shard_gradients(8, 1003, step);
      LocalParts own = reducer.parts(gradients, 603);
      reduce(reducer, own.view, {{0, 603}, {603, 1003}});
      EXPECT_TRUE(same_bits(own.sum(), tree_sum(gradients, 603)));
    }
  }));
}

TEST_P(ReducerTest, SumsEarlyBucketsDuringTheComputationOfLaterOnes) {
  // Rank 0 starts its second bucket only after rank 1 has the sum of the first.
  net::WakeUp first_done;
  const auto gradients = shard_gradients(2, 1000);
  expect_no_errors(run_ranks(2, [&](Mesh& mesh) {
    ReducerOptions options;
    if (mesh.rank() == 1) {
      options.faults.hook = [&first_done](const char* name) {
        if (std::string(name) == "bucket.done") first_done.signal();
      };
    }
    TestedReducer reducer(mesh, even_split(2, 2), 2, 1000, options);
    LocalParts own = reducer.parts(gradients);
    const auto buckets = buckets_of(1000, 500);
    reducer.begin_step(own.view, buckets);
    reducer.start(0);
    if (mesh.rank() == 0) {
      EXPECT_EQ(net::wait_ready(first_done.fd(), POLLIN, test_deadline()), net::Ready::kYes);
    }
    reducer.start(1);
    reducer.wait(test_deadline());
    EXPECT_TRUE(same_bits(own.sum(), tree_sum(gradients)));
  }));
}

TEST_P(ReducerTest, MeasuresHowMuchOfTheExchangeTheComputationHides) {
  // Rank 0 computes until rank 1, which starts its bucket later, has the sum.
  constexpr std::chrono::milliseconds kDelay{20};
  net::WakeUp begun, released, summed;
  const auto gradients = shard_gradients(2, 1000);
  expect_no_errors(run_ranks(2, [&](Mesh& mesh) {
    ReducerOptions options;
    if (mesh.rank() == 0) {
      options.faults.hook = [&begun](const char* name) {
        if (std::string(name) == "reduce_scatter.before_send") begun.signal();
      };
    }
    const auto await = [](const net::WakeUp& event) {
      EXPECT_EQ(net::wait_ready(event.fd(), POLLIN, test_deadline()), net::Ready::kYes);
    };
    TestedReducer reducer(mesh, even_split(2, 2), 2, 1000, options);
    LocalParts own = reducer.parts(gradients);
    reducer.begin_step(own.view, buckets_of(1000, 1000));
    if (mesh.rank() == 1) await(released);
    reducer.start(0);
    if (mesh.rank() == 0) {
      await(begun);
      std::this_thread::sleep_for(kDelay);
      released.signal();
      await(summed);
    }
    reducer.wait(test_deadline());
    const ExchangeTimes& times = reducer.times();
    EXPECT_LE(times.wait, times.exchange);
    if (mesh.rank() == 0) {
      EXPECT_GE(times.exchange - times.wait, kDelay);
    } else {
      summed.signal();
    }
  }));
}

TEST_P(ReducerTest, HitsItsFaultPointsOncePerBucketAndStreamInOrder) {
  const auto gradients = shard_gradients(2, 1000);
  std::mutex mutex;
  std::vector<std::vector<std::string>> names(2);
  expect_no_errors(run_ranks(2, [&](Mesh& mesh) {
    ReducerOptions options;
    options.chunk_elements = 100;
    options.faults.hook = [&, rank = static_cast<std::size_t>(mesh.rank())](const char* name) {
      const std::lock_guard lock(mutex);
      names[rank].push_back(name);
    };
    TestedReducer reducer(mesh, even_split(2, 2), 2, 1000, options);
    LocalParts own = reducer.parts(gradients);
    reduce(reducer, own.view, buckets_of(1000, 250));
  }));
  for (const auto& of_rank : names) {
    for (const char* name : {"reduce_scatter.before_send", "reduce_scatter.after_send",
                             "all_gather.before_send", "bucket.done"}) {
      EXPECT_EQ(std::ranges::count(of_rank, name), 4 * GetParam().streams) << name;
    }
    EXPECT_EQ(of_rank.front(), "reduce_scatter.before_send");
    EXPECT_EQ(of_rank.back(), "bucket.done");
  }
}

TEST(Reducer, WithOneRankMergesPartsWithoutThreadOrSocket) {
  const auto gradients = shard_gradients(8, 1003);
  const auto mesh = Mesh::single_rank();
  Reducer reducer(*mesh, even_split(1, 8), 8);
  LocalParts own(gradients, reducer.local_parts());
  ASSERT_EQ(own.buffers.size(), 1u);
  reduce(reducer, own.view, buckets_of(1003, 100));
  EXPECT_TRUE(same_bits(own.sum(), tree_sum(gradients)));
}

TEST(ReducerDeathTest, AbortsOnWrongPartsOrBucketOrder) {
  const auto gradients = shard_gradients(2, 16);
  const auto mesh = Mesh::single_rank();
  Reducer reducer(*mesh, even_split(1, 2), 2);
  LocalParts own(gradients, {{0, 1}});
  EXPECT_DEATH(reducer.begin_step(own.view, buckets_of(16, 8)), "expected 0 to 2");
  LocalParts whole(gradients, {{0, 2}});
  reducer.begin_step(whole.view, buckets_of(16, 8));
  EXPECT_DEATH(reducer.start(1), "start\\(1\\), expected 0 of 2");
  EXPECT_DEATH(reducer.wait(test_deadline()), "0 of 2 buckets started");
  EXPECT_DEATH(reducer.finish(test_deadline()), "0 of 2 buckets started");
}

}  // namespace
}  // namespace tilewright::collectives
