// Runs the commands of examples/cluster/README.md unchanged, from a local model and local data to a
// local trained model, with fewer epochs; and examples/squad.yaml at a size that fits the test's
// node.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <optional>
#include <regex>
#include <sstream>

#include "common/json/document.h"
#include "tests/e2e/kubernetes.h"
#include "tests/e2e/training_job.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::CommandResult;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr const char* kEnv = "/usr/bin/env";
// Limit for the training by one worker of one core, which takes two minutes at worst.
constexpr std::chrono::seconds kCommandTimeout{800};

void write_script(const fs::path& path, const std::string& command) {
  std::ofstream(path) << "#!/bin/sh\n" << command << "\n";
  fs::permissions(path, fs::perms::owner_all);
}

// A directory in which the commands find what they expect in the source tree. It differs from a
// user's setup in three ways: the pods that mount the volume use an image of the cluster, the job
// trains three epochs instead of eight, and everything runs in the test's namespace.
class Examples : public testing::KubernetesTest {
 protected:
  void SetUp() override {
    KubernetesTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    ASSERT_EQ(testing::missing_model(), "");
    const fs::path source = testing::source_dir();
    for (const char* made : {"examples/cluster", ".cache/models", "bin"}) {
      fs::create_directories(root() / made);
    }
    for (const auto& file : fs::directory_iterator(source / "examples/cluster")) {
      const std::string text = testing::read_text(file);
      std::ofstream(root() / "examples/cluster" / file.path().filename())
          << std::regex_replace(std::regex_replace(text, std::regex("image: debian:[^ \n]+"),
                                                   "image: " + testing::tools_image()),
                                std::regex("num_train_epochs: [0-9]+"), "num_train_epochs: 3");
    }
    fs::create_directory_symlink(source / "examples/data", root() / "examples/data");
    fs::copy(fs::canonical(testing::model_dir()), root() / ".cache/models/all-minilm-l6-v2");
    write_script(root() / "bin/kubectl", fmt::format(R"(exec '{}' --namespace={} "$@")",
                                                     kubectl_program().string(), namespace_name()));
    // The model exists already, so `make model` only checks it.
    write_script(root() / "bin/make", "test \"$*\" = model && test -d .cache/models/*");
  }

  const fs::path& root() const { return root_.path(); }

  // The lines that are indented by four spaces, without their comments.
  std::vector<std::string> commands() const {
    std::istringstream text(testing::read_text(root() / "examples/cluster/README.md"));
    std::vector<std::string> found;
    for (std::string line; std::getline(text, line);) {
      if (line.rfind("    ", 0) != 0) continue;
      line = line.substr(4, line.find(" #") - 4);
      found.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
    }
    return found;
  }

  // The line as a shell command in that directory.
  std::vector<std::string> typed(const std::string& line) const {
    return {"PATH=" + (root() / "bin").string() + ":/usr/local/bin:/usr/bin:/bin", "sh", "-c",
            line};
  }
  CommandResult run(const std::string& line) const {
    ChildCommand command;
    command.program = kEnv;
    command.arguments = typed(line);
    command.environment = environment_with_overrides({});
    command.working_directory = root();
    return testing::run_command(command, kCommandTimeout);
  }

  // The hash that `tilewright up` prints for the same job.
  std::string hash_of_local_run() const {
    json job = read_yaml(testing::read_text(root() / "examples/cluster/trainjob.yaml")).tree;
    job["spec"]["volumes"][0]["local"] = ".";
    const fs::path volume = root() / "up";
    fs::create_directory(volume);
    fs::create_directory_symlink(root() / ".cache/models/all-minilm-l6-v2",
                                 volume / "all-minilm-l6-v2");
    fs::create_directory_symlink(root() / "examples/data/paraphrase", volume / "paraphrase");
    std::ofstream(volume / "job.yaml") << job.dump();
    const CommandResult up = run(testing::program("tilewright").string() + " up up/job.yaml");
    EXPECT_EQ(up.exit_code, 0) << up.output;
    return sum("up/mrpc");
  }
  std::string sum(const std::string& model) const {
    return run("sha256sum " + model + "/model.safetensors").output.substr(0, 64);
  }

 private:
  testing::TemporaryDirectory root_;
};

TEST_F(Examples, TrainAModelWithTheCommandsOfTheReadme) {
  // On the CPU that the pod leaves idle: only one of the two fits on the test's node.
  std::future<std::string> local =
      std::async(std::launch::async, [this] { return hash_of_local_run(); });
  std::optional<testing::RunningProgram> watch;
  std::string log;
  for (const std::string& line : commands()) {
    SCOPED_TRACE(line);
    if (line.find(" -w") != std::string::npos) {
      // The user stops the watch once the job runs.
      watch.emplace(kEnv, typed("exec " + line), root());
      ASSERT_TRUE(watch->wait_for_output("Running"));
      continue;
    }
    const CommandResult outcome = run(line);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    if (line.find(" logs -f ") != std::string::npos) log = outcome.output;
  }
  ASSERT_TRUE(watch.has_value());
  EXPECT_TRUE(watch->wait_for_output("Succeeded"));
  EXPECT_THAT(watch->output(), ContainsRegex("mrpc +Running +[0-9]+/[0-9]+ +loss 0\\.[0-9]+ +"));
  EXPECT_THAT(log, HasSubstr("accuracy"));

  EXPECT_EQ(sum("mrpc"), local.get());
  EXPECT_TRUE(fs::exists(root() / "mrpc/config.json"));
  // Deletes everything that the commands created.
  for (const char* kind : {"trainjobs", "pods", "pvc", "services", "secrets", "networkpolicies"}) {
    kubectl_ok({"wait", kind, "--all", "--for=delete", "--timeout=60s"});
  }
}

// examples/squad.yaml with what a small node needs: another image, claim, model and data, less CPU
// and memory, any node. `tilewright up` finds the same paths in the fixture's directory.
json small_squad_job() {
  json job = read_yaml(testing::read_text(testing::source_dir() / "examples/squad.yaml")).tree;
  json& spec = job["spec"];
  spec["trainer"].update({{"model", "pvc:model"}, {"data", "pvc:data"}, {"output", "pvc:out"}});
  spec["worker"].update(
      {{"image", testing::worker_image()}, {"resources", {{"cpu", "300m"}, {"memory", "1Gi"}}}});
  spec["worker"].erase("nodeSelector");
  json& volume = spec["volumes"][0];
  volume["local"] = ".";
  volume["persistentVolumeClaim"]["claimName"] = "work";
  return job;
}

class SquadExample : public testing::TrainingJobTest {
 protected:
  // 65 questions: two epochs are four steps of 48.
  SquadExample() : TrainingJobTest(testing::Model::kMiniLm, "questions", "squad") {}
};

TEST_F(SquadExample, TrainsAndScoresAnswersOnFourWorkers) {
  const json manifest = small_squad_job();
  create(manifest);
  start_local_run(manifest);
  wait_for_success();
  const json status = job()["status"];
  EXPECT_EQ(status["replicas"]["succeeded"], 4) << status;
  EXPECT_EQ(status["restarts"]["total"], 0) << status;
  EXPECT_EQ(status["progress"]["step"], 4) << status;
  // Rank 0, which may be any of the pods, logs how many workers have a rank.
  std::string logs;
  for (int i = 0; i < 4; ++i) logs += kubectl_ok({"logs", fmt::format("squad-worker-{}", i)});
  EXPECT_THAT(logs, HasSubstr(": rank 0 of 4"));

  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
  const json local = json::parse(testing::read_text(folder() / "out/all_results.json"));
  for (const char* metric : {"eval_exact_match", "eval_f1"}) {
    ASSERT_TRUE(status["progress"]["metrics"].contains(metric)) << status;
    EXPECT_NEAR(status["progress"]["metrics"][metric].get<double>(), local[metric].get<double>(),
                1e-9)
        << metric;
  }
  EXPECT_GT(local["eval_f1"].get<double>(), 0) << local;
  EXPECT_EQ(json::parse(run_with_claim("cat /work/out/eval_predictions.json")).size(), 15u);
}

}  // namespace
}  // namespace tilewright
