#include "worker/bench/workload.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/result.h"

namespace tilewright::bench {
namespace {

TEST(Workload, DescribesEqualAndDifferentLengths) {
  Workload workload;
  EXPECT_EQ(workload.description(), "bert-base 32 x 128");
  workload.question_answering = true;
  workload.lengths = {10, 20, 60};
  EXPECT_EQ(workload.description(), "bert-base question answering 3 x 10 to 60 (mean 30.0)");
  nlohmann::ordered_json json;
  workload.add_to(json);
  EXPECT_EQ(json["head"], "question_answering");
  EXPECT_EQ(json["tokens"], 90);
}

TEST(RandomBatch, PutsExampleIOfNInShardIVDividedByN) {
  Workload workload;
  workload.lengths = {3, 1, 4, 1, 5};
  const nn::Batch batch = random_batch(workload, 8);
  // i * 8 / 5, rounded down, for i = 0 to 4: 0, 1, 3, 4, 6.
  EXPECT_EQ(batch.groups.at(0).example_offsets,
            (std::vector<std::int32_t>{0, 1, 2, 2, 3, 4, 4, 5, 5}));
  EXPECT_EQ(batch.lengths, workload.lengths);
}

TEST(RandomBatch, HasTheSameTokensForAnyNumberOfShards) {
  const Workload workload;
  EXPECT_EQ(random_batch(workload, 8).ids, random_batch(workload, 1).ids);
}

TEST(ModelConfig, NamesTheKnownModels) {
  Workload workload;
  workload.model = "gpt2";
  try {
    model_config(workload);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_STREQ(
        failure.what(),
        "--model: found \"gpt2\", expected one of bert-base, bert-large, distilbert, minilm");
  }
}

}  // namespace
}  // namespace tilewright::bench
