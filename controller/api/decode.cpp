#include "controller/api/decode.h"

#include <fmt/format.h>

#include "common/contract/labels.h"
#include "common/contract/training_flags.h"
#include "controller/api/decode_parts.h"
#include "controller/api/fields.h"

namespace tilewright::api {
namespace {

void decode_elastic_policy(Fields& fields, ElasticPolicy& policy) {
  fields.text("rdzvBackend", policy.rdzv_backend);
  fields.each_object("rdzvConf", [&](Fields& inner) {
    RdzvSetting& setting = policy.rdzv_conf.emplace_back();
    inner.text("key", setting.key);
    inner.text("value", setting.value);
  });
  fields.integer("minReplicas", policy.min_replicas);
  fields.integer("maxReplicas", policy.max_replicas);
  fields.integer("maxRestarts", policy.max_restarts);
}

void decode_run_policy(Fields& fields, RunPolicy& policy) {
  fields.boolean("suspend", policy.suspend);
  fields.integer("ttlSecondsAfterFinished", policy.ttl_seconds_after_finished);
  fields.integer("activeDeadlineSeconds", policy.active_deadline_seconds);
  fields.integer("backoffLimit", policy.backoff_limit);
  fields.choice("cleanPodPolicy",
                {CleanPodPolicy::kNone, CleanPodPolicy::kRunning, CleanPodPolicy::kAll},
                policy.clean_pod_policy);
  fields.object("schedulingPolicy", [&](Fields& inner) {
    SchedulingPolicy& scheduling = policy.scheduling_policy.emplace();
    inner.integer("minAvailable", scheduling.min_available);
    inner.text("queue", scheduling.queue);
    inner.text("priorityClass", scheduling.priority_class);
    inner.integer("scheduleTimeoutSeconds", scheduling.schedule_timeout_seconds);
  });
}

// A flag's value as the command line would have it; nullopt after reporting a wrong type.
std::optional<std::string> flag_text(const Fields& fields, const TrainingFlag& flag,
                                     const nlohmann::json& value) {
  const bool fits = flag.type == FlagType::kBool    ? value.is_boolean()
                    : flag.type == FlagType::kInt   ? value.is_number_integer()
                    : flag.type == FlagType::kFloat ? value.is_number()
                                                    : value.is_string();
  if (!fits) {
    std::string expected = describe_expected(flag);
    if (value.is_boolean() && flag.type == FlagType::kChoice) {
      expected += " (YAML takes a bare yes, no, on or off for a boolean: put it in quotes)";
    }
    fields.wrong(flag.name, value, expected);
    return std::nullopt;
  }
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const Result<std::string> normal = normalise_flag(flag, text);
  if (normal.ok()) return *normal;
  fields.context().error(fields.path_of(flag.name), normal.error().message);
  return std::nullopt;
}

void decode_trainer(Fields& fields, Trainer& trainer) {
  fields.text("task", trainer.task);
  fields.text("model", trainer.model);
  fields.text("data", trainer.data);
  fields.text("output", trainer.output);
  fields.texts("args", trainer.args);
  // run_glue's names of the first four are taken as well.
  const std::pair<const char*, std::string*> aliases[] = {{"task_name", &trainer.task},
                                                          {"model_name_or_path", &trainer.model},
                                                          {"data_dir", &trainer.data},
                                                          {"output_dir", &trainer.output}};
  for (const auto& [name, target] : aliases) {
    std::string value;
    fields.text(name, value);
    if (value.empty() || value == *target) continue;
    if (target->empty()) {
      *target = value;
    } else {
      fields.context().error(fields.path_of(name),
                             fmt::format("found {}, expected {}, which this field's other name "
                                         "says, or only one of the two",
                                         value, *target));
    }
  }
  for (const TrainingFlag& flag : training_flags()) {
    const nlohmann::json* value = fields.take(flag.name);
    if (value == nullptr || flag.name == "task_name" || flag.name == "model_name_or_path" ||
        flag.name == "data_dir" || flag.name == "output_dir") {
      continue;
    }
    if (flag.set_by_runtime) {
      fields.wrong(flag.name, *value,
                   "nothing: it follows from spec.worker.replicas, spec.elasticPolicy.maxReplicas "
                   "and spec.nprocPerNode");
    } else if (auto text = flag_text(fields, flag, *value)) {
      trainer.flags[std::string(flag.name)] = *text;
    }
  }
}

void decode_env(Fields& fields, EnvVar& variable) {
  fields.text("name", variable.name);
  fields.text("value", variable.value);
  fields.raw_object("valueFrom", variable.value_from);
}

void decode_worker(Fields& fields, Worker& worker) {
  fields.integer("replicas", worker.replicas);
  fields.text("image", worker.image);
  fields.choice("imagePullPolicy",
                {ImagePullPolicy::kAlways, ImagePullPolicy::kIfNotPresent, ImagePullPolicy::kNever},
                worker.image_pull_policy);
  fields.choice("restartPolicy",
                {RestartPolicy::kAlways, RestartPolicy::kOnFailure, RestartPolicy::kNever,
                 RestartPolicy::kExitCode},
                worker.restart_policy);
  fields.object("resources", [&](Fields& inner) {
    for (const std::string& name : inner.rest()) {
      // What pods have here; finish() says where the amounts go.
      if (name == "limits" || name == "requests") continue;
      std::optional<Quantity> amount;
      inner.quantity(name, amount);
      if (amount) worker.resources[name] = *amount;
    }
  });
  fields.quantity("sharedMemory", worker.shared_memory);
  fields.text_map("nodeSelector", worker.node_selector);
  fields.raw_list("tolerations", worker.tolerations);
  fields.raw_object("affinity", worker.affinity);
  fields.raw_list("topologySpreadConstraints", worker.topology_spread_constraints);
  fields.each_object("env", [&](Fields& inner) { decode_env(inner, worker.env.emplace_back()); });
  fields.text("serviceAccountName", worker.service_account_name);
  fields.text("priorityClassName", worker.priority_class_name);
  fields.text("schedulerName", worker.scheduler_name);
  // As pods have them, [{name: ...}], or plain names.
  if (const nlohmann::json* secrets = fields.take("imagePullSecrets")) {
    if (secrets->is_array() && !secrets->empty() && secrets->front().is_object()) {
      fields.each_object("imagePullSecrets", [&](Fields& inner) {
        inner.text("name", worker.image_pull_secrets.emplace_back());
      });
    } else {
      fields.texts("imagePullSecrets", worker.image_pull_secrets);
    }
  }
  fields.integer("runAsUser", worker.run_as_user);
  fields.integer("fsGroup", worker.fs_group);
  fields.integer("terminationGracePeriodSeconds", worker.termination_grace_period_seconds);
  fields.raw_object("podTemplate", worker.pod_template);
}

void decode_volume(Fields& fields, Volume& volume) {
  fields.text("name", volume.name);
  fields.text("local", volume.local);
  fields.take("persistentVolumeClaim");  // so that a misspelt one finds it
  fields.take("emptyDir");
  volume.source = nullptr;
  // Any other field is a volume source, which Kubernetes has many of; they are told apart from
  // misspelt fields by holding an object.
  nlohmann::json sources = nlohmann::json::object();
  const auto keep = [&](const std::string& name) {
    nlohmann::json source;
    fields.raw_object(name, source);
    if (source.is_object()) sources[name] = source;
  };
  keep("persistentVolumeClaim");
  keep("emptyDir");
  for (const std::string& name : fields.rest()) {
    if (const nlohmann::json* value = fields.peek(name); value != nullptr && value->is_object()) {
      keep(name);
    }
  }
  if (!sources.empty()) volume.source = sources;
}

void decode_spec(Fields& fields, TrainJobSpec& spec) {
  fields.integer("nprocPerNode", spec.nproc_per_node);
  fields.object("elasticPolicy",
                [&](Fields& inner) { decode_elastic_policy(inner, spec.elastic_policy); });
  fields.object("runPolicy", [&](Fields& inner) { decode_run_policy(inner, spec.run_policy); });
  fields.object("trainer", [&](Fields& inner) { decode_trainer(inner, spec.trainer); });
  fields.object("worker", [&](Fields& inner) { decode_worker(inner, spec.worker); });
  fields.each_object("volumes",
                     [&](Fields& inner) { decode_volume(inner, spec.volumes.emplace_back()); });
}

void decode_kind(Fields& fields) {
  const std::pair<const char*, const char*> expected[] = {{"apiVersion", kApiVersion},
                                                          {"kind", kTrainJobKind}};
  for (const auto& [name, value] : expected) {
    const nlohmann::json* found = fields.take(name);
    if (found == nullptr) {
      fields.context().error(name, fmt::format("found nothing, expected {}", value));
    } else if (*found != value) {
      fields.wrong(name, *found, value);
    }
  }
}

void decode_root(const DecodeContext& context, const nlohmann::json& object, TrainJob& job) {
  Fields fields(context, object, "");
  decode_kind(fields);
  // Another kind's fields would only bury that error under others.
  if (!context.errors.empty()) return;
  fields.object("metadata", [&](Fields& inner) { decode_metadata(inner, job.metadata); });
  fields.object("spec", [&](Fields& inner) { decode_spec(inner, job.spec); });
  fields.object("status", [&](Fields& inner) { decode_status(inner, job.status); });
  fields.finish();
}

}  // namespace

Decoded decode_manifest(std::string_view yaml) {
  Document document = read_yaml(yaml);
  Decoded decoded;
  decoded.positions = std::move(document.positions);
  decoded.errors = std::move(document.errors);
  if (decoded.errors.empty()) {
    decode_root({decoded.positions, decoded.errors, true}, document.tree, decoded.job);
  }
  return decoded;
}

Decoded decode_object(const nlohmann::json& object, bool strict) {
  Decoded decoded;
  decode_root({decoded.positions, decoded.errors, strict}, object, decoded.job);
  return decoded;
}

}  // namespace tilewright::api
