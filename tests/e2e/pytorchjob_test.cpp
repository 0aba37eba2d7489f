// The PyTorchJobs of the CPU guides move to the native trainer by their image alone: they survive
// the loss of pods and end with the weights of the TrainJob that `tilewright convert` makes of
// them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <regex>

#include "common/json/document.h"
#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using testing::CommandResult;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kName = "transformers-pytorchjob";

// A guide's manifest with what a small node and a cache without network need: another claim and
// node, less CPU and memory, and `changes` to its flags.
json guide_job(const std::string& file, bool has_pool_label,
               const std::map<std::string, std::string>& changes) {
  std::string text = testing::read_text(testing::source_dir() / "tests/golden/guides" / file);
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_TRUE(std::regex_search(text, std::regex(from))) << from;
    text = std::regex_replace(text, std::regex(from), to);
  };
  replace("cpu: 2[04]0", "cpu: 300m");
  replace("memory: 128Gi", "memory: 512Mi");
  replace("claimName: transformers-pvc", "claimName: work");
  for (const auto& [from, to] : changes) replace(from, to);
  json job = read_yaml(text).tree;
  job["metadata"].erase("namespace");
  json& pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"];
  pod["nodeSelector"] = {{"tilewright.dev/pool", "cpu"}};
  if (!has_pool_label) pod.erase("nodeSelector");
  json& container = pod["containers"][0];
  container["image"] = testing::worker_image();
  container["env"].push_back({{"name", "HF_HUB_OFFLINE"}, {"value", "1"}});
  return job;
}

class GuidePyTorchJob : public testing::TrainingJobTest {
 protected:
  explicit GuidePyTorchJob(testing::Model model = testing::Model::kHub)
      : TrainingJobTest(model, "", kName, "pytorchjobs.kubeflow.org") {}
  void SetUp() override {
    TrainingJobTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    // The guides' pods have no security context.
    kubectl_ok({"label", "namespace", namespace_name(), "--overwrite",
                "pod-security.kubernetes.io/enforce=baseline"});
  }

  json own_status() const { return job()["status"]["tilewright"]; }
  void kill_pod(int index) const {
    kubectl_ok({"delete", "pod", fmt::format("{}-worker-{}", kName, index), "--grace-period=1",
                "--wait=false"});
  }
  // Starts the TrainJob that `tilewright convert` makes of the manifest.
  void start_converted_job(const json& manifest, const std::string& output) {
    std::ofstream(folder() / "pytorchjob.yaml") << manifest.dump();
    const CommandResult converted = tilewright({"convert", "pytorchjob.yaml"});
    EXPECT_EQ(converted.exit_code, 0) << converted.error;
    json train_job = read_yaml(converted.output).tree;
    train_job["spec"]["volumes"][0]["local"] = ".";
    start_local_run(train_job, output);
  }
};

// The manifest whose command is a list of words.
class GuideBertLarge : public GuidePyTorchJob {
 protected:
  GuideBertLarge() : GuidePyTorchJob(testing::Model::kPrepared) {}
};

TEST_F(GuidePyTorchJob, TrainsNativelyThroughTheLossOfPods) {
  const json manifest =
      guide_job("pytorchjob-distilbert.yaml", is_make_cluster(),
                {{"distilbert/distilbert-base-uncased", "distilbert-base-uncased"},
                 {"--per_device_train_batch_size 12", "--per_device_train_batch_size 2"},
                 {"--num_train_epochs 2", "--num_train_epochs 500 --save_steps 100"}});
  // The pods must be lost, the second one in epoch 2 or 3, and replaced before the last step. The
  // local run has no delays.
  json delayed = manifest;
  delayed["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"]
      .push_back(testing::delayed_epochs({50, 100, 100, 20}));
  create(delayed);
  start_converted_job(manifest, fmt::format("output_{}", kName));
  wait_for("jsonpath={.status.tilewright.progress.lastCheckpoint}");
  const std::string directory = own_status().value("outputDirectory", "");
  EXPECT_THAT(directory, MatchesRegex("/tmp/pvc-mount/output_[0-9]{8}_[0-9]{6}"));
  EXPECT_THAT(kubectl_ok({"logs", fmt::format("{}-worker-0", kName)}),
              HasSubstr("run_qa.py: runs natively as tilewright-worker train"));
  kill_pod(2);
  wait_for("jsonpath={.status.tilewright.restarts.infrastructure}=1");
  kill_pod(0);
  wait_for("jsonpath={.status.completionTime}");

  const json status = job()["status"];
  EXPECT_EQ(status["conditions"].back()["type"], "Succeeded") << status;
  EXPECT_EQ(status["replicaStatuses"]["Worker"]["succeeded"], 4) << status;
  const json own = own_status();
  EXPECT_EQ(own["restarts"]["infrastructure"], 2) << own;
  EXPECT_EQ(own["restarts"]["program"], 0) << own;
  EXPECT_EQ(own["nominalWorkers"], 4) << own;
  EXPECT_EQ(own["outputDirectory"], directory) << "restarts keep the directory";
  EXPECT_THAT(run_with_claim("ls /work"),
              MatchesRegex("hub_cache\n(lost.found\n)?output_[0-9_]+\n"));

  EXPECT_EQ(hash_of_cluster_run(directory.substr(directory.rfind('/') + 1)), hash_of_local_run());
}

TEST_F(GuideBertLarge, TrainsFromTheCachesOfThePythonLibraries) {
  const json manifest =
      guide_job("pytorchjob-bert-large.yaml", is_make_cluster(),
                {{"\"12\"", "\"2\""}, {"- \"2\"(?=\\s+- --max_seq)", "- \"50\""}});
  create(manifest);
  start_converted_job(manifest, "output");
  wait_for("jsonpath={.status.completionTime}");
  const json status = job()["status"];
  EXPECT_EQ(status["conditions"].back()["type"], "Succeeded") << status;
  EXPECT_EQ(status["replicaStatuses"]["Worker"]["succeeded"], 4) << status;
  const std::string log = kubectl_ok({"logs", fmt::format("{}-worker-0", kName)});
  EXPECT_THAT(log, HasSubstr("run_qa.py: runs natively as tilewright-worker train"));
  EXPECT_THAT(log, HasSubstr("***** eval metrics *****"));
  EXPECT_EQ(hash_of_cluster_run("output"), hash_of_local_run());
}

}  // namespace
}  // namespace tilewright
