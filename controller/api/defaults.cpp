#include "controller/api/defaults.h"

#include "common/base/version.h"

namespace tilewright::api {
namespace {

template <typename T, typename V>
void fill(std::optional<T>& target, const V& value) {
  if (!target) target = value;
}

void fill(std::map<std::string, Quantity>& resources, const char* name, const char* amount) {
  if (!resources.contains(name)) resources[name] = parse_quantity(amount).value();
}

}  // namespace

void apply_defaults(TrainJob& job) {
  TrainJobSpec& spec = job.spec;
  Worker& worker = spec.worker;
  fill(spec.nproc_per_node, 1);
  fill(worker.replicas, 1);
  if (worker.image.empty()) worker.image = std::string("tilewright-worker:") + kVersion;
  fill(worker.restart_policy, RestartPolicy::kOnFailure);
  fill(worker.resources, "cpu", "1");
  fill(worker.resources, "memory", "4Gi");
  fill(worker.shared_memory, parse_quantity("64Mi").value());
  fill(worker.termination_grace_period_seconds, kDefaultGraceSeconds);

  ElasticPolicy& elastic = spec.elastic_policy;
  fill(elastic.rdzv_backend, "c10d");
  fill(elastic.min_replicas, *worker.replicas);
  fill(elastic.max_replicas, *worker.replicas);
  fill(elastic.max_restarts, spec.run_policy.backoff_limit.value_or(kDefaultMaxRestarts));

  fill(spec.run_policy.suspend, false);
  // A failed job's other workers must not hold their CPUs.
  fill(spec.run_policy.clean_pod_policy, CleanPodPolicy::kRunning);
}

}  // namespace tilewright::api
