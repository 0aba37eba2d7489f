#include "controller/cli/render.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "common/base/files.h"
#include "common/contract/ports.h"
#include "controller/api/encode.h"
#include "controller/api/validate.h"
#include "controller/reconcile/objects.h"

namespace tilewright {
namespace {

constexpr const char* kNoUid = "00000000-0000-0000-0000-000000000000";
constexpr const char* kNoKey = "(made by the operator)";

struct RenderOptions {
  std::filesystem::path file;
  std::string rendezvous = fmt::format("tilewright-rendezvous:{}", kRendezvousPort);
};

}  // namespace

Result<std::string> render_file(const std::filesystem::path& file, const std::string& rendezvous) {
  Result<std::string> text = read_file(file, api::kMaxManifestBytes, ExitCode::kManifest);
  if (!text.ok()) return text.error();
  Result<api::Checked> checked = api::check_manifest(*text, file.string(), api::Target::kCluster);
  if (!checked.ok()) return checked.error();
  api::TrainJob& job = checked->job;
  if (job.metadata.name.empty()) job.metadata.name = job.metadata.generate_name + "xxxxx";
  if (job.metadata.uid.empty()) job.metadata.uid = kNoUid;

  std::vector<nlohmann::json> objects = {reconcile::build_secret(job, kNoKey, ""),
                                         reconcile::build_service(job),
                                         reconcile::build_network_policy(job)};
  if (const auto& policy = job.spec.run_policy.scheduling_policy) {
    reconcile::Gang gang;
    gang.min_member = policy->min_available.value_or(*job.spec.elastic_policy.min_replicas);
    gang.queue = policy->queue.value_or("");
    gang.priority_class = policy->priority_class.value_or("");
    gang.schedule_timeout_seconds = policy->schedule_timeout_seconds;
    objects.push_back(reconcile::build_pod_group(job, gang));
  }
  for (std::int64_t index = 0; index < *job.spec.worker.replicas; ++index) {
    objects.push_back(reconcile::build_pod(job, index, {rendezvous, ""}));
  }
  std::string out;
  for (const nlohmann::json& object : objects) out += "---\n" + api::to_yaml(object);
  return out;
}

void add_render_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("render", "print the objects a manifest would create");
  auto options = std::make_shared<RenderOptions>();
  command->add_option("FILE", options->file, "the manifest of a TrainJob")->required();
  command->add_option("--rendezvous", options->rendezvous, "host:port of the operator")
      ->capture_default_str();
  command->callback([options, &exit_code] {
    const Result<std::string> rendered = render_file(options->file, options->rendezvous);
    if (rendered.ok()) {
      std::cout << *rendered;
    } else {
      std::cerr << rendered.error().message << '\n';
      exit_code = static_cast<int>(rendered.error().code);
    }
  });
}

}  // namespace tilewright
