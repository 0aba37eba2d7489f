#include "controller/api/pytorchjob.h"

#include <algorithm>

#include "common/contract/labels.h"
#include "common/json/members.h"
#include "controller/api/trainjob_fields.h"

namespace tilewright::api {

using nlohmann::json;

namespace {

std::optional<std::int64_t> at_most(std::int64_t maximum, std::optional<std::int64_t> limit) {
  return limit ? std::optional(std::min(*limit, maximum)) : std::nullopt;
}

}  // namespace

RunPolicy PyTorchRunPolicy::common() const {
  RunPolicy policy;
  policy.suspend = suspend;
  policy.ttl_seconds_after_finished = at_most(kMaxSeconds, ttl_seconds_after_finished);
  policy.active_deadline_seconds = at_most(kMaxSeconds, active_deadline_seconds);
  policy.backoff_limit = at_most(kRestartBounds.maximum, backoff_limit);
  policy.clean_pod_policy = clean_pod_policy;
  if (scheduling_policy) policy.scheduling_policy = scheduling_policy->common;
  return policy;
}

const json* pytorch_container(const PyTorchReplicaSpec& replica) {
  const json& containers = member(member(replica.pod_template, "spec"), "containers");
  if (!containers.is_array()) return nullptr;
  for (const json& container : containers) {
    if (string_member(container, "name") == kPyTorchContainer) return &container;
  }
  return nullptr;
}

std::int64_t rendezvous_port(const PyTorchReplicaSpec& replica) {
  const json* container = pytorch_container(replica);
  if (container == nullptr) return kPyTorchPort;
  const json& ports = member(*container, "ports");
  for (std::size_t i = 0; ports.is_array() && i < ports.size(); ++i) {
    const json& number = member(ports[i], "containerPort");
    if (string_member(ports[i], "name") == kPyTorchPortName && number.is_number_integer()) {
      return number.get<std::int64_t>();
    }
  }
  return kPyTorchPort;
}

bool is_managed_here(const PyTorchJob& job, KubeflowOperator kubeflow) {
  const std::string manager = job.spec.run_policy.managed_by.value_or("");
  if (manager == kPyTorchJobManager) return true;
  return kubeflow == KubeflowOperator::kAbsent && (manager.empty() || manager == kKubeflowManager);
}

}  // namespace tilewright::api
