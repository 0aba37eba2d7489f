#include "controller/cli/validate.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "common/base/files.h"
#include "common/json/document.h"
#include "controller/api/defaults.h"
#include "controller/api/validate.h"
#include "controller/client/config.h"
#include "controller/operator/preflight.h"

namespace tilewright {
namespace {

constexpr std::chrono::seconds kClusterDeadline{30};

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
  return fmt::format("{} on {} with cpu {} and memory {} each, {} examples per step in {} shards",
                     job.spec.trainer.task, workers, job.spec.worker.resources.at("cpu").text,
                     job.spec.worker.resources.at("memory").text, api::global_batch(job),
                     api::virtual_shards(job));
}

// Prints the findings. Returns true if the file is valid.
bool validate_file(const std::filesystem::path& path, std::ostream& out, std::ostream& err) {
  const std::string file = path.string();
  const auto print = [&err](const std::string& text) {
    if (!text.empty()) err << text << '\n';
  };
  const Result<std::string> text = read_file(path, kMaxManifestBytes, ExitCode::kManifest);
  if (!text.ok()) return print(text.error().message), false;
  api::DecodeResult decoded = api::decode_manifest(*text);
  if (!decoded.ok()) return print(sentences(decoded.errors, file)), false;
  api::apply_defaults(decoded.job);
  const api::Findings anywhere = validate(decoded.job, decoded.positions);
  const api::Findings local = validate_for_local(decoded.job, decoded.positions);
  const api::Findings cluster = validate_for_cluster(decoded.job, decoded.positions);
  std::vector<FieldError> errors = anywhere.errors;
  if (!local.ok() && !cluster.ok()) {
    // The job can run neither on this machine nor in a cluster.
    errors.insert(errors.end(), local.errors.begin(), local.errors.end());
    errors.insert(errors.end(), cluster.errors.begin(), cluster.errors.end());
  }
  if (!errors.empty()) return print(sentences(errors, file)), false;
  for (const api::Findings& findings : {anywhere, local, cluster}) {
    for (FieldError warning : findings.warnings) {
      warning.message += " (warning)";
      print(warning.sentence(file));
    }
  }
  const char* where = local.ok() && cluster.ok() ? "on this machine and in a cluster"
                      : local.ok()               ? "on this machine, not in a cluster"
                                                 : "in a cluster, not on this machine";
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

int validate_in_cluster(const std::vector<std::filesystem::path>& files,
                        const ClusterOptions& cluster_options, std::ostream& out,
                        std::ostream& err) {
  kube::ConfigSources sources = kube::config_sources_from_environment();
  sources.kubeconfig = cluster_options.kubeconfig;
  sources.context = cluster_options.context;
  const auto config = kube::load_config(sources);
  if (!config) return err << config.error().message << '\n', static_cast<int>(config.error().code);
  const auto client = kube::Client::make(*config);
  if (!client) return err << client.error().message << '\n', static_cast<int>(client.error().code);
  bool all = true;
  for (const std::filesystem::path& path : files) {
    const Result<std::string> text = read_file(path, kMaxManifestBytes, ExitCode::kManifest);
    const auto checked = text ? api::check_manifest(*text, path.string(), api::Target::kCluster)
                              : Result<api::ValidatedJob>(text.error());
    if (!checked) {
      err << checked.error().message << '\n';
      all = false;
      continue;
    }
    std::string namespace_name = cluster_options.namespace_name;
    if (namespace_name.empty()) namespace_name = checked->job.metadata.namespace_name;
    if (namespace_name.empty()) namespace_name = config->default_namespace;
    const controller::Preflight preflight =
        controller::run_preflight(**client, namespace_name, read_yaml(*text).tree, checked->job,
                                  net::within(kClusterDeadline));
    for (const std::string& sentence : preflight.errors) {
      err << fmt::format("{}: {}\n", path.string(), sentence);
    }
    for (const std::string& sentence : preflight.unknown) {
      err << fmt::format("{}: not checked: {}\n", path.string(), sentence);
    }
    all = all && preflight.errors.empty();
    if (preflight.errors.empty()) {
      out << fmt::format("{}: accepted by {} in namespace {}\n", path.string(), config->server,
                         namespace_name);
    }
  }
  return static_cast<int>(all ? ExitCode::kOk : ExitCode::kManifest);
}

void add_validate_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("validate", "Check manifests of TrainJobs and report all errors");
  struct ValidateOptions {
    std::vector<std::filesystem::path> files;
    bool cluster = false;
    ClusterOptions cluster_options;
  };
  auto options = std::make_shared<ValidateOptions>();
  command->add_option("FILE", options->files, "Manifests of TrainJobs")->required();
  CLI::Option* cluster =
      command->add_flag("--cluster", options->cluster,
                        "Also check against a cluster: API server validation, size of the nodes, "
                        "PersistentVolumeClaims, quotas; creates nothing");
  command
      ->add_option(
          "--kubeconfig", options->cluster_options.kubeconfig,
          "Path of the kubeconfig; default: $KUBECONFIG, then the pod's service account, then "
          "~/.kube/config")
      ->needs(cluster);
  command
      ->add_option("--context", options->cluster_options.context,
                   "Context of the kubeconfig; default: current-context")
      ->needs(cluster);
  command
      ->add_option(
          "--namespace", options->cluster_options.namespace_name,
          "Namespace of the TrainJob; default: metadata.namespace, then the namespace of the "
          "kubeconfig")
      ->needs(cluster);
  command->callback([options, &exit_code] {
    exit_code = validate_files(options->files, std::cout, std::cerr);
    if (options->cluster && exit_code == 0) {
      exit_code =
          validate_in_cluster(options->files, options->cluster_options, std::cout, std::cerr);
    }
  });
}

}  // namespace tilewright
