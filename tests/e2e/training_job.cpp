#include "tests/e2e/training_job.h"

#include <fmt/format.h>

#include <fstream>

#include "common/base/text.h"
#include "common/process/child_process.h"

namespace tilewright::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Beside other tests and with 0.3 CPUs a worker; below what ctest allows a test, so that it can
// still tell what it waited for.
constexpr std::chrono::seconds kTraining{200};

fs::path small_model() { return source_dir() / "tests/golden/data/small_d32"; }
fs::path data_folder() { return source_dir() / "examples/data/paraphrase"; }

// Letters alone, as many entries as the model's config.json says: every text has tokens.
void write_vocabulary(const fs::path& file) {
  std::ofstream out(file);
  out << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  int count = 5;
  for (char letter = 'a'; letter <= 'z'; ++letter, count += 2) {
    out << letter << "\n##" << letter << "\n";
  }
  const int size = json::parse(std::ifstream(small_model() / "config.json")).at("vocab_size");
  for (; count < size; ++count) out << "[unused" << count << "]\n";
}

CommandOutcome run(const std::string& program, const std::vector<std::string>& arguments,
                   const fs::path& folder) {
  ChildCommand command;
  command.program = program;
  command.arguments = arguments;
  command.environment = environment_with({});
  command.working_directory = folder;
  return run_command(command, kTraining);
}

}  // namespace

json training_job(Model model) {
  json job = {{"apiVersion", "tilewright.dev/v1alpha1"},
              {"kind", "TrainJob"},
              {"metadata", {{"name", "mrpc"}}},
              {"spec",
               {{"trainer",
                 {{"task", "mrpc"},
                  {"model", "work:model"},
                  {"data", "work:data"},
                  {"output", "work:out"},
                  {"per_device_train_batch_size", 16},
                  {"learning_rate", 1e-4},
                  {"max_steps", 2},
                  {"do_eval", false}}},
                {"worker",
                 {{"replicas", 1},
                  {"image", worker_image()},
                  {"resources", {{"cpu", "300m"}, {"memory", "1Gi"}}}}},
                {"volumes",
                 {{{"name", "work"},
                   {"local", "."},
                   {"persistentVolumeClaim", {{"claimName", "work"}}}}}}}}};
  // It has no positions for more.
  if (model == Model::kSmall) job["spec"]["trainer"]["max_seq_length"] = 64;
  return job;
}

json claim(const std::string& name, const std::string& access_mode) {
  return {{"apiVersion", "v1"},
          {"kind", "PersistentVolumeClaim"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"accessModes", {access_mode}}, {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}};
}

json with_claim(json pod, const std::string& name) {
  pod["spec"]["containers"][0]["volumeMounts"] =
      json::array({{{"name", name}, {"mountPath", "/" + name}}});
  pod["spec"]["volumes"] =
      json::array({{{"name", name}, {"persistentVolumeClaim", {{"claimName", name}}}}});
  return pod;
}

void TrainingJobTest::SetUp() {
  KubernetesTest::SetUp();
  if (IsSkipped() || HasFailure()) return;
  if (model_ == Model::kSmall) {
    fs::copy(small_model(), folder() / "model");
    fs::remove(folder() / "model/expected.safetensors");
    write_vocabulary(folder() / "model/vocab.txt");
  } else {
    ASSERT_EQ(missing_model(), "");
    fs::create_directory_symlink(fs::canonical(model_dir()), folder() / "model");
  }
  fs::create_directory_symlink(data_folder(), folder() / "data");

  create(claim("work"));
  create(with_claim(restricted_pod("loader", tools_image(), {"sleep", "600"}), "work"));
  wait("pod/loader", R"({.status.conditions[?(@.type=="Ready")].status})", "True");
  for (const char* name : {"model", "data"}) {
    must({"cp", fs::canonical(folder() / name).string(), std::string("loader:/work/") + name});
  }
  must({"delete", "pod", "loader", "--grace-period=1", "--wait=false"});
}

void TrainingJobTest::TearDown() {
  for (const auto& command : undo_) must(command);
  KubernetesTest::TearDown();
}

std::string TrainingJobTest::in_claim(const std::string& script) const {
  json shell = with_claim(restricted_pod("shell", tools_image(), {"sh", "-ec", script}), "work");
  shell["metadata"].erase("name");
  shell["metadata"]["generateName"] = "shell-";
  const std::string name = create(shell)["metadata"]["name"];
  wait("pod/" + name, "{.status.phase}", "Succeeded");
  return must({"logs", name});
}

void TrainingJobTest::change(const json& patch) const {
  must({"patch", "trainjob", "mrpc", "--type=merge", "--patch=" + patch.dump()});
}

json TrainingJobTest::await(const std::string& what) const {
  const CommandOutcome waited =
      kubectl({"wait", "trainjob/mrpc", "--for=" + what, "--timeout=100s", "-o", "json"});
  EXPECT_EQ(waited.exit_code, 0) << what << ": " << waited.error << described();
  return json::parse(waited.output, nullptr, false);
}

void TrainingJobTest::await_reason(const std::string& type, const std::string& reason,
                                   const Sentence& says) const {
  const json job = await(
      fmt::format(R"(jsonpath={{.status.conditions[?(@.type=="{}")].reason}}={})", type, reason));
  if (!job.is_object()) return;
  for (const json& condition : job["status"]["conditions"]) {
    if (condition["type"] != type) continue;
    EXPECT_EQ(condition["status"], "True") << condition;
    EXPECT_THAT(condition["message"].get<std::string>(), says);
  }
  await_event(reason, says);
}

void TrainingJobTest::await_event(const std::string& reason, const Sentence& says) const {
  const std::string which = "--field-selector=involvedObject.name=mrpc,reason=" + reason;
  const CommandOutcome waited = kubectl({"wait", "--for=create", "event", which, "--timeout=30s"});
  EXPECT_EQ(waited.exit_code, 0) << "no event " << reason << ": " << waited.error << described();
  const json events = json::parse(must({"get", "events", which, "-o", "json"}));
  for (const json& event : events["items"]) {
    EXPECT_THAT(event["message"].get<std::string>(), says) << "said by the event " << reason;
  }
}

void TrainingJobTest::await_success() const {
  const auto deadline =
      std::chrono::steady_clock::now() + (model_ == Model::kSmall ? kTraining / 2 : kTraining);
  // In steps, as no command of kubectl is given longer than two minutes.
  const auto left = [&] {
    return std::chrono::ceil<std::chrono::seconds>(deadline - std::chrono::steady_clock::now());
  };
  while (left().count() > 0) {
    const auto step = std::min(left(), std::chrono::seconds(100));
    const CommandOutcome waited =
        kubectl({"wait", "trainjob/mrpc", "--for=jsonpath={.status.completionTime}",
                 fmt::format("--timeout={}s", step.count())});
    if (waited.exit_code == 0) break;
  }
  ASSERT_EQ(job()["status"].value("phase", ""), "Succeeded") << described();
}

std::string TrainingJobTest::hash_in_cluster() const {
  return in_claim("sha256sum /work/out/model.safetensors").substr(0, 64);
}

std::string TrainingJobTest::hash_under_up(const json& manifest) const {
  std::ofstream(folder() / "job.yaml") << manifest.dump();
  const CommandOutcome up = tilewright({"up", "job.yaml"});
  EXPECT_EQ(up.exit_code, 0) << up.output;
  const CommandOutcome sum = run("/usr/bin/sha256sum", {"out/model.safetensors"}, folder());
  return sum.output.substr(0, 64);
}

CommandOutcome TrainingJobTest::tilewright(const std::vector<std::string>& arguments) const {
  return run(program("tilewright"), arguments, folder());
}

CommandOutcome TrainingJobTest::cluster(const std::vector<std::string>& arguments) const {
  return run(source_dir() / "tests/cluster/cluster", arguments, folder());
}

bool TrainingJobTest::is_own_cluster() const {
  const std::string folder = cluster({"folder"}).output;
  const fs::path own = fs::path(folder.substr(0, folder.find('\n'))) / "kubeconfig";
  std::error_code unknown;
  return fs::equivalent(own, environment_variable("KUBECONFIG"), unknown) &&
         cluster({"run", "true"}).exit_code == 0;
}

std::string TrainingJobTest::described() const {
  return kubectl({"describe", "trainjob", "mrpc"}).output +
         kubectl({"logs", "--selector=tilewright.dev/job-name=mrpc", "--prefix", "--tail=20"})
             .output;
}

}  // namespace tilewright::testing
