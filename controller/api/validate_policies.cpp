// Replicas, restarts and the run policy; and the batch that the replicas share.
#include <bit>
#include <set>

#include "common/contract/rdzv_conf.h"
#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"
#include "controller/api/validate_parts.h"

namespace tilewright::api {
namespace {

constexpr std::int64_t kMostRestarts = 1'000'000;

void validate_shards(const TrainJob& job, Judge& judge) {
  const std::int64_t batch = global_batch(job);
  const std::int64_t most = max_workers(job);
  const std::int64_t shards = virtual_shards(job);
  const std::string batch_words = fmt::format(
      "the global batch of {} examples (per_device_train_batch_size {} x {} processes x "
      "gradient_accumulation_steps {})",
      batch, flag_value(job, "per_device_train_batch_size"), nominal_workers(job),
      flag_value(job, "gradient_accumulation_steps"));
  const std::string flag_path = "spec.trainer.virtual_shards";
  const bool asked =
      job.spec.trainer.flags.contains("virtual_shards") && flag_value(job, "virtual_shards") != "0";
  if (asked && !std::has_single_bit(static_cast<std::uint64_t>(shards))) {
    return judge.refuse(flag_path, fmt::format("found {}, expected a power of two", shards));
  }
  if (shards > kMaxVirtualShards) {
    return judge.refuse("spec.elasticPolicy.maxReplicas",
                        fmt::format("found {} processes, expected at most {} ({} virtual shards)",
                                    most, kMaxVirtualShards, kMaxVirtualShards));
  }
  if (shards > batch) {
    return judge.refuse(flag_path,
                        fmt::format("found {}, expected no more than {}", shards, batch_words));
  }
  if (most > shards) {
    const std::string found =
        fmt::format("found {} x nprocPerNode {} = {} processes",
                    *job.spec.elastic_policy.max_replicas, *job.spec.nproc_per_node, most);
    const std::string reason = asked
                                   ? "the number of spec.trainer.virtual_shards"
                                   : fmt::format("the largest power of two within {}", batch_words);
    judge.refuse("spec.elasticPolicy.maxReplicas",
                 fmt::format("{}, expected at most {}, {}", found, shards, reason));
  }
}

void validate_rdzv_conf(const std::vector<RdzvSetting>& settings, Judge& judge) {
  RdzvConf conf;
  std::set<std::string> keys;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const std::string path = fmt::format("spec.elasticPolicy.rdzvConf[{}]", i);
    if (!keys.insert(settings[i].key).second) {
      judge.refuse(path, fmt::format("found the key {} again, expected it once", settings[i].key));
    } else if (const Status taken = set_rdzv_conf(conf, settings[i].key, settings[i].value);
               !taken.ok()) {
      judge.refuse(path, taken.error().message);
    }
  }
}

}  // namespace

void validate_replicas(const TrainJob& job, Judge& judge) {
  const ElasticPolicy& elastic = job.spec.elastic_policy;
  const std::int64_t replicas = *job.spec.worker.replicas;
  const std::int64_t least = *elastic.min_replicas;
  const std::int64_t most = *elastic.max_replicas;
  if (*elastic.rdzv_backend != "c10d") {
    judge.refuse("spec.elasticPolicy.rdzvBackend",
                 fmt::format("found {}, expected c10d", shown(*elastic.rdzv_backend)));
  }
  validate_rdzv_conf(elastic.rdzv_conf, judge);
  const std::size_t before = judge.count();
  judge.require_range("spec.nprocPerNode", job.spec.nproc_per_node, 1, kMaxProcessesPerNode);
  judge.require_range("spec.worker.replicas", replicas, 1, kMaxReplicas);
  judge.require_range("spec.elasticPolicy.minReplicas", least, 1, kMaxReplicas);
  judge.require_range("spec.elasticPolicy.maxReplicas", most, 1, kMaxReplicas);
  judge.require_range("spec.elasticPolicy.maxRestarts", elastic.max_restarts, 0, kMostRestarts);
  if (judge.count() > before) return;
  if (least > most) {
    judge.refuse(
        "spec.elasticPolicy.minReplicas",
        fmt::format("found {}, expected at most {}, as spec.elasticPolicy.maxReplicas says", least,
                    most));
  } else if (least > replicas) {
    judge.refuse("spec.elasticPolicy.minReplicas",
                 fmt::format("found {}, expected at most {}, as spec.worker.replicas says", least,
                             replicas));
  } else if (most < replicas) {
    judge.refuse("spec.elasticPolicy.maxReplicas",
                 fmt::format("found {}, expected at least {}, as spec.worker.replicas says", most,
                             replicas));
  }
  if (judge.count() == before) validate_shards(job, judge);
}

void validate_run_policy(const TrainJob& job, Judge& judge) {
  const RunPolicy& policy = job.spec.run_policy;
  judge.require_range("spec.runPolicy.ttlSecondsAfterFinished", policy.ttl_seconds_after_finished,
                      0, kMaxSeconds);
  judge.require_range("spec.runPolicy.activeDeadlineSeconds", policy.active_deadline_seconds, 1,
                      kMaxSeconds);
  judge.require_range("spec.runPolicy.backoffLimit", policy.backoff_limit, 0, kMostRestarts);
  if (policy.backoff_limit && *policy.backoff_limit != *job.spec.elastic_policy.max_restarts) {
    judge.refuse(
        "spec.runPolicy.backoffLimit",
        fmt::format("found {}, expected {}, as spec.elasticPolicy.maxRestarts says, or only "
                    "one of the two",
                    *policy.backoff_limit, *job.spec.elastic_policy.max_restarts));
  }
  if (!policy.scheduling_policy) return;
  const std::string path = "spec.runPolicy.schedulingPolicy";
  judge.require_range(path + ".minAvailable", policy.scheduling_policy->min_available, 1,
                      *job.spec.elastic_policy.max_replicas);
  judge.require_range(path + ".scheduleTimeoutSeconds",
                      policy.scheduling_policy->schedule_timeout_seconds, 1, kMaxSeconds);
}

}  // namespace tilewright::api
