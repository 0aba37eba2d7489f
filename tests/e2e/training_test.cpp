// Two real pods train the real MiniLM, whatever happens to them, and end with the hash that
// `tilewright up` gives.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "common/process/child_process.h"
#include "tests/e2e/kubernetes.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::CommandOutcome;
using ::testing::HasSubstr;
using testing::restricted_pod;

constexpr const char* kJob = "mrpc";
constexpr std::chrono::minutes kTraining{8};  // with 0.3 CPUs a worker, beside other tests

// 40 steps of 32 sentence pairs, a checkpoint every eight.
std::string manifest() {
  return fmt::format(R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {{name: mrpc}}
spec:
  elasticPolicy: {{minReplicas: 1, maxReplicas: 2, maxRestarts: 3}}
  trainer:
    task: mrpc
    model: work:model
    data: work:data
    output: work:out
    per_device_train_batch_size: 16
    learning_rate: 1e-4
    max_steps: 40
    save_steps: 8
    logging_steps: 2
    do_eval: false
  worker:
    replicas: 2
    image: {}
    resources: {{cpu: 300m, memory: 1Gi}}
  volumes:
  - name: work
    local: .
    persistentVolumeClaim: {{claimName: work}}
)",
                     testing::worker_image());
}

fs::path model_folder() {
  const char* given = std::getenv("TILEWRIGHT_MODEL_DIR");
  return given != nullptr ? fs::path(given)
                          : testing::source_dir() / ".cache/models/all-minilm-l6-v2";
}

CommandOutcome run(const std::string& program, const std::vector<std::string>& arguments,
                   const fs::path& folder) {
  ChildCommand command;
  command.program = program;
  command.arguments = arguments;
  command.environment = environment_with({});
  command.working_directory = folder;
  return testing::run_command(command, kTraining);
}

// Of the same job on this machine, once for all tests.
const std::string& hash_under_up() {
  static const std::string hash = [] {
    const testing::TemporaryDirectory folder;
    fs::create_directory_symlink(model_folder(), folder.path() / "model");
    fs::create_directory_symlink(testing::source_dir() / "examples/data/paraphrase",
                                 folder.path() / "data");
    std::ofstream(folder.path() / "job.yaml") << manifest();
    const CommandOutcome up =
        run(testing::program("tilewright"), {"up", "job.yaml"}, folder.path());
    EXPECT_EQ(up.exit_code, 0) << up.output;
    const CommandOutcome sum = run("/usr/bin/sha256sum", {"out/model.safetensors"}, folder.path());
    return sum.output.substr(0, 64);
  }();
  return hash;
}

class TrainingOnACluster : public testing::KubernetesTest {
 protected:
  void SetUp() override {
    KubernetesTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    ASSERT_TRUE(fs::exists(model_folder() / "model.safetensors"))
        << model_folder() << ": run `make model` once";
    create({{"apiVersion", "v1"},
            {"kind", "PersistentVolumeClaim"},
            {"metadata", {{"name", "work"}}},
            {"spec",
             {{"accessModes", {"ReadWriteOnce"}},
              {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
    create(with_claim(restricted_pod("loader", testing::tools_image(), {"sleep", "600"})));
    wait("pod/loader", R"({.status.conditions[?(@.type=="Ready")].status})", "True");
    must({"cp", fs::canonical(model_folder()).string(), "loader:/work/model"});
    must(
        {"cp", (testing::source_dir() / "examples/data/paraphrase").string(), "loader:/work/data"});
    must({"delete", "pod", "loader", "--grace-period=1"});
  }

  static json with_claim(json pod) {
    pod["spec"]["containers"][0]["volumeMounts"] =
        json::array({{{"name", "work"}, {"mountPath", "/work"}}});
    pod["spec"]["volumes"] =
        json::array({{{"name", "work"}, {"persistentVolumeClaim", {{"claimName", "work"}}}}});
    return pod;
  }

  void start(const std::string& text = manifest()) {
    const fs::path file = folder_.path() / "job.yaml";
    std::ofstream(file) << text;
    must({"create", "-f", file.string()});
  }
  json job() const { return get("trainjob/mrpc"); }
  // Until the condition holds; says what the job says if it does not.
  void await(const std::string& condition, const std::string& path_and_value) {
    const CommandOutcome waited =
        kubectl({"wait", "trainjob/mrpc", condition + path_and_value, "--timeout=100s"});
    EXPECT_EQ(waited.exit_code, 0)
        << waited.error << kubectl({"describe", "trainjob", kJob}).output
        << kubectl({"logs", "--selector=tilewright.dev/job-name=mrpc", "--prefix", "--tail=20"})
               .output;
  }
  // kubectl's own waits end after 100 s each: a training may take some of them.
  void await_success() {
    const auto deadline = std::chrono::steady_clock::now() + kTraining;
    while (std::chrono::steady_clock::now() < deadline) {
      const CommandOutcome waited =
          kubectl({"wait", "trainjob/mrpc", "--for=condition=Succeeded", "--timeout=100s"});
      if (waited.exit_code == 0) return;
      if (job()["status"].value("phase", "") == "Failed") break;
    }
    FAIL() << kubectl({"describe", "trainjob", kJob}).output
           << kubectl({"logs", "--selector=tilewright.dev/job-name=mrpc", "--prefix", "--tail=20"})
                  .output;
  }
  // Training has got to a checkpoint: there is something to lose.
  void await_checkpoint() { await("--for=jsonpath=", "{.status.progress.lastCheckpoint}"); }
  // The command of `make cluster`, for what kubectl has no word for.
  CommandOutcome cluster(const std::vector<std::string>& arguments) {
    return run(testing::source_dir() / "tests/cluster/cluster", arguments, folder_.path());
  }
  bool is_own_cluster() { return cluster({"run", "true"}).exit_code == 0; }
  std::string hash_in_cluster() {
    create(with_claim(restricted_pod("result", testing::tools_image(),
                                     {"sha256sum", "/work/out/model.safetensors"})));
    wait("pod/result", "{.status.phase}", "Succeeded");
    const std::string said = must({"logs", "result"});
    must({"delete", "pod", "result", "--grace-period=1"});
    return said.substr(0, 64);
  }

  testing::TemporaryDirectory folder_;
};

TEST_F(TrainingOnACluster, EndsWithTheHashOfUpAndLeavesNothingWhenDeleted) {
  start();
  await("--for=jsonpath=", "{.status.phase}=Running");
  // As people follow it.
  std::string followed;
  std::thread follower([&] { followed = must({"logs", "-f", "mrpc-worker-0"}); });
  await_checkpoint();
  const std::string columns = must({"get", "trainjobs"});
  EXPECT_THAT(columns, HasSubstr("PROGRESS"));
  EXPECT_THAT(columns, ::testing::ContainsRegex("mrpc +Running +[0-9]+/40 +loss 0\\.[0-9]+ +"
                                                "[0-9.]+/s +.* 2/2 +0 "));
  await_success();
  follower.join();
  EXPECT_THAT(followed, HasSubstr("40/40"));
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0);
  EXPECT_EQ(status["replicas"]["succeeded"], 2);
  EXPECT_EQ(status["progress"]["step"], 40);
  EXPECT_EQ(hash_in_cluster(), hash_under_up());

  must({"delete", "trainjob", kJob});
  // The garbage collector takes what belonged to it.
  for (const char* kind : {"pods", "services", "secrets", "networkpolicies"}) {
    const CommandOutcome gone = kubectl(
        {"wait", kind, "--for=delete", "--selector=tilewright.dev/job-name=mrpc", "--timeout=60s"});
    EXPECT_EQ(gone.exit_code, 0) << kind << ": " << gone.error;
    EXPECT_EQ(must({"get", kind, "--selector=tilewright.dev/job-name=mrpc", "-o", "name"}), "");
  }
  EXPECT_EQ(get("pvc/work")["status"]["phase"], "Bound") << "what was trained stays";
}

TEST_F(TrainingOnACluster, EndsTheSameWhenAPodIsDeleted) {
  start();
  await_checkpoint();
  must({"delete", "pod", "mrpc-worker-1", "--wait=false"});
  await_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["infrastructure"], 1) << status;
  EXPECT_EQ(status["restarts"]["program"], 0);
  EXPECT_EQ(status["failures"][0]["pod"], "mrpc-worker-1");
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

TEST_F(TrainingOnACluster, EndsTheSameWhenAProcessIsKilled) {
  if (!is_own_cluster()) GTEST_SKIP() << "only `make cluster`'s node can be entered";
  start();
  await_checkpoint();
  // From outside its container: no process may kill the first one of its own PID namespace.
  const std::string uid = job()["metadata"]["uid"];
  const std::string kill = fmt::format(
      R"(for p in /proc/[0-9]*; do
           e=$(tr '\0' '\n' <$p/environ 2>/dev/null) || continue
           case $e in *TILEWRIGHT_WORKER_INDEX=1*) ;; *) continue ;; esac
           case $e in *TILEWRIGHT_JOB_UID={}*) kill -KILL ${{p#/proc/}} && exit 0 ;; esac
         done; exit 1)",
      uid);
  const CommandOutcome killed = cluster({"run", "sh", "-c", kill});
  ASSERT_EQ(killed.exit_code, 0) << killed.output;
  await_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["program"], 1) << status;
  EXPECT_EQ(status["failures"][0]["signal"], 9);
  EXPECT_EQ(status["failures"][0]["index"], 1);
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

TEST_F(TrainingOnACluster, EndsTheSameWhenItsPodsAreEvicted) {
  start();
  await_checkpoint();
  const std::string node = get("pod/mrpc-worker-0")["spec"]["nodeName"];
  // As `kubectl drain` does it; nothing else on the node is touched.
  const std::string uid = job()["metadata"]["uid"];
  must({"drain", node, "--pod-selector=tilewright.dev/job-uid=" + uid, "--delete-emptydir-data",
        "--force", "--timeout=100s"});
  await("--for=condition=", "Blocked");
  must({"uncordon", node});
  await_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["infrastructure"], 2) << status;
  EXPECT_EQ(status["restarts"]["program"], 0);
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

TEST_F(TrainingOnACluster, GoesOnWhileItsKubeletIsAway) {
  if (!is_own_cluster()) GTEST_SKIP() << "only `make cluster`'s kubelet can be stopped";
  start();
  await_checkpoint();
  const std::string node =
      "node/" + get("pod/mrpc-worker-0")["spec"]["nodeName"].get<std::string>();
  ASSERT_EQ(cluster({"stop", "kubelet"}).exit_code, 0);
  // The node is given up, its pods are not: they are heard at the rendezvous.
  wait(node, R"({.status.conditions[?(@.type=="Ready")].status})", "Unknown");
  ASSERT_EQ(cluster({"start", "kubelet"}).exit_code, 0);
  wait(node, R"({.status.conditions[?(@.type=="Ready")].status})", "True");
  await_success();
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0) << job()["status"];
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

}  // namespace
}  // namespace tilewright
