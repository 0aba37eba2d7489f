// What the tests of training jobs share: a claim with a model and data on it, a job that trains
// from it, waiting for what the job says of itself, and the hash of what it wrote.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/kubernetes.h"

namespace tilewright::testing {

enum class Model {
  kSmall,   // two layers of 128 without a vocabulary to speak of: thousands of steps a minute
  kMiniLm,  // the real one, of `make model`
};

// A manifest of the job `mrpc`: one worker that trains two steps from the claim `work`. A test
// changes what it is about.
nlohmann::json training_job(Model model);

class TrainingJobTest : public KubernetesTest {
 protected:
  explicit TrainingJobTest(Model model) : model_(model) {}
  // The claim `work` in a namespace of the test's own, with folders `model` and `data`.
  void SetUp() override;
  void TearDown() override;

  // What a shell prints that has the claim at /work.
  std::string in_claim(const std::string& script) const;
  // A command of kubectl, run when the test ends however it does.
  void at_the_end(std::vector<std::string> command) { undo_.push_back(std::move(command)); }

  nlohmann::json job() const { return get("trainjob/mrpc"); }
  // A merge patch.
  void change(const nlohmann::json& patch) const;
  using Sentence = ::testing::Matcher<const std::string&>;
  // Until the condition is true for that reason; it and an event of that reason say the sentence.
  void await_reason(const std::string& type, const std::string& reason, const Sentence& says) const;
  // The same of the condition that says why a job does not run.
  void await_blocked(const std::string& reason, const Sentence& says) const {
    await_reason("Blocked", reason, says);
  }
  void await_event(const std::string& reason, const Sentence& says) const;
  // `kubectl wait`; what it waits for, as in --for=condition=Blocked. The job as it was then; says
  // what the job says if that does not come.
  nlohmann::json await(const std::string& what) const;
  void await_success() const;
  // Training has got to a checkpoint: there is something to lose.
  void await_checkpoint() const { await("jsonpath={.status.progress.lastCheckpoint}"); }

  std::string hash_in_cluster() const;
  // Of the same job on this machine.
  std::string hash_under_up(const nlohmann::json& manifest) const;

  // A program of the build, with the cluster's KUBECONFIG.
  CommandOutcome tilewright(const std::vector<std::string>& arguments) const;
  // The command of `make cluster`, for what kubectl has no word for.
  CommandOutcome cluster(const std::vector<std::string>& arguments) const;
  // Whether KUBECONFIG names the cluster that this command looks after.
  bool is_own_cluster() const;

  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  std::filesystem::path model_folder() const;
  std::string described() const;

  Model model_;
  TemporaryDirectory folder_;
  std::vector<std::vector<std::string>> undo_;
};

// A claim of the default class.
nlohmann::json claim(const std::string& name, const std::string& access_mode = "ReadWriteOnce");

// With the claim at /NAME.
nlohmann::json with_claim(nlohmann::json pod, const std::string& name);

}  // namespace tilewright::testing
