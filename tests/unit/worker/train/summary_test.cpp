#include "worker/train/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright::train {
namespace {

// With the 29 columns of timestamp and level, a log line stays below 120.
constexpr std::size_t kMaxSummaryColumns = 90;

TEST(Summary, MachineLineShortensTheCpuModel) {
  const std::string line =
      machine_line({.cpu_model = "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.4GHz",
                    .workers = 2,
                    .threads = 1,
                    .isa = runtime::Isa::kAvx512Bf16,
                    .peak_gflops = 493.2});
  EXPECT_EQ(line,
            "machine: Intel Xeon Platinum 8488C, 2 x 1 thread, avx512_bf16, peak 2 x 493 GFLOP/s");
  EXPECT_LE(line.size(), kMaxSummaryColumns);
}

TEST(Summary, LongLinesAreTruncated) {
  const std::string line = machine_line({.cpu_model = std::string(100, 'x'),
                                         .workers = 1000,
                                         .threads = 1000,
                                         .isa = runtime::Isa::kAvx512Bf16,
                                         .bf16 = false,
                                         .peak_gflops = 99999});
  EXPECT_EQ(line.size(), kMaxSummaryColumns);
}

TEST(Summary, SpeedLinesNameEachRankThatChanges) {
  const std::vector<std::string> names = {"worker 0", "worker 1 (process 2)"};
  const RankSpeeds even{{}, {{0, 4}, {4, 8}}};
  const RankSpeed fast{.seconds = 0.12, .others_seconds = 0.48, .slowdown = 0.25};
  const RankSpeed slow{.seconds = 0.48, .others_seconds = 0.12, .slowdown = 4, .slow = true};
  const RankSpeeds moved{{fast, slow}, {{0, 7}, {7, 8}}};
  EXPECT_EQ(speed_lines(even, moved, names, true),
            (std::vector<std::string>{"speed: worker 1 (process 2) is slow (480 ms per step, "
                                      "others 120 ms): now 1 of 8 shards, was 4"}));
  EXPECT_EQ(speed_lines(moved, moved, names, true), (std::vector<std::string>{}));
  const RankSpeeds again{{fast, slow}, {{0, 6}, {6, 8}}};
  EXPECT_EQ(speed_lines(moved, again, names, true),
            (std::vector<std::string>{"speed: worker 1 (process 2) is still slow (480 ms per step, "
                                      "others 120 ms): now 2 of 8 shards, was 1"}));
  const RankSpeeds recovered{{fast, fast}, even.split};
  EXPECT_EQ(speed_lines(moved, recovered, names, true),
            (std::vector<std::string>{"speed: worker 1 (process 2) is no longer slow (120 ms per "
                                      "step, others 480 ms): now 4 of 8 shards, was 1"}));
  const RankSpeeds stays{{fast, slow}, even.split};
  EXPECT_EQ(speed_lines(even, stays, names, true),
            (std::vector<std::string>{"speed: worker 1 (process 2) is slow (480 ms per step, "
                                      "others 120 ms): keeps 4 of 8 shards"}));
  EXPECT_EQ(speed_lines(even, stays, names, false),
            (std::vector<std::string>{"speed: worker 1 (process 2) is slow (480 ms per step, "
                                      "others 120 ms): shards move only with --exact"}));
}

TEST(Summary, LinesSayOneInTheSingular) {
  Job job;
  job.schedule.total_steps = 1;
  job.settings.global_batch = job.settings.virtual_shards = 1;
  EXPECT_EQ(training_line(job), "training: 1 step of 1 example, 1 virtual shard, exact");
  job.schedule.total_steps = 168;
  job.settings.global_batch = 32;
  job.settings.virtual_shards = 8;
  EXPECT_EQ(training_line(job), "training: 168 steps of 32 examples, 8 virtual shards, exact");
  EXPECT_EQ(results_line({.metrics = {{"accuracy", 1}}, .loss = 0.5, .examples = 1}),
            "results: accuracy 1.0000; loss 0.5000; 1 example");
  job.settings.do_eval = job.settings.do_predict = false;
  tasks::DatasetLists lists;
  lists.append({.ids = {2, 3}, .first_segment = 2});
  job.train_data = tasks::Dataset(std::move(lists));
  EXPECT_EQ(data_line(job), "data: 1 example (2.0 tokens on average, 2 at most)");
}

TEST(Summary, ContinuationLineSaysWhatAllWaitedFor) {
  ContinuationSummary summary;
  summary.joined = {{1, 0}};
  summary.step = 57;
  summary.workers = 2;
  summary.bytes = 1'314'000'000;
  EXPECT_THAT(continuation_line(summary),
              ::testing::AllOf(::testing::StartsWith(
                                   "resized: worker 1 joined; 2 workers continue after step 57"),
                               ::testing::HasSubstr("state 0.000 s for 1314 MB)")));
  summary.in_background = true;
  EXPECT_THAT(continuation_line(summary), ::testing::HasSubstr("s for a part of 1314 MB)"));
}

TEST(Summary, StateSentLineNamesTheWorkersAndTheSteps) {
  const std::vector<std::string> names = {"worker 0", "worker 1", "worker 2"};
  EXPECT_EQ(state_sent_line(names, {1}, 58, 58),
            "worker 1 has the state: its rest was sent during step 58");
  EXPECT_EQ(state_sent_line(names, {0, 2}, 58, 60),
            "worker 0, worker 2 have the state: its rest was sent during steps 58 to 60");
}

TEST(Summary, ResultsAndBaselinesFitOnOneLine) {
  const tasks::Metrics metrics = {{"accuracy", 0.5}, {"f1", 0.25}, {"combined_score", 0.375}};
  const std::string results =
      results_line({.metrics = metrics, .loss = 0.704, .seconds = 1, .examples = 180});
  EXPECT_EQ(
      results,
      "results: accuracy 0.5000, f1 0.2500, combined_score 0.3750; loss 0.7040; 180 examples");
  EXPECT_LE(results.size(), kMaxSummaryColumns);
  const std::string baselines = baselines_line({{"majority", metrics}, {"word overlap", metrics}});
  EXPECT_EQ(baselines,
            "baselines: majority accuracy 0.5000, f1 0.2500; word overlap accuracy 0.5000, "
            "f1 0.2500");
  EXPECT_LE(baselines.size(), kMaxSummaryColumns);
}

}  // namespace
}  // namespace tilewright::train
