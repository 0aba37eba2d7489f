#include <set>

#include "common/base/check.h"
#include "common/json/document.h"
#include "common/json/yaml.h"
#include "controller/api/command.h"
#include "controller/api/decode.h"
#include "controller/api/encode.h"
#include "controller/api/validate.h"
#include "controller/cluster/objects.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {
namespace {

using nlohmann::json;

// What `render` prints is YAML that reads as the same object.
void check_yaml(const json& object) {
  const Document document = read_yaml(to_yaml(object));
  if (!document.errors.empty()) {
    // A manifest's aliases can make an object that is larger than a manifest may be.
    const std::string& message = document.errors.front().message;
    TW_CHECK(message.starts_with("found more than") || message.starts_with("found field names") ||
                 message.ends_with("bytes"),
             "rendered YAML is not readable: {}", message);
    return;
  }
  TW_CHECK(document.tree == object, "rendered YAML reads as another object: {} became {}",
           object.dump(), document.tree.dump());
}

void check_pod(const api::TrainJob& job, std::int64_t index) {
  const json pod = cluster::build_pod(job, index, {"operator:7070", "key"});
  std::set<std::string> names;
  for (const json& container : pod["spec"]["containers"]) {
    const auto name = container["name"].get<std::string>();
    TW_CHECK(names.insert(name).second, "two containers are called {}", name);
  }
  TW_CHECK(names.contains("worker"), "the pod has no container of the worker");
  check_yaml(pod);
}

void check_job(api::TrainJob job) {
  const api::DecodeResult again =
      api::decode_object(api::to_json(job), api::FieldValidation::kStrict);
  TW_CHECK(again.ok(), "an encoded job does not decode: {}", sentences(again.errors));
  TW_CHECK(again.job == job, "a job changes when it is encoded and decoded");

  if (job.metadata.name.empty()) job.metadata.name = job.metadata.generate_name + "xxxxx";
  if (job.metadata.uid.empty()) job.metadata.uid = "00000000-0000-0000-0000-000000000000";
  check_pod(job, 0);
  check_pod(job, *job.spec.worker.replicas - 1);
  check_yaml(cluster::build_service(job));
  check_yaml(cluster::build_secret(job, "00", "key"));
  check_yaml(cluster::build_network_policy(job, {"monitoring"}));
  cluster::claims_of(job);
}

void check_local_command(const api::TrainJob& job) {
  const api::Environment environment =
      api::expand_environment(api::worker_environment(job, {"127.0.0.1:1", "key", 0}));
  const std::vector<std::string> words = api::expand_command(
      api::worker_command(
          job,
          [](const api::TrainerPath& path) { return "/" + path.volume + "/" + path.relative; }),
      environment);
  // execve(2) refuses longer strings (MAX_ARG_STRLEN), after they have been built in memory.
  constexpr std::size_t kMaxArgument = 128 << 10;
  for (const auto& [name, value] : environment) {
    TW_CHECK(value.size() < kMaxArgument, "{} expands to {} bytes", name, value.size());
  }
  for (const std::string& word : words) {
    TW_CHECK(word.size() < kMaxArgument, "an argument expands to {} bytes", word.size());
  }
}

}  // namespace

int fuzz_manifest(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = as_text(data, size);
  const Result<api::ValidatedJob> in_cluster =
      api::check_manifest(text, "job.yaml", api::Target::kCluster);
  if (in_cluster.ok()) {
    check_job(in_cluster->job);
  } else {
    check_message(in_cluster.error().message, true);
  }
  const Result<api::ValidatedJob> local =
      api::check_manifest(text, "job.yaml", api::Target::kLocal);
  if (local.ok()) check_local_command(local->job);
  return 0;
}

}  // namespace tilewright::fuzz
