#include "controller/cli/validate.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "common/base/files.h"
#include "controller/api/defaults.h"
#include "controller/api/document.h"
#include "controller/api/validate.h"
#include "controller/kube/config.h"
#include "controller/manager/preflight.h"

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

int validate_in_cluster(const std::vector<std::filesystem::path>& files,
                        const ClusterQuestion& question, std::ostream& out, std::ostream& err) {
  kube::ConfigSources sources = kube::config_sources_of_environment();
  sources.kubeconfig = question.kubeconfig;
  sources.context = question.context;
  const auto config = kube::load_config(sources);
  if (!config) return err << config.error().message << '\n', static_cast<int>(config.error().code);
  const auto client = kube::Client::make(*config);
  if (!client) return err << client.error().message << '\n', static_cast<int>(client.error().code);
  bool all = true;
  for (const std::filesystem::path& path : files) {
    const Result<std::string> text = read_file(path, api::kMaxManifestBytes, ExitCode::kManifest);
    const auto checked = text ? api::check_manifest(*text, path.string(), api::Target::kCluster)
                              : Result<api::Checked>(text.error());
    if (!checked) {
      err << checked.error().message << '\n';
      all = false;
      continue;
    }
    std::string space = question.namespace_name;
    if (space.empty()) space = checked->job.metadata.namespace_name;
    if (space.empty()) space = config->default_namespace;
    const manager::Preflight preflight = manager::ask_cluster(
        **client, space, api::read_yaml(*text).tree, checked->job, net::within(kClusterDeadline));
    for (const std::string& sentence : preflight.obstacles) {
      err << fmt::format("{}: {}\n", path.string(), sentence);
    }
    for (const std::string& sentence : preflight.unknown) {
      err << fmt::format("{}: not known: {}\n", path.string(), sentence);
    }
    all = all && preflight.obstacles.empty();
    if (preflight.obstacles.empty()) {
      out << fmt::format("{}: {} would take it, in namespace {}\n", path.string(), config->server,
                         space);
    }
  }
  return static_cast<int>(all ? ExitCode::kOk : ExitCode::kManifest);
}

void add_validate_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("validate", "check manifests, and say what is wrong");
  struct Told {
    std::vector<std::filesystem::path> files;
    bool cluster = false;
    ClusterQuestion question;
  };
  auto told = std::make_shared<Told>();
  command->add_option("FILE", told->files, "manifests of TrainJobs")->required();
  CLI::Option* cluster = command->add_flag(
      "--cluster", told->cluster,
      "ask a cluster, too: whether it would take the job, has a node that is large enough, and "
      "has the claims; nothing is made");
  command->add_option("--kubeconfig", told->question.kubeconfig, "where the cluster is")
      ->needs(cluster);
  command->add_option("--context", told->question.context, "of the kubeconfig")->needs(cluster);
  command
      ->add_option("--namespace", told->question.namespace_name,
                   "in place of the manifest's, or the kubeconfig's")
      ->needs(cluster);
  command->callback([told, &exit_code] {
    exit_code = validate_files(told->files, std::cout, std::cerr);
    if (told->cluster && exit_code == 0) {
      exit_code = validate_in_cluster(told->files, told->question, std::cout, std::cerr);
    }
  });
}

}  // namespace tilewright
