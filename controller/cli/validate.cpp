#include "controller/cli/validate.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "common/base/files.h"
#include "controller/api/defaults.h"
#include "controller/api/validate.h"

namespace tilewright {
namespace {

std::string summary(const api::TrainJob& job) {
  const api::ElasticPolicy& elastic = job.spec.elastic_policy;
  std::string workers = fmt::format("{} workers", *job.spec.worker.replicas);
  if (*job.spec.worker.replicas == 1) workers = "1 worker";
  if (*elastic.min_replicas != *elastic.max_replicas) {
    workers += fmt::format(" ({} to {})", *elastic.min_replicas, *elastic.max_replicas);
  }
  if (*job.spec.nproc_per_node > 1) {
    workers += fmt::format(" of {} processes", *job.spec.nproc_per_node);
  }
  return fmt::format("{} on {}, cpu {}, memory {} each; {} examples a step in {} shards",
                     job.spec.trainer.task, workers, job.spec.worker.resources.at("cpu").text,
                     job.spec.worker.resources.at("memory").text, api::global_batch(job),
                     api::virtual_shards(job));
}

// True when the file is valid.
bool validate_file(const std::filesystem::path& path, std::ostream& out, std::ostream& err) {
  const std::string file = path.string();
  const auto print = [&err](const std::string& text) {
    if (!text.empty()) err << text << '\n';
  };
  const Result<std::string> text = read_file(path, api::kMaxManifestBytes, ExitCode::kManifest);
  if (!text.ok()) return print(text.error().message), false;
  api::Decoded decoded = api::decode_manifest(*text);
  if (!decoded.ok()) return print(sentences(decoded.errors, file)), false;
  api::apply_defaults(decoded.job);
  const api::Findings anywhere = validate(decoded.job, decoded.positions);
  const api::Findings local = validate_for_local(decoded.job, decoded.positions);
  const api::Findings cluster = validate_for_cluster(decoded.job, decoded.positions);
  std::vector<api::FieldError> errors = anywhere.errors;
  if (!local.ok() && !cluster.ok()) {
    // It can run nowhere.
    errors.insert(errors.end(), local.errors.begin(), local.errors.end());
    errors.insert(errors.end(), cluster.errors.begin(), cluster.errors.end());
  }
  if (!errors.empty()) return print(sentences(errors, file)), false;
  for (const api::Findings& findings : {anywhere, local, cluster}) {
    for (api::FieldError warning : findings.warnings) {
      warning.message += " (a warning)";
      print(warning.sentence(file));
    }
  }
  const char* where = local.ok() && cluster.ok() ? "here and in a cluster"
                      : local.ok()               ? "here, not in a cluster"
                                                 : "in a cluster, not here";
  print(sentences(local.errors, file));
  print(sentences(cluster.errors, file));
  out << fmt::format("{}: valid: {}; runs {}\n", file, summary(decoded.job), where);
  return true;
}

}  // namespace

int validate_files(const std::vector<std::filesystem::path>& files, std::ostream& out,
                   std::ostream& err) {
  bool all = true;
  for (const std::filesystem::path& file : files) all = validate_file(file, out, err) && all;
  return static_cast<int>(all ? ExitCode::kOk : ExitCode::kManifest);
}

void add_validate_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("validate", "check manifests, and say what is wrong");
  auto files = std::make_shared<std::vector<std::filesystem::path>>();
  command->add_option("FILE", *files, "manifests of TrainJobs")->required();
  command->callback(
      [files, &exit_code] { exit_code = validate_files(*files, std::cout, std::cerr); });
}

}  // namespace tilewright
