#include "controller/cluster/gang_scheduler.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/strings.h"
#include "common/json/members.h"

namespace tilewright::cluster {
namespace {

using nlohmann::json;

constexpr const char* kVolcano = "volcano";
constexpr const char* kNone = "none";
constexpr const char* kSchedulerName = "schedulerName";

// RunPolicy: that of a TrainJob or a PyTorchJob.
template <typename RunPolicy>
void add_scheduling_policy(const std::string& gang_scheduler, RunPolicy& policy) {
  if (!gang_scheduler.empty() && !policy.scheduling_policy) policy.scheduling_policy.emplace();
}

void add_warning(const std::string& gang_scheduler, const std::string& name, std::string path,
                 std::vector<FieldError>& warnings) {
  if (gang_scheduler.empty() || name.empty() || name == gang_scheduler) return;
  add_error(warnings, {std::move(path), 0,
                       fmt::format("found {}, expected {}, the gang scheduler of the operator; the "
                                   "pods keep their scheduler",
                                   name, gang_scheduler)});
}

}  // namespace

std::string parse_gang_scheduler(const std::string& value) {
  if (equal_ignoring_case(value, kNone)) return "";
  return equal_ignoring_case(value, kVolcano) ? kVolcano : value;
}

void apply_gang_scheduler(const std::string& gang_scheduler, api::TrainJob& job) {
  add_scheduling_policy(gang_scheduler, job.spec.run_policy);
}

void apply_gang_scheduler(const std::string& gang_scheduler, api::PyTorchJob& job) {
  add_scheduling_policy(gang_scheduler, job.spec.run_policy);
}

std::vector<FieldError> find_other_schedulers(const std::string& gang_scheduler,
                                              const api::TrainJob& job) {
  std::vector<FieldError> warnings;
  const api::Worker& worker = job.spec.worker;
  add_warning(gang_scheduler, worker.scheduler_name, "spec.worker.schedulerName", warnings);
  add_warning(gang_scheduler, scheduler_of(worker.pod_template),
              "spec.worker.podTemplate.spec.schedulerName", warnings);
  return warnings;
}

std::vector<FieldError> find_other_schedulers(const std::string& gang_scheduler,
                                              const api::PyTorchJob& job) {
  std::vector<FieldError> warnings;
  for (const auto& [type, replica] : {std::pair{api::kMasterType, &job.spec.master},
                                      std::pair{api::kWorkerType, &job.spec.worker}}) {
    if (!*replica) continue;
    add_warning(gang_scheduler, scheduler_of((*replica)->pod_template),
                fmt::format("spec.pytorchReplicaSpecs.{}.template.spec.schedulerName", type),
                warnings);
  }
  return warnings;
}

std::string scheduler_of(const json& pod_template) {
  return string_member(member(pod_template, "spec"), kSchedulerName);
}

bool uses_volcano(const std::string& gang_scheduler, const std::string& scheduler_name) {
  return (gang_scheduler.empty() ? scheduler_name : gang_scheduler) == kVolcano;
}

void set_scheduler(const std::string& gang_scheduler, json& spec) {
  if (gang_scheduler.empty() || !string_member(spec, kSchedulerName).empty()) return;
  spec[kSchedulerName] = gang_scheduler;
}

}  // namespace tilewright::cluster
