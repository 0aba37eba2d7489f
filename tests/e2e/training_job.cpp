#include "tests/e2e/training_job.h"

#include <fmt/format.h>

#include <fstream>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/process/child_process.h"
#include "tests/support/prepared_squad.h"
#include "tests/support/two_layers.h"

namespace tilewright::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// For 0.3 CPUs per worker with other tests running. It is below the ctest timeout, so that a
// timeout is reported with its reason.
constexpr std::chrono::seconds kTrainingTimeout{800};

fs::path small_model() { return source_dir() / "tests/golden/data/small_d32"; }

// Every letter is a token, so every text has tokens; padded to the vocab_size of config.json.
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

// What a download of the directory `from` of the guides' hub leaves, as huggingface_hub writes it.
void add_to_hub_cache(const fs::path& cache, const std::string& from, const std::string& name) {
  const std::string commit(40, 'c');
  fs::create_directories(cache / name / "refs");
  std::ofstream(cache / name / "refs/main") << commit;
  fs::create_directories(cache / name / "snapshots");
  fs::copy(source_dir() / "tests/golden/guides/data" / from, cache / name / "snapshots" / commit,
           fs::copy_options::recursive);
}

CommandResult run(const std::string& program, const std::vector<std::string>& arguments,
                  const fs::path& folder) {
  ChildCommand command;
  command.program = program;
  command.arguments = arguments;
  command.environment = environment_with_overrides({});
  command.working_directory = folder;
  return run_command(command, kTrainingTimeout);
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
  // The model has 64 position embeddings.
  if (model == Model::kSmall) job["spec"]["trainer"]["max_seq_length"] = 64;
  return job;
}

json delayed_epochs(const std::vector<int>& milliseconds) {
  std::string faults;
  for (std::size_t i = 0; i < milliseconds.size(); ++i) {
    faults +=
        fmt::format("{}step.begin,epoch={},delay={}", i == 0 ? "" : ";", i + 1, milliseconds[i]);
  }
  return {{"name", env::kFault}, {"value", faults}};
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
  } else if (model_ == Model::kMiniLm) {
    ASSERT_EQ(missing_model(), "");
    write_two_layers(folder() / "model", fs::copy_options::none);
  } else if (model_ == Model::kHub) {
    add_to_hub_cache(folder() / "hub_cache", "models/distilbert/distilbert-base-uncased",
                     "models--distilbert-base-uncased");
    add_to_hub_cache(folder() / "hub_cache", "datasets/rajpurkar/squad", "datasets--squad");
  } else {
    add_to_hub_cache(folder() / "transformers_cache", "models/google-bert/bert-base-uncased",
                     "models--google-bert--bert-large-uncased");
    write_prepared_squad(folder() / "hf_datasets_cache");
  }
  if (!data_.empty()) {
    fs::create_directory_symlink(source_dir() / "examples/data" / data_, folder() / "data");
  }

  create(claim("work"));
  create(with_claim(restricted_pod("loader", tools_image(), {"sleep", "600"}), "work"));
  wait("pod/loader", R"({.status.conditions[?(@.type=="Ready")].status})", "True");
  for (const char* name :
       {"model", "data", "hub_cache", "transformers_cache", "hf_datasets_cache"}) {
    if (!fs::exists(folder() / name)) continue;
    kubectl_ok(
        {"cp", fs::canonical(folder() / name).string(), std::string("loader:/work/") + name});
  }
  kubectl_ok({"delete", "pod", "loader", "--grace-period=1", "--wait=false"});
}

void TrainingJobTest::TearDown() {
  for (const auto& command : cleanups_) kubectl_ok(command);
  KubernetesTest::TearDown();
}

std::string TrainingJobTest::run_with_claim(const std::string& script) const {
  json shell = with_claim(restricted_pod("shell", tools_image(), {"sh", "-ec", script}), "work");
  shell["metadata"].erase("name");
  shell["metadata"]["generateName"] = "shell-";
  const std::string name = create(shell)["metadata"]["name"];
  wait("pod/" + name, "{.status.phase}", "Succeeded");
  return kubectl_ok({"logs", name});
}

std::future<std::string> TrainingJobTest::follow_log(const std::string& pod) const {
  return std::async(std::launch::async, [this, pod] {
    const CommandResult log =
        run(kubectl_program(), {"--namespace=" + namespace_name(), "logs", "-f", pod}, folder());
    EXPECT_EQ(log.exit_code, 0) << "the log of " << pod << ": " << log.output;
    return log.output;
  });
}

void TrainingJobTest::patch_job(const json& patch) const {
  kubectl_ok({"patch", kind_, job_, "--type=merge", "--patch=" + patch.dump()});
}

json TrainingJobTest::wait_for(const std::string& what) const {
  const auto deadline = std::chrono::steady_clock::now() + kTrainingTimeout / 2;
  CommandResult waited;
  do {  // in steps, because kubectl commands have a timeout of two minutes
    waited = kubectl({"wait", kind_ + "/" + job_, "--for=" + what, "--timeout=100s", "-o", "json"});
  } while (waited.exit_code != 0 && waited.error.find("timed out") != std::string::npos &&
           std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(waited.exit_code, 0) << what << ": " << waited.error << describe_job();
  return json::parse(waited.output, nullptr, false);
}

void TrainingJobTest::wait_for_condition(const std::string& type, const std::string& reason,
                                         const MessageMatcher& says) const {
  const json job = wait_for(
      fmt::format(R"(jsonpath={{.status.conditions[?(@.type=="{}")].reason}}={})", type, reason));
  if (!job.is_object()) return;
  for (const json& condition : job["status"]["conditions"]) {
    if (condition["type"] != type) continue;
    EXPECT_EQ(condition["status"], "True") << condition;
    EXPECT_THAT(condition["message"].get<std::string>(), says);
  }
  wait_for_event(reason, says);
}

void TrainingJobTest::wait_for_event(const std::string& reason, const MessageMatcher& says) const {
  const std::string which =
      fmt::format("--field-selector=involvedObject.name={},reason={}", job_, reason);
  const CommandResult waited = kubectl({"wait", "--for=create", "event", which, "--timeout=30s"});
  EXPECT_EQ(waited.exit_code, 0) << "no event " << reason << ": " << waited.error << describe_job();
  const json events = json::parse(kubectl_ok({"get", "events", which, "-o", "json"}));
  for (const json& event : events["items"]) {
    EXPECT_THAT(event["message"].get<std::string>(), says) << "message of the event " << reason;
  }
}

void TrainingJobTest::wait_for_success() const {
  const auto deadline = std::chrono::steady_clock::now() +
                        (model_ != Model::kMiniLm ? kTrainingTimeout / 2 : kTrainingTimeout);
  // In steps, because kubectl commands have a timeout of two minutes.
  const auto left = [&] {
    return std::chrono::ceil<std::chrono::seconds>(deadline - std::chrono::steady_clock::now());
  };
  while (left().count() > 0) {
    const auto step = std::min(left(), std::chrono::seconds(100));
    const CommandResult waited =
        kubectl({"wait", kind_ + "/" + job_, "--for=jsonpath={.status.completionTime}",
                 fmt::format("--timeout={}s", step.count())});
    if (waited.exit_code == 0) break;
  }
  ASSERT_EQ(job()["status"].value("phase", ""), "Succeeded") << describe_job();
}

std::string TrainingJobTest::hash_of_cluster_run(const std::string& output) const {
  return run_with_claim("sha256sum /work/" + output + "/model.safetensors").substr(0, 64);
}

void TrainingJobTest::start_local_run(const json& manifest, const std::string& output) {
  std::ofstream(folder() / "job.yaml") << manifest.dump();
  local_run_ = std::async(std::launch::async, [this, output] {
    const CommandResult up = tilewright({"up", "job.yaml"});
    EXPECT_EQ(up.exit_code, 0) << up.output;
    const CommandResult sum = run("/usr/bin/sha256sum", {output + "/model.safetensors"}, folder());
    return sum.output.substr(0, 64);
  });
}

CommandResult TrainingJobTest::tilewright(const std::vector<std::string>& arguments) const {
  return run(program("tilewright"), arguments, folder());
}

CommandResult TrainingJobTest::cluster(const std::vector<std::string>& arguments) const {
  return run(source_dir() / "tests/cluster/cluster", arguments, folder());
}

bool TrainingJobTest::is_make_cluster() const {
  const std::string folder = cluster({"folder"}).output;
  const fs::path own = fs::path(folder.substr(0, folder.find('\n'))) / "kubeconfig";
  std::error_code unknown;
  return fs::equivalent(own, environment_variable("KUBECONFIG"), unknown) &&
         cluster({"run", "true"}).exit_code == 0;
}

std::string TrainingJobTest::describe_job() const {
  return kubectl({"describe", kind_, job_}).output +
         kubectl({"logs", "--selector=tilewright.dev/job-name=" + job_, "--prefix", "--tail=20"})
             .output;
}

}  // namespace tilewright::testing
