#include "controller/convert/policies.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/base/printable.h"
#include "common/contract/labels.h"
#include "common/contract/rdzv_conf.h"
#include "common/json/positions.h"
#include "common/launch/unknown_value.h"

namespace tilewright::convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kElasticPolicy = "spec.elasticPolicy";
constexpr const char* kRendezvousInOperator = "the rendezvous runs in the operator";

void convert_rdzv_conf(const api::PyTorchElasticPolicy& elastic, ordered_json& target,
                       Draft& draft) {
  const std::string path = member_path(kElasticPolicy, "rdzvConf");
  const auto is_known = [](const std::string& key) {
    return std::ranges::find(kRdzvConfKeys, key) != kRdzvConfKeys.end();
  };
  // The settings are kept or left out together: one alone could mean another timeout.
  RdzvConf conf;
  Status usable;
  for (const auto& [key, value] : elastic.rdzv_conf) {
    if (usable.ok() && is_known(key)) usable = set_rdzv_conf(conf, key, value);
  }
  if (usable.ok()) usable = check(conf);
  for (std::size_t i = 0; i < elastic.rdzv_conf.size(); ++i) {
    const auto& [key, value] = elastic.rdzv_conf[i];
    if (is_known(key) && usable.ok()) {
      target["rdzvConf"].push_back({{"key", key}, {"value", value}});
    } else {
      draft.note(element_path(path, i), path,
                 fmt::format("rdzvConf {}: {}", key,
                             is_known(key) ? usable.error().message : kRendezvousInOperator));
    }
  }
}

// spec.elasticPolicy of the PyTorchJob.
void convert_job_elastic_policy(const Source& source, ordered_json& target, Draft& draft) {
  const api::PyTorchElasticPolicy& elastic = *source.written.spec.elastic_policy;
  const auto drop = [&](const char* name, const json& value) {
    const std::string path = member_path(kElasticPolicy, name);
    draft.note(path, path,
               fmt::format("{} {}: {}", name, format_value(value), kRendezvousInOperator));
  };
  if (elastic.rdzv_backend.value_or("c10d") == "c10d") {
    if (elastic.rdzv_backend) target["rdzvBackend"] = "c10d";
  } else {
    drop("rdzvBackend", *elastic.rdzv_backend);
  }
  if (source.job.spec.elastic_policy->min_replicas) {
    const std::int64_t masters = source.job.spec.master ? 1 : 0;
    target["minReplicas"] = masters + *source.job.spec.elastic_policy->min_replicas;
    target["maxReplicas"] = masters + *source.job.spec.elastic_policy->max_replicas;
  }
  if (elastic.max_restarts) target["maxRestarts"] = *elastic.max_restarts;
  if (elastic.rdzv_port) drop("rdzvPort", *elastic.rdzv_port);
  if (elastic.rdzv_host) drop("rdzvHost", *elastic.rdzv_host);
  if (elastic.rdzv_id) drop("rdzvId", *elastic.rdzv_id);
  convert_rdzv_conf(elastic, target, draft);
  if (elastic.standalone.value_or(false)) drop("standalone", "true");
  if (!elastic.metrics.is_null()) {
    draft.note("spec.elasticPolicy.metrics", "spec.elasticPolicy.metrics",
               fmt::format("metrics: no HorizontalPodAutoscaler is created; create one whose "
                           "scaleTargetRef is the {}.{}",
                           kTrainJobPlural, kApiGroup),
               true);
  }
}

void convert_max_restarts(const Source& source, const std::string& written, ordered_json& target,
                          Draft& draft) {
  constexpr std::size_t kMaxDigits = 6;
  const std::string text = launch::with_references(written);
  if (text.empty() || text.size() > kMaxDigits ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    draft.error(source.container.path_of_flag("max_restarts"),
                fmt::format("--max_restarts: found {}, expected an integer", excerpt(text)));
  } else {
    target["maxRestarts"] = std::stoi(text);
  }
}

// Notes the options that a TrainJob does not need.
void note_unused_options(const Source& source, const launch::TorchrunOptions& torchrun,
                         Draft& draft) {
  constexpr const char* kLog = "each process writes to the log of its pod";
  constexpr const char* kStart = "the operator starts the processes, not torchrun";
  struct Option {
    const char* name;
    const std::optional<std::string>& value;
    const char* why;
  };
  for (const auto& [name, value, why] :
       {Option{"nnodes", torchrun.nnodes, "minReplicas and maxReplicas set it"},
        Option{"rdzv_backend", torchrun.rdzv_backend, kStart},
        Option{"rdzv_endpoint", torchrun.rdzv_endpoint, kStart},
        Option{"rdzv_id", torchrun.rdzv_id, kStart},
        Option{"rdzv_conf", torchrun.rdzv_conf, kStart},
        Option{"monitor_interval", torchrun.monitor_interval, kStart},
        Option{"node_rank", torchrun.node_rank, kStart},
        Option{"master_addr", torchrun.master_addr, kStart},
        Option{"master_port", torchrun.master_port, kStart},
        Option{"local_addr", torchrun.local_addr, kStart},
        Option{"log_dir", torchrun.log_dir, kLog}, Option{"redirects", torchrun.redirects, kLog},
        Option{"tee", torchrun.tee, kLog}, Option{"start_method", torchrun.start_method, kStart},
        Option{"role", torchrun.role, kStart}}) {
    if (!value) continue;
    draft.note(source.container.path_of_flag(name), kElasticPolicy,
               fmt::format("--{} {}: {}", name, launch::with_references(*value), why));
  }
  if (torchrun.standalone) {
    draft.note(source.container.path_of_flag("standalone"), kElasticPolicy,
               fmt::format("--standalone: {}", kRendezvousInOperator));
  }
}

ordered_json convert_scheduling_policy(const api::PyTorchSchedulingPolicy& policy, Draft& draft) {
  const api::SchedulingPolicy& scheduling = policy.common;
  ordered_json gang = ordered_json::object();
  if (scheduling.min_available) gang["minAvailable"] = *scheduling.min_available;
  if (scheduling.queue) gang["queue"] = *scheduling.queue;
  if (scheduling.priority_class) gang["priorityClass"] = *scheduling.priority_class;
  if (scheduling.schedule_timeout_seconds) {
    gang["scheduleTimeoutSeconds"] = *scheduling.schedule_timeout_seconds;
  }
  if (!policy.min_resources.is_null()) {
    const std::string path = "spec.runPolicy.schedulingPolicy.minResources";
    draft.note(path, path, "minResources: the PodGroup of a TrainJob has minAvailable only", true);
  }
  return gang;
}

}  // namespace

void convert_metadata(const Source& source, Draft& draft) {
  const api::ObjectMeta& metadata = source.job.metadata;
  ordered_json& target = draft.tree["metadata"];
  for (const auto& [name, text] :
       {std::pair{"name", &metadata.name}, std::pair{"generateName", &metadata.generate_name},
        std::pair{"namespace", &metadata.namespace_name}}) {
    if (text->empty()) continue;
    target[name] = *text;
    draft.made_of(fmt::format("metadata.{}", name), fmt::format("metadata.{}", name));
  }
  if (!metadata.labels.empty()) target["labels"] = metadata.labels;
  for (const auto& [name, value] : metadata.annotations) {
    // What kubectl wrote describes the PyTorchJob.
    if (name.starts_with("kubectl.kubernetes.io/")) continue;
    target["annotations"][name] = value;
  }
}

void convert_process_count(const Source& source, Draft& draft) {
  const api::GivenProcesses processes =
      api::given_processes(source.job.spec, source.container, source.training.command);
  draft.made_of("spec.nprocPerNode", processes.path);
  if (std::string problem = processes.problem(); !problem.empty()) {
    return draft.error(processes.path, std::move(problem));
  }
  const std::optional<std::int64_t> number = processes.number();
  draft.tree["spec"]["nprocPerNode"] =
      number ? ordered_json(*number) : ordered_json(processes.text);
}

void convert_elastic_policy(const Source& source, Draft& draft) {
  ordered_json target = ordered_json::object();
  if (source.written.spec.elastic_policy) convert_job_elastic_policy(source, target, draft);
  if (const auto& torchrun = source.training.command.torchrun) {
    if (torchrun->max_restarts) {
      convert_max_restarts(source, *torchrun->max_restarts, target, draft);
    }
    note_unused_options(source, *torchrun, draft);
  }
  if (!target.empty()) draft.tree["spec"]["elasticPolicy"] = std::move(target);
}

void convert_run_policy(const Source& source, Draft& draft) {
  const api::PyTorchRunPolicy& policy = source.written.spec.run_policy;
  ordered_json target = ordered_json::object();
  if (policy.suspend) target["suspend"] = *policy.suspend;
  const api::RunPolicy limits = policy.common();
  if (limits.ttl_seconds_after_finished) {
    target["ttlSecondsAfterFinished"] = *limits.ttl_seconds_after_finished;
  }
  if (limits.active_deadline_seconds) {
    target["activeDeadlineSeconds"] = *limits.active_deadline_seconds;
  }
  if (limits.backoff_limit) {
    const ordered_json elastic = draft.tree["spec"].value("elasticPolicy", ordered_json::object());
    if (!elastic.contains("maxRestarts") || elastic["maxRestarts"] == *limits.backoff_limit) {
      target["backoffLimit"] = *limits.backoff_limit;
    } else {
      draft.note("spec.runPolicy.backoffLimit", "spec.runPolicy.backoffLimit",
                 fmt::format("backoffLimit {}: elasticPolicy.maxRestarts limits the restarts",
                             *limits.backoff_limit));
    }
  }
  if (policy.clean_pod_policy) {
    target["cleanPodPolicy"] = std::string(api::to_string(*policy.clean_pod_policy));
  }
  if (policy.scheduling_policy) {
    target["schedulingPolicy"] = convert_scheduling_policy(*policy.scheduling_policy, draft);
  }
  if (policy.managed_by) {
    draft.note("spec.runPolicy.managedBy", "spec.runPolicy.managedBy",
               fmt::format("managedBy {}: Tilewright's operator manages every TrainJob",
                           excerpt(*policy.managed_by)),
               true);
  }
  if (!target.empty()) draft.tree["spec"]["runPolicy"] = std::move(target);
}

}  // namespace tilewright::convert
