// Checks the elastic policy, the run policy, and the number of processes against the global batch.
#include <bit>
#include <set>

#include "common/contract/rdzv_conf.h"
#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"
#include "controller/api/trainjob_fields.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

void validate_shards(const TrainJob& job, FindingCollector& collector) {
  const std::int64_t batch = global_batch(job);
  const std::int64_t most = max_workers(job);
  const std::int64_t shards = virtual_shards(job);
  const std::string batch_text = fmt::format(
      "the global batch of {} examples (per_device_train_batch_size {} x {} processes x "
      "gradient_accumulation_steps {})",
      batch, flag_value(job, "per_device_train_batch_size"), nominal_workers(job),
      flag_value(job, "gradient_accumulation_steps"));
  const std::string flag_path = "spec.trainer.virtual_shards";
  const bool requested =
      job.spec.trainer.flags.contains("virtual_shards") && flag_value(job, "virtual_shards") != "0";
  if (requested && !std::has_single_bit(static_cast<std::uint64_t>(shards))) {
    return collector.error(flag_path, fmt::format("found {}, expected a power of two", shards));
  }
  if (shards > kMaxVirtualShards) {
    return collector.error(
        "spec.elasticPolicy.maxReplicas",
        fmt::format("found {} processes, expected at most {} ({} virtual shards)", most,
                    kMaxVirtualShards, kMaxVirtualShards));
  }
  if (shards > batch) {
    return collector.error(flag_path,
                           fmt::format("found {}, expected no more than {}", shards, batch_text));
  }
  if (most > shards) {
    const std::string found =
        fmt::format("found {} x nprocPerNode {} = {} processes",
                    *job.spec.elastic_policy.max_replicas, job.spec.nproc_per_node->number, most);
    const std::string reason = requested
                                   ? "the number of spec.trainer.virtual_shards"
                                   : fmt::format("the largest power of two within {}", batch_text);
    collector.error("spec.elasticPolicy.maxReplicas",
                    fmt::format("{}, expected at most {}, {}", found, shards, reason));
  }
}

void validate_rdzv_conf(const std::vector<RdzvSetting>& settings, FindingCollector& collector) {
  RdzvConf conf;
  std::set<std::string> keys;
  bool all_valid = true;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const std::string path = fmt::format("spec.elasticPolicy.rdzvConf[{}]", i);
    if (!keys.insert(settings[i].key).second) {
      collector.error(path,
                      fmt::format("found the key {} twice, expected it once", settings[i].key));
    } else if (const Status valid = set_rdzv_conf(conf, settings[i].key, settings[i].value);
               !valid.ok()) {
      collector.error(path, valid.error().message);
      all_valid = false;
    }
  }
  if (const Status usable = check(conf); all_valid && !usable.ok()) {
    collector.error("spec.elasticPolicy.rdzvConf", usable.error().message);
  }
}

}  // namespace

void validate_replicas(const TrainJob& job, FindingCollector& collector) {
  const ElasticPolicy& elastic = job.spec.elastic_policy;
  const std::int64_t replicas = *job.spec.worker.replicas;
  const std::int64_t least = *elastic.min_replicas;
  const std::int64_t most = *elastic.max_replicas;
  if (*elastic.rdzv_backend != kRdzvBackends.front()) {
    collector.error("spec.elasticPolicy.rdzvBackend",
                    fmt::format("found {}, expected {}", describe_value(*elastic.rdzv_backend),
                                kRdzvBackends.front()));
  }
  validate_rdzv_conf(elastic.rdzv_conf, collector);
  // validate_bounds() reports values out of bounds. Checks of their sums and products would only
  // repeat the error.
  if (!kProcessBounds.contains(job.spec.nproc_per_node->number) ||
      !kReplicaBounds.contains(replicas) || !kReplicaBounds.contains(least) ||
      !kReplicaBounds.contains(most)) {
    return;
  }
  if (least > most) {
    collector.error(
        "spec.elasticPolicy.minReplicas",
        fmt::format("found {}, expected at most {}, the value of spec.elasticPolicy.maxReplicas",
                    least, most));
  } else if (least > replicas) {
    collector.error("spec.elasticPolicy.minReplicas",
                    fmt::format("found {}, expected at most {}, the value of spec.worker.replicas",
                                least, replicas));
  } else if (most < replicas) {
    collector.error("spec.elasticPolicy.maxReplicas",
                    fmt::format("found {}, expected at least {}, the value of spec.worker.replicas",
                                most, replicas));
  }
  if (least <= replicas && replicas <= most) validate_shards(job, collector);
}

void validate_run_policy(const TrainJob& job, FindingCollector& collector) {
  const RunPolicy& policy = job.spec.run_policy;
  if (policy.backoff_limit && *policy.backoff_limit != *job.spec.elastic_policy.max_restarts) {
    collector.error(
        "spec.runPolicy.backoffLimit",
        fmt::format("found {}, expected {}, the value of spec.elasticPolicy.maxRestarts, or "
                    "only one of the two fields",
                    *policy.backoff_limit, *job.spec.elastic_policy.max_restarts));
  }
  if (!policy.scheduling_policy) return;
  collector.require_range("spec.runPolicy.schedulingPolicy.minAvailable",
                          policy.scheduling_policy->min_available, 1,
                          *job.spec.elastic_policy.max_replicas);
}

}  // namespace tilewright::api
