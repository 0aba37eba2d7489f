// A PyTorchJob of the CPU guides moves to the native trainer by its image alone: it survives the
// loss of pods and ends with the weights of the TrainJob that `tilewright convert` makes of it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
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

// The guide's manifest with what a small node and a cache without network need: another claim and
// node, less CPU and memory, small batches, many steps.
json guide_job(bool has_pool_label) {
  std::string text =
      testing::read_text(testing::source_dir() / "tests/golden/guides/pytorchjob-distilbert.yaml");
  for (const auto& [from, to] :
       {std::pair{"distilbert/distilbert-base-uncased", "distilbert-base-uncased"},
        std::pair{"--per_device_train_batch_size 12", "--per_device_train_batch_size 2"},
        std::pair{"--num_train_epochs 2", "--num_train_epochs 1500 --save_steps 100"},
        std::pair{"cpu: 240", "cpu: 300m"}, std::pair{"memory: 128Gi", "memory: 512Mi"},
        std::pair{"claimName: transformers-pvc", "claimName: work"}}) {
    text = std::regex_replace(text, std::regex(from), to);
  }
  json job = read_yaml(text).tree;
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
  GuidePyTorchJob()
      : TrainingJobTest(testing::Model::kHub, "", kName, "pytorchjobs.kubeflow.org") {}

  json own_status() const { return job()["status"]["tilewright"]; }
  void kill_pod(int index) const {
    kubectl_ok({"delete", "pod", fmt::format("{}-worker-{}", kName, index), "--grace-period=1",
                "--wait=false"});
  }
};

TEST_F(GuidePyTorchJob, TrainsNativelyThroughTheLossOfPods) {
  // The guides' pods have no security context.
  kubectl_ok({"label", "namespace", namespace_name(), "--overwrite",
              "pod-security.kubernetes.io/enforce=baseline"});
  const json manifest = guide_job(is_make_cluster());
  create(manifest);
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

  std::ofstream(folder() / "pytorchjob.yaml") << manifest.dump();
  const CommandResult converted = tilewright({"convert", "pytorchjob.yaml"});
  ASSERT_EQ(converted.exit_code, 0) << converted.error;
  json train_job = read_yaml(converted.output).tree;
  train_job["spec"]["volumes"][0]["local"] = ".";
  EXPECT_EQ(hash_of_cluster_run(directory.substr(directory.rfind('/') + 1)),
            hash_of_local_run(train_job, fmt::format("output_{}", kName)));
}

}  // namespace
}  // namespace tilewright
