#include "controller/cli/validate.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "common/base/files.h"
#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "common/json/document.h"
#include "common/json/members.h"
#include "controller/api/defaults.h"
#include "controller/api/validate.h"
#include "controller/client/config.h"
#include "controller/convert/convert.h"
#include "controller/operator/preflight.h"

namespace tilewright {
namespace {

constexpr std::chrono::seconds kClusterDeadline{30};

std::string summary(const api::TrainJob& job) {
  const api::ElasticPolicy& elastic = job.spec.elastic_policy;
  std::string workers = counted(static_cast<std::size_t>(*job.spec.worker.replicas), "worker");
  if (*elastic.min_replicas != *elastic.max_replicas) {
    workers += fmt::format(" ({} to {})", *elastic.min_replicas, *elastic.max_replicas);
  }
  const api::ProcessCount processes = *job.spec.nproc_per_node;
  if (processes.automatic) {
    workers += " of one process for each NUMA node";
  } else if (processes.number > 1) {
    workers += fmt::format(" of {} processes", processes.number);
  }
  return fmt::format("{} on {} with cpu {} and memory {} each, {} examples per step in {} shards",
                     api::describe_task(job), workers, job.spec.worker.resources.at("cpu").text,
                     job.spec.worker.resources.at("memory").text, api::global_batch(job),
                     api::virtual_shards(job));
}

void print(std::ostream& err, const std::string& text) {
  if (!text.empty()) err << text << '\n';
}

void print_warnings(std::ostream& err, const std::vector<FieldError>& warnings,
                    const std::string& file) {
  for (FieldError warning : warnings) {
    warning.message += " (warning)";
    print(err, warning.sentence(file));
  }
}

// Prints the findings. Returns true if the TrainJob is valid.
bool validate_trainjob(Document document, const std::string& file, std::ostream& out,
                       std::ostream& err) {
  api::DecodeResult decoded = api::decode_document(std::move(document));
  if (!decoded.ok()) return print(err, sentences(decoded.errors, file)), false;
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
  if (!errors.empty()) return print(err, sentences(errors, file)), false;
  for (const api::Findings& findings : {anywhere, local, cluster}) {
    print_warnings(err, findings.warnings, file);
  }
  const char* where = local.ok() && cluster.ok() ? "on this machine and in a cluster"
                      : local.ok()               ? "on this machine, not in a cluster"
                                                 : "in a cluster, not on this machine";
  print(err, sentences(local.errors, file));
  print(err, sentences(cluster.errors, file));
  out << fmt::format("{}: valid: {}; runs {}\n", file, summary(decoded.job), where);
  return true;
}

// The same for a PyTorchJob, with how the worker image handles it.
bool validate_pytorchjob(Document document, const std::string& file, std::ostream& out,
                         std::ostream& err) {
  const api::DecodedPyTorchJob decoded = api::decode_pytorchjob_document(std::move(document));
  if (!decoded.ok()) return print(err, sentences(decoded.errors, file)), false;
  api::PyTorchJob job = decoded.job;
  api::apply_defaults(job);
  const api::Findings findings = validate(job, decoded.positions);
  if (!findings.ok()) return print(err, sentences(findings.errors, file)), false;
  print_warnings(err, findings.warnings, file);
  const Result<std::string> native = convert::native_summary(decoded.job);
  if (!native.ok()) {
    out << fmt::format("{}: valid PyTorchJob; it does not run natively: {}\n", file,
                       native.error().message);
    return true;
  }
  const convert::Conversion conversion = convert::convert(decoded.job, decoded.positions);
  std::vector<FieldError> ignored;  // by the worker image
  for (const convert::Note& note : conversion.notes) {
    if (!note.trainjob) ignored.push_back(note.at);
  }
  print_warnings(err, ignored, file);
  out << fmt::format("{}: valid PyTorchJob: on the worker image {}; ", file, *native);
  if (conversion.ok()) {
    out << "tilewright convert makes a TrainJob of it\n";
  } else {
    out << "tilewright convert cannot make a TrainJob of it\n";
    print(err, sentences(conversion.errors, file));
  }
  return true;
}

// Prints the findings. Returns true if all jobs in the file are valid.
bool validate_file(const std::filesystem::path& path, std::ostream& out, std::ostream& err) {
  const std::string file = path.string();
  const Result<std::string> text = read_file(path, kMaxManifestBytes, ExitCode::kManifest);
  if (!text.ok()) return print(err, text.error().message), false;
  std::vector<Document> documents = read_yaml_documents(*text);
  bool all = true;
  std::size_t jobs = 0;
  for (Document& document : documents) {
    const std::string kind = string_member(document.tree, "kind");
    const bool other =
        documents.size() > 1 && !kind.empty() && kind != kTrainJobKind && kind != kPyTorchJobKind;
    if (other) {
      const FieldError skipped = {"", document.positions.line_of("kind"),
                                  fmt::format("not checked: the kind is {}", kind)};
      print(err, skipped.sentence(file));
      continue;
    }
    ++jobs;
    const bool valid = kind == kPyTorchJobKind
                           ? validate_pytorchjob(std::move(document), file, out, err)
                           : validate_trainjob(std::move(document), file, out, err);
    all = valid && all;
  }
  if (jobs == 0) {
    print(err, fmt::format("{}: found no job, expected a {} or a {}", file, kTrainJobKind,
                           kPyTorchJobKind));
  }
  return all && jobs > 0;
}

// Prints the result of a dry run in a cluster. Returns true if the cluster accepts the job.
bool check_in_cluster(kube::Client& client, const kube::ClusterConfig& config,
                      const ClusterOptions& options, const std::string& file,
                      const Document& document, std::ostream& out, std::ostream& err) {
  const auto checked = api::check_document(document, file, api::Target::kCluster);
  if (!checked) return print(err, checked.error().message), false;
  std::string namespace_name = options.namespace_name;
  if (namespace_name.empty()) namespace_name = checked->job.metadata.namespace_name;
  if (namespace_name.empty()) namespace_name = config.default_namespace;
  const controller::Preflight preflight = controller::run_preflight(
      client, namespace_name, document.tree, checked->job, net::within(kClusterDeadline));
  for (const std::string& sentence : preflight.errors) {
    err << fmt::format("{}: {}\n", file, sentence);
  }
  for (const std::string& sentence : preflight.unknown) {
    err << fmt::format("{}: not checked: {}\n", file, sentence);
  }
  if (!preflight.errors.empty()) return false;
  out << fmt::format("{}: accepted by {} in namespace {}\n", file, config.server, namespace_name);
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
    if (!text.ok()) {
      err << text.error().message << '\n';
      all = false;
      continue;
    }
    for (const Document& document : read_yaml_documents(*text)) {
      const std::string kind = string_member(document.tree, "kind");
      if (kind == kPyTorchJobKind) {
        err << fmt::format(
            "{}: {} not checked against the cluster; use kubectl create "
            "--dry-run=server\n",
            path.string(), kind);
      } else if (kind == kTrainJobKind || kind.empty()) {
        all = check_in_cluster(**client, *config, cluster_options, path.string(), document, out,
                               err) &&
              all;
      }
    }
  }
  return static_cast<int>(all ? ExitCode::kOk : ExitCode::kManifest);
}

void add_validate_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "validate", "Check manifests of TrainJobs and PyTorchJobs and report all errors");
  struct ValidateOptions {
    std::vector<std::filesystem::path> files;
    bool cluster = false;
    ClusterOptions cluster_options;
  };
  auto options = std::make_shared<ValidateOptions>();
  command->add_option("FILE", options->files, "Manifests of TrainJobs and PyTorchJobs")->required();
  CLI::Option* cluster =
      command->add_flag("--cluster", options->cluster,
                        "Also check against a cluster: API server validation, node capacity, "
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
