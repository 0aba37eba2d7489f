// `tilewright up` on manifests that name a model and a data set of the hub: the weights are those
// of a run from directories, and a second run needs no network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/exit_codes.h"
#include "tests/integration/hub_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class UpByName : public testing::HubTraining {
 protected:
  // Runs a job of two workers whose spec.trainer has these lines, and one local directory each for
  // the volumes models, questions, work and output.
  int up(const std::string& name, const std::string& trainer) {
    std::ofstream(path("job.yaml")) << R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {name: )" << name << R"(}
spec:
  trainer:
)" << trainer << R"(
    output: output:$(TILEWRIGHT_JOB_NAME)
    per_device_train_batch_size: 4
    num_train_epochs: 1
  worker:
    replicas: 2
    resources: {cpu: 1, memory: 1Gi}
  volumes:
    - {name: models, local: )" << (testing::hub_files() / "models").string()
                                    << R"(}
    - {name: questions, local: )" << (testing::source_dir() / "examples/data/questions").string()
                                    << R"(}
    - {name: work, local: work}
    - {name: output, local: results}
)";
    testing::RunningProgram running(testing::program("tilewright"), {"up", "job.yaml", "--verbose"},
                                    folder());
    const int code = running.wait();
    output_ = running.output();
    return code;
  }
  // Expects that large files, which the hub's storage serves, have been downloaded only once.
  void expect_one_download() const {
    int files = 0;
    for (const auto& request : hub_->requests()) {
      if (!request.storage) continue;
      EXPECT_EQ(hub_->count("GET", request.target), 1) << request.target;
      ++files;
    }
    EXPECT_GT(files, 0);
  }
};

constexpr const char* kNames =
    "    model: distilbert-base-uncased\n"
    "    dataset_name: squad\n";
// The rows that the hub's data set has.
constexpr const char* kDirectories =
    "    task: squad\n"
    "    model: models:distilbert/distilbert-base-uncased\n"
    "    data: \"questions:\"\n"
    "    max_train_samples: 24\n"
    "    max_eval_samples: 8\n";

TEST_F(UpByName, TrainsTheWeightsOfARunFromDirectories) {
  ASSERT_EQ(up("directories", kDirectories), 0) << output_;
  const std::string reference = digest();
  EXPECT_EQ(hub_->requests().size(), 0u);
  ASSERT_EQ(up("names", kNames), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("names: squad, 2 workers"));
  EXPECT_EQ(digest(), reference);
  EXPECT_TRUE(fs::exists(path("cache/hub"))) << "the user's own cache";
  // Each worker needs the file; the lock lets one of them download it.
  expect_one_download();
  hub_.reset();
  const testing::ScopedVariable offline("HF_HUB_OFFLINE", "1");
  ASSERT_EQ(up("offline", kNames), 0) << output_;
  EXPECT_EQ(digest(), reference);
  EXPECT_THAT(output_, Not(HasSubstr("downloading")));
}

TEST_F(UpByName, KeepsDownloadsInTheCacheOfTheManifest) {
  ASSERT_EQ(up("cached", std::string(kNames) + "    cache: work:hub\n"), 0) << output_;
  const std::string reference = digest();
  EXPECT_TRUE(fs::exists(path("work/hub/models--distilbert-base-uncased/refs/main")));
  EXPECT_FALSE(fs::exists(path("cache"))) << "the user's cache is not used";
  hub_.reset();
  const testing::ScopedVariable offline("HF_HUB_OFFLINE", "1");
  ASSERT_EQ(up("again", std::string(kNames) + "    cache: work:hub\n"), 0) << output_;
  EXPECT_EQ(digest(), reference);
}

// The flags of the guide's command line; output_dir becomes a path on a volume.
TEST_F(UpByName, TakesTheCommandLineOfAScript) {
  ASSERT_EQ(up("fields", kNames), 0) << output_;
  const std::string reference = digest();
  ASSERT_EQ(up("arguments",
               "    args: [--model_name_or_path, distilbert-base-uncased, --dataset_name, squad,\n"
               "      --do_train, --do_eval, --overwrite_output_dir, --no_cuda, --xpu_backend, "
               "ccl]\n"),
            0)
      << output_;
  EXPECT_EQ(digest(), reference);
  EXPECT_THAT(output_, HasSubstr("spec.trainer.no_cuda: has no effect"));
}

TEST_F(UpByName, FailsOnceIfTheHubHasNoSuchModel) {
  EXPECT_EQ(up("missing",
               "    model: no-such-org/no-such-name\n"
               "    dataset_name: squad\n"
               "    cache: work:hub\n"),
            static_cast<int>(ExitCode::kJobFailed));
  EXPECT_THAT(output_, HasSubstr("model no-such-org/no-such-name"));
  EXPECT_THAT(output_, HasSubstr("has no public model of this name"));
  EXPECT_FALSE(fs::exists(path("results/missing")));
}

}  // namespace
}  // namespace tilewright
