// Fixture of the e2e training tests: a claim with a model and data, a job that trains from it,
// waits on the job's status, and the hash of the trained model.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/kubernetes.h"

namespace tilewright::testing {

enum class Model {
  kSmall,   // 2 layers, hidden size 128, tiny vocabulary: thousands of steps/min
  kMiniLm,  // two of the six layers of MiniLM
  // The guides' models with a hidden size of 32, and SQuAD:
  kHub,      // DistilBERT and Parquet files, in a cache of the hub
  kPrepared  // BERT-large in a cache of transformers 4, Arrow files in one of the datasets library
};

// The manifest of the job `mrpc`: one worker that trains two steps from the claim `work`. Tests
// change it as needed.
nlohmann::json training_job(Model model);

class TrainingJobTest : public KubernetesTest {
 protected:
  // `data`: a directory of examples/data. `job`: the name of the job that the functions below mean,
  // `kind` its resource.
  explicit TrainingJobTest(Model model, std::string data = "paraphrase", std::string job = "mrpc",
                           std::string kind = "tj.tilewright.dev")
      : model_(model), data_(std::move(data)), job_(std::move(job)), kind_(std::move(kind)) {}
  // Creates the claim `work` in the test's namespace, with directories `model` and `data`, or with
  // caches.
  void SetUp() override;
  void TearDown() override;

  // Runs a shell command with the claim mounted at /work and returns its output.
  std::string run_with_claim(const std::string& script) const;
  // Adds a kubectl command that runs when the test ends, also after a failure.
  void add_cleanup(std::vector<std::string> command) { cleanups_.push_back(std::move(command)); }

  // Runs `kubectl logs -f` in the background, until the container has exited.
  std::future<std::string> follow_log(const std::string& pod) const;

  nlohmann::json job() const { return get(kind_ + "/" + job_); }
  // Applies a merge patch.
  void patch_job(const nlohmann::json& patch) const;
  using MessageMatcher = ::testing::Matcher<const std::string&>;
  // Waits until the condition is true with that reason; its message and an event of that reason
  // must match.
  void wait_for_condition(const std::string& type, const std::string& reason,
                          const MessageMatcher& says) const;
  // The same for the condition Blocked.
  void wait_for_blocked(const std::string& reason, const MessageMatcher& says) const {
    wait_for_condition("Blocked", reason, says);
  }
  void wait_for_event(const std::string& reason, const MessageMatcher& says) const;
  // Runs `kubectl wait`; `what` is, for example, --for=condition=Blocked. Returns the job at that
  // time; on timeout, fails the test and prints the job.
  nlohmann::json wait_for(const std::string& what) const;
  void wait_for_success() const;
  // Waits for the first checkpoint, so that there is progress to lose.
  void wait_for_checkpoint() const { wait_for("jsonpath={.status.progress.lastCheckpoint}"); }

  std::string hash_of_cluster_run(const std::string& output = "out") const;
  // Starts the same job under `tilewright up` on this machine, in the background, because the pods,
  // of 0.3 CPUs each, leave CPUs idle.
  void start_local_run(const nlohmann::json& manifest, const std::string& output = "out");
  // Waits for that run and returns its hash.
  std::string hash_of_local_run() { return local_run_.get(); }

  // Runs the built `tilewright` with the cluster's KUBECONFIG.
  CommandResult tilewright(const std::vector<std::string>& arguments) const;
  // Runs tests/cluster/cluster, for operations on the node that kubectl does not offer.
  CommandResult cluster(const std::vector<std::string>& arguments) const;
  // Whether KUBECONFIG names the cluster that tests/cluster/cluster manages.
  bool is_make_cluster() const;

  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  std::string describe_job() const;

  Model model_;
  std::string data_;
  std::string job_;
  std::string kind_;
  TemporaryDirectory folder_;
  std::future<std::string> local_run_;  // waits when it is destroyed, and uses the directory
  std::vector<std::vector<std::string>> cleanups_;
};

// The environment variable TILEWRIGHT_FAULT for a job's pods: each step of the membership epochs 1,
// 2, ... takes so many milliseconds longer (> 0). With it a training lasts long enough on a CPU of
// any speed.
nlohmann::json delayed_epochs(const std::vector<int>& milliseconds);

// A claim of the default StorageClass.
nlohmann::json claim(const std::string& name, const std::string& access_mode = "ReadWriteOnce");

// Mounts the claim at /NAME.
nlohmann::json with_claim(nlohmann::json pod, const std::string& name);

}  // namespace tilewright::testing
