// A training of two workers under TLS writes the same weights as one without TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using testing::RunningProgram;

// Twelve steps of two workers under `up`; returns the SHA-256 it prints, "" on failure.
std::string trained_hash(const fs::path& folder, const std::string& name, const std::string& conf) {
  std::ofstream(folder / (name + ".yaml")) << "apiVersion: tilewright.dev/v1alpha1\n"
                                           << "kind: TrainJob\n"
                                           << "metadata: {name: " << name << "}\n"
                                           << R"(spec:
  elasticPolicy: {minReplicas: 2, maxReplicas: 2, rdzvConf: )"
                                           << conf << R"(}
  trainer:
    task: mrpc
    model: models:.
    data: data:.
    output: output:$(TILEWRIGHT_JOB_NAME)
    per_device_train_batch_size: 4
    max_steps: 12
    do_eval: false
  worker: {replicas: 2, image: tilewright-worker}
  volumes:
    - {name: models, local: )" << testing::model_dir().string()
                                           << R"(}
    - {name: data, local: )" << (testing::source_dir() / "examples/data/paraphrase").string()
                                           << R"(}
    - {name: output, local: .}
)";
  RunningProgram up(testing::program("tilewright"), {"up", "--verbose", name + ".yaml"}, folder);
  EXPECT_EQ(up.wait(), 0) << up.output();
  EXPECT_THAT(up.output(), ::testing::HasSubstr("rank 0 of 2"));
  std::smatch match;
  const std::regex pattern("output: SHA-256 ([0-9a-f]{64})");
  if (!std::regex_search(up.output(), match, pattern)) ADD_FAILURE() << up.output();
  return match.empty() ? "" : match[1].str();
}

TEST(TrainingUnderTls, HasTheHashOfPlaintextTraining) {
  ASSERT_EQ(testing::missing_model(), "");
  const testing::TemporaryDirectory folder;
  EXPECT_EQ(trained_hash(folder.path(), "tls", "[{key: tls, value: \"true\"}]"),
            trained_hash(folder.path(), "plain", "[]"));
}

}  // namespace
}  // namespace tilewright
