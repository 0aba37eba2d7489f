// Compares the loss of an evaluation with transformers' LabelSmoother. tests/golden/train has the
// values and the script that writes them.
#include "worker/train/evaluator.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/paths.h"
#include "tests/unit/worker/collectives/cluster.h"
#include "tests/unit/worker/tasks/squad_builders.h"
#include "worker/runtime/float_mode.h"
#include "worker/tasks/registry.h"
#include "worker/tasks/squad/squad.h"
#include "worker/train/collective_limits.h"

namespace tilewright::train {
namespace {

TEST(Evaluator, SmoothsTheLabelsOfTheLossAsTheTrainerDoes) {
  std::ifstream file(testing::source_dir() / "tests/golden/train/label_smoothing.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json golden = nlohmann::json::parse(file);
  int compared = 0;
  for (const auto& one : golden.at("cases")) {
    const int classes = one.at("classes");
    const auto task = tasks::make_task({.name = classes == 3 ? "mnli" : "mrpc"});
    if (classes != task->num_labels()) continue;
    const auto logits = one.at("logits").get<std::vector<float>>();
    tasks::DatasetLists lists;
    lists.labels = one.at("labels").get<std::vector<std::int32_t>>();
    lists.offsets.resize(lists.labels.size() + 1);
    lists.first_segments.resize(lists.labels.size());
    const EvaluationSet set{
        .part = {tasks::Split::kDev, 0}, .suffix = "", .data = tasks::Dataset(std::move(lists))};
    const double epsilon = one.at("epsilon");
    // The LabelSmoother sums over the classes in float32.
    const double expected = one.at("trainer_loss");
    EXPECT_NEAR(score(*task, set, logits, epsilon).loss, expected, 1e-6 * expected);
    EXPECT_NE(score(*task, set, logits, 0).loss, score(*task, set, logits, epsilon).loss);
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

// exp(-90) is a denormal number, which the mode of the kernels makes zero.
TEST(Evaluator, WritesSmallProbabilitiesAsNumpyDoes) {
  using tasks::squad::examples_of, tasks::tiny_tokenizer;
  const auto task = tasks::make_task({.name = "squad"});
  const EvaluationSet set{
      .part = {tasks::Split::kDev, 0},
      .suffix = "",
      .data = tasks::squad::make_dataset(examples_of("a b", {{"q", "x", 0, {{"a", 0}}}}),
                                         tasks::Split::kDev, tiny_tokenizer(), {}, "f")};
  // {start, end} of [CLS] x [SEP] a b [SEP].
  const std::vector<float> logits = {-9, -9, -9, -9, -9, -9, 0, 0, -90, -90, -9, -9};
  double found = 0;
  std::thread([&] {
    runtime::flush_denormals();
    const EvaluationResult result = score(*task, set, logits, 0);
    found = nlohmann::json::parse(result.prediction_files.at("eval_nbest_predictions.json"))
                .at("q")
                .at(1)
                .at("probability");
  }).join();
  EXPECT_EQ(found, 0x1.1d85p-130) << "softmax of {0, -90, -180} by NumPy 2.4.6";
}

// A rank with more logits than one operation takes is no lost peer.
TEST(Evaluator, GathersMoreLogitsThanOneOperationTakes) {
  const std::vector<std::vector<float>> own = {{1, 2}, {3, 4, 5, 6, 7}, {}, {8, 9, 10}};
  std::vector<float> found;
  collectives::expect_no_errors(collectives::run_ranks(4, [&](collectives::Mesh& mesh) {
    const std::vector<float> all = gather_logits(mesh, own[static_cast<std::size_t>(mesh.rank())],
                                                 10, collectives::test_deadline(), 2);
    if (mesh.rank() == 0) {
      found = all;
    } else {
      EXPECT_TRUE(all.empty());
    }
  }));
  EXPECT_EQ(found, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

// The second number makes the sum of all small again.
TEST(Evaluator, RefusesMoreLogitsThanTheDataHave) {
  for (const char* count : {"9", "18446744073709551608", "-1", "x"}) {
    const std::vector<std::string> errors = collectives::run_ranks(3, [&](collectives::Mesh& mesh) {
      const std::vector<float> own(4);
      if (mesh.rank() == 1) {
        collectives::all_gather(mesh, count, kMaxCollectiveBytes, collectives::test_deadline());
      } else {
        gather_logits(mesh, own, 12, collectives::test_deadline(), 2);
      }
    });
    for (const std::size_t rank : {0U, 2U}) {
      EXPECT_EQ(errors[rank], std::string("rank 1 sent \"") + count +
                                  "\" as the number of its logits, expected at most 8");
    }
  }
}

TEST(Evaluator, WaitsForAWorkerThatNeedsTenTimesAsLong) {
  using std::chrono::hours, std::chrono::minutes, std::chrono::seconds;
  const MonotonicTime begin = monotonic_now();
  EXPECT_EQ(collective_deadline(begin, begin + hours(1)), begin + hours(10));
  EXPECT_EQ(collective_deadline(begin, begin + seconds(1)), begin + seconds(1) + minutes(10));
}

}  // namespace
}  // namespace tilewright::train
