// The gang scheduler of the operator. Expected values are those of Kubeflow's training operator
// v1.9: pkg/controller.v1/common/{job,pod}.go and control/podgroup_control.go.
#include "controller/cluster/gang_scheduler.h"

#include <gmock/gmock.h>

namespace tilewright::cluster {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

api::PyTorchReplicaSpec replica(const char* scheduler) {
  api::PyTorchReplicaSpec spec;
  spec.pod_template = {{"spec", json::object()}};
  if (scheduler != nullptr) spec.pod_template["spec"]["schedulerName"] = scheduler;
  return spec;
}

TEST(GangScheduler, GivesEveryJobASchedulingPolicy) {
  api::TrainJob job;
  apply_gang_scheduler("", job);
  EXPECT_FALSE(job.spec.run_policy.scheduling_policy);
  apply_gang_scheduler("volcano", job);
  EXPECT_EQ(job.spec.run_policy.scheduling_policy, api::SchedulingPolicy());
  job.spec.run_policy.scheduling_policy->queue = "night";
  apply_gang_scheduler("volcano", job);
  EXPECT_EQ(job.spec.run_policy.scheduling_policy->queue, "night");

  api::PyTorchJob pytorch;
  apply_gang_scheduler("", pytorch);
  EXPECT_FALSE(pytorch.spec.run_policy.scheduling_policy);
  apply_gang_scheduler("volcano", pytorch);
  EXPECT_EQ(pytorch.spec.run_policy.scheduling_policy, api::PyTorchSchedulingPolicy());
}

TEST(GangScheduler, DecidesTheApiOfThePodGroup) {
  EXPECT_TRUE(uses_volcano("", "volcano"));
  EXPECT_FALSE(uses_volcano("", ""));
  EXPECT_FALSE(uses_volcano("", "scheduler-plugins-scheduler"));
  EXPECT_TRUE(uses_volcano("volcano", "")) << "whatever the pods name";
  EXPECT_TRUE(uses_volcano("volcano", "other"));
  EXPECT_FALSE(uses_volcano("scheduler-plugins-scheduler", "volcano"));
}

TEST(GangScheduler, SchedulesPodsThatNameNoScheduler) {
  for (const auto& [name, expected] :
       {std::pair{R"({})", R"({"schedulerName": "volcano"})"},
        std::pair{R"({"schedulerName": ""})", R"({"schedulerName": "volcano"})"},
        std::pair{R"({"schedulerName": "other"})", R"({"schedulerName": "other"})"}}) {
    json spec = json::parse(name);
    set_scheduler("", spec);
    EXPECT_EQ(spec, json::parse(name));
    set_scheduler("volcano", spec);
    EXPECT_EQ(spec, json::parse(expected));
  }
}

TEST(GangScheduler, WarnsAboutOtherSchedulers) {
  api::TrainJob job;
  job.spec.worker.scheduler_name = "volcano";
  EXPECT_THAT(find_other_schedulers("", job), IsEmpty());
  EXPECT_THAT(find_other_schedulers("volcano", job), IsEmpty());
  EXPECT_THAT(find_other_schedulers("scheduler-plugins-scheduler", job),
              ElementsAre(FieldError{"spec.worker.schedulerName", 0,
                                     "found volcano, expected scheduler-plugins-scheduler, the "
                                     "gang scheduler of the operator; the pods keep their "
                                     "scheduler"}));
  job.spec.worker.pod_template = {{"spec", {{"schedulerName", "other"}}}};
  EXPECT_THAT(find_other_schedulers("volcano", job),
              ElementsAre(Field(&FieldError::path, "spec.worker.podTemplate.spec.schedulerName")));

  api::PyTorchJob pytorch;
  pytorch.spec.master = replica("other");
  pytorch.spec.worker = replica(nullptr);
  EXPECT_THAT(find_other_schedulers("", pytorch), IsEmpty());
  EXPECT_THAT(find_other_schedulers("volcano", pytorch),
              ElementsAre(Field(&FieldError::path,
                                "spec.pytorchReplicaSpecs.Master.template.spec.schedulerName")));
}

}  // namespace
}  // namespace tilewright::cluster
