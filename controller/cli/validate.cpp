#include "controller/cli/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "common/contract/pod_paths.h"
#include "common/json/document.h"
#include "common/json/members.h"
#include "controller/api/defaults.h"
#include "controller/api/documents.h"
#include "controller/api/validate.h"
#include "controller/cli/manifest.h"
#include "controller/cli/remarks.h"
#include "controller/client/config.h"
#include "controller/convert/convert.h"
#include "controller/convert/native.h"
#include "controller/operator/preflight.h"

namespace tilewright {
namespace {

constexpr std::chrono::seconds kClusterDeadline{30};

// "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

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
  const auto& resources = job.spec.worker.resources;
  std::vector<std::string> amounts;
  for (const char* name : {"cpu", "memory"}) {
    amounts.push_back(fmt::format("{} {}", name, resources.at(name).text));
  }
  for (const auto& [name, amount] : resources) {
    if (name == "cpu" || name == "memory") continue;
    amounts.push_back(fmt::format("{} {}", name, amount.text));
  }
  return fmt::format("{} on {} with {} each, {} examples per step in {} shards",
                     api::describe_task(job), workers, listed(amounts), api::global_batch(job),
                     api::virtual_shards(job));
}

// What the job lacks that `tilewright up` needs: "the volume work needs local".
std::string missing_for_local(const api::TrainJob& job) {
  std::vector<std::string> volumes, variables, parts;
  for (const api::Volume& volume : job.spec.volumes) {
    if (!volume.local) volumes.push_back(volume.name);
  }
  for (const api::EnvVar& variable : job.spec.worker.env) {
    if (!variable.value_from.is_null()) variables.push_back(variable.name);
  }
  const auto add = [&](const char* what, const std::vector<std::string>& names, const char* need) {
    if (names.empty()) return;
    const bool one = names.size() == 1;
    parts.push_back(fmt::format("the {}{} {} need{} {}", what, one ? "" : "s", listed(names),
                                one ? "s" : "", need));
  };
  add("volume", volumes, "local");
  add("variable", variables, "a value");
  return listed(parts);
}

// Why a job can run neither on this machine nor in a cluster, without what `reported` says already.
std::vector<FieldError> errors_of_both(const api::TrainJob& job, const api::Findings& local,
                                       const api::Findings& cluster,
                                       const std::vector<FieldError>& reported) {
  const auto& volumes = job.spec.volumes;
  const bool for_local = std::ranges::any_of(
      volumes, [](const api::Volume& volume) { return volume.local.has_value(); });
  const bool for_cluster = std::ranges::any_of(
      volumes, [](const api::Volume& volume) { return !volume.source.is_null(); });
  std::vector<FieldError> errors;
  const auto add = [&](const api::Findings& findings) {
    for (const FieldError& error : findings.errors) {
      const bool known = std::ranges::any_of(reported, [&](const FieldError& other) {
        return error.path == other.path || error.path.starts_with(other.path + ".");
      });
      if (!known) errors.push_back(error);
    }
  };
  // A manifest that was written for one of them needs nothing of the other.
  if (for_local || !for_cluster) add(local);
  if (for_cluster || !for_local) add(cluster);
  return errors;
}

void print(std::ostream& err, const std::string& text) {
  if (!text.empty()) err << text << '\n';
}

// Prints the errors and returns false.
bool fail(const std::vector<FieldError>& errors, const std::string& file, std::ostream& err) {
  print(err, sentences(errors, file));
  return false;
}

// Prints the findings. Returns true if the TrainJob is valid.
bool validate_trainjob(Document document, const std::string& file, std::ostream& out,
                       std::ostream& err) {
  api::DecodeResult decoded = api::decode_document(std::move(document));
  if (!decoded.ok()) return fail(decoded.errors, file, err);
  api::apply_defaults(decoded.job);
  const api::Findings anywhere = validate(decoded.job, decoded.positions);
  const api::Findings local = validate_for_local(decoded.job, decoded.positions);
  const api::Findings cluster = validate_for_cluster(decoded.job, decoded.positions);
  std::vector<FieldError> errors = anywhere.errors;
  if (!local.ok() && !cluster.ok()) {
    for (FieldError& error : errors_of_both(decoded.job, local, cluster, anywhere.errors)) {
      errors.push_back(std::move(error));
    }
  }
  if (!errors.empty()) return fail(errors, file, err);
  for (const api::Findings& findings : {anywhere, local, cluster}) {
    print_warnings(err, findings.warnings, file);
  }
  const std::string where =
      !local.ok()    ? "in a cluster; for tilewright up " + missing_for_local(decoded.job)
      : cluster.ok() ? "on this machine and in a cluster"
                     : "on this machine, not in a cluster";
  print_remarks(err, cluster.errors, file, "in a cluster");
  out << fmt::format("{}: valid: {}; runs {}\n", file, summary(decoded.job), where);
  return true;
}

// The same for a PyTorchJob, with whether Tilewright's trainer runs it.
bool validate_pytorchjob(Document document, const std::string& file, std::ostream& out,
                         std::ostream& err) {
  const api::DecodedPyTorchJob decoded = api::decode_pytorchjob_document(std::move(document));
  if (!decoded.ok()) return fail(decoded.errors, file, err);
  api::PyTorchJob job = decoded.job;
  api::apply_defaults(job);
  const api::Findings findings = validate(job, decoded.positions);
  if (!findings.ok()) return fail(findings.errors, file, err);
  const convert::NativeCheck native = convert::check_native(decoded.job, decoded.positions);
  if (native.fails) return fail(native.errors, file, err);
  print_warnings(err, findings.warnings, file);
  if (native.starts_worker) {
    out << fmt::format(
        "{}: valid PyTorchJob: its pods start {} themselves; the flags are not checked\n", file,
        kWorkerProgram);
    return true;
  }
  if (!native.errors.empty()) {
    print_remarks(err, native.errors, file, "with Tilewright's trainer");
    out << fmt::format(
        "{}: valid PyTorchJob: the operator runs it with its own image; Tilewright's trainer does "
        "not run it\n",
        file);
    return true;
  }
  const convert::Conversion conversion = convert::convert(decoded.job, decoded.positions);
  std::vector<FieldError> ignored;  // by Tilewright's trainer
  for (const convert::Note& note : conversion.notes) {
    if (!note.trainjob) ignored.push_back(note.at);
  }
  print_warnings(err, ignored, file);
  out << fmt::format("{}: valid PyTorchJob: in the image {}, Tilewright's trainer runs {}; ", file,
                     kWorkerProgram, native.summary);
  if (conversion.ok()) {
    out << "tilewright convert makes a TrainJob of it\n";
  } else {
    out << "tilewright convert cannot make a TrainJob of it\n";
    print_remarks(err, conversion.errors, file, "as a TrainJob");
  }
  return true;
}

// Prints the findings. Returns true if all jobs in the manifest are valid.
bool validate_manifest(const Input& manifest, std::ostream& out, std::ostream& err) {
  const std::string& file = manifest.name;
  std::vector<Document> documents = api::read_objects(manifest.text);
  bool all = true;
  std::size_t jobs = 0;
  for (Document& document : documents) {
    if (const auto wrong = api::kind_error(document, documents.size() == 1)) {
      print(err, wrong->sentence(file));
      all = false;
      ++jobs;
      continue;
    }
    const std::string kind = string_member(document.tree, "kind");
    if (!kind.empty() && kind != kTrainJobKind && kind != kPyTorchJobKind) {
      const FieldError skipped = {"", document.positions.line_of("kind"),
                                  fmt::format("not checked: the kind is {}", excerpt(kind))};
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

// Prints the result of a dry run in a cluster. Returns kManifest if the job is invalid or the
// cluster would reject it, kPeerLost if a check failed to run, else kOk.
ExitCode check_in_cluster(kube::Client& client, const kube::ClusterConfig& config,
                          const ClusterOptions& options, const std::string& file,
                          const Document& document, std::ostream& out, std::ostream& err) {
  const auto checked = api::check_document(document, file, api::Target::kCluster);
  if (!checked) {
    print(err, checked.error().message);
    return ExitCode::kManifest;
  }
  std::string namespace_name = options.namespace_name;
  if (namespace_name.empty()) namespace_name = checked->job.metadata.namespace_name;
  if (namespace_name.empty()) namespace_name = config.default_namespace;
  const controller::Preflight preflight = controller::run_preflight(
      client, namespace_name, document.tree, checked->job, net::within(kClusterDeadline));
  for (const std::string& sentence : preflight.errors) {
    err << fmt::format("{}: {}\n", file, sentence);
  }
  for (const auto* sentences : {&preflight.not_permitted, &preflight.failed}) {
    for (const std::string& sentence : *sentences) {
      err << fmt::format("{}: not checked: {}\n", file, sentence);
    }
  }
  if (!preflight.errors.empty()) return ExitCode::kManifest;
  if (!preflight.failed.empty()) return ExitCode::kPeerLost;
  out << fmt::format("{}: {} by {} in namespace {}\n", file,
                     preflight.job_accepted ? "accepted" : "only partly checked", config.server,
                     namespace_name);
  return ExitCode::kOk;
}

}  // namespace

int validate_files(const std::vector<std::filesystem::path>& files,
                   const std::optional<ClusterOptions>& cluster, std::ostream& out,
                   std::ostream& err) {
  std::vector<Input> manifests;
  bool all = true;
  for (const std::filesystem::path& file : files) {
    Result<Input> manifest = read_manifest(file);
    if (!manifest.ok()) {
      print(err, manifest.error().message);
      all = false;
      continue;
    }
    all = validate_manifest(*manifest, out, err) && all;
    manifests.push_back(std::move(manifest).value());
  }
  if (!all) return static_cast<int>(ExitCode::kManifest);
  return cluster ? validate_in_cluster(manifests, *cluster, out, err) : 0;
}

int validate_in_cluster(const std::vector<Input>& manifests, const ClusterOptions& cluster_options,
                        std::ostream& out, std::ostream& err) {
  const auto fail = [&err](const Error& error) {
    print(err, error.message);
    return static_cast<int>(error.code);
  };
  const auto config = kube::load_config(config_sources(cluster_options.connection));
  if (!config) return fail(config.error());
  const auto client = kube::Client::make(*config);
  if (!client) return fail(client.error());
  ExitCode outcome = ExitCode::kOk;
  const auto add = [&outcome](ExitCode code) {
    if (outcome != ExitCode::kManifest && code != ExitCode::kOk) outcome = code;
  };
  for (const auto& [file, text] : manifests) {
    for (const Document& document : api::read_objects(text)) {
      const std::string kind = string_member(document.tree, "kind");
      if (kind == kPyTorchJobKind) {
        err << fmt::format(
            "{}: {} not checked against the cluster; use kubectl create "
            "--dry-run=server\n",
            file, kind);
      } else if (kind == kTrainJobKind || kind.empty()) {
        add(check_in_cluster(**client, *config, cluster_options, file, document, out, err));
      }
    }
  }
  return static_cast<int>(outcome);
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
  command
      ->add_option("FILE", options->files,
                   "Manifests of TrainJobs and PyTorchJobs; -: standard input")
      ->required();
  CLI::Option* cluster =
      command->add_flag("--cluster", options->cluster,
                        "Also check against a cluster: API server validation, node capacity, "
                        "PersistentVolumeClaims, quotas; creates nothing");
  for (CLI::Option* option :
       add_kubeconfig_options(*command, options->cluster_options.connection)) {
    option->needs(cluster);
  }
  command
      ->add_option(
          "--namespace", options->cluster_options.namespace_name,
          "Namespace of the TrainJob; default: metadata.namespace, then the namespace of the "
          "kubeconfig")
      ->needs(cluster);
  command->callback([options, &exit_code] {
    exit_code = validate_files(
        options->files, options->cluster ? std::optional(options->cluster_options) : std::nullopt,
        std::cout, std::cerr);
  });
}

}  // namespace tilewright
