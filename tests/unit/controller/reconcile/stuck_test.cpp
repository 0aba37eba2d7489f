// What a user is told of a volume that another node has, from the words of Kubernetes'
// attach-detach controller; tests/integration/attach_test.cpp has that controller itself.
#include "controller/reconcile/stuck.h"

#include <gmock/gmock.h>

#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using nlohmann::json;
using testing::World;

json claim(const char* name) { return {{"persistentVolumeClaim", {{"claimName", name}}}}; }

// Worker 1 cannot have its volume.
struct MultiAttach : ::testing::Test {
  World world;

  void SetUp() override {
    world.job().spec.volumes = {{"work", std::nullopt, claim("work")}};
    world.settle();
  }
  Obstacle said(const std::string& of_the_volume) {
    world.worker(1).reason = "FailedAttachVolume";
    world.worker(1).message = "Multi-Attach error for volume \"pv-1\" Volume is " + of_the_volume;
    world.step();
    const api::Condition* blocked = world.status().find_condition(api::condition::kBlocked);
    return blocked == nullptr ? Obstacle{} : Obstacle{blocked->reason, blocked->message};
  }
};

TEST_F(MultiAttach, NamesTheClaimAndWhoHasIt) {
  const Obstacle obstacle = said("already used by pod(s) stranger");
  EXPECT_EQ(obstacle.reason, "ClaimInUse");
  EXPECT_EQ(obstacle.message,
            "the PersistentVolumeClaim work can be attached to one node alone, and another has it "
            "for stranger; mrpc-worker-1 starts as soon as it is free");
  EXPECT_EQ(said("already used by pod(s) stranger, friend").message,
            "the PersistentVolumeClaim work can be attached to one node alone, and another has it "
            "for stranger, friend; mrpc-worker-1 starts as soon as it is free");
  EXPECT_EQ(said("already used by pod(s) a and 2 pod(s) in different namespaces").message,
            "the PersistentVolumeClaim work can be attached to one node alone, and another has it "
            "for a and 2 pod(s) in different namespaces; mrpc-worker-1 starts as soon as it is "
            "free");
}

TEST_F(MultiAttach, SaysThatANodeStillHasItWhosePodsAreGone) {
  EXPECT_EQ(
      said("already exclusively attached to one node and can't be attached to another").message,
      "the PersistentVolumeClaim work can be attached to one node alone, and another still "
      "has it; mrpc-worker-1 starts as soon as it is free");
}

TEST_F(MultiAttach, NamesTheVolumeWhereTheClaimMayBeOneOfSeveral) {
  world.job().spec.volumes.push_back({"data", std::nullopt, claim("data")});
  world.job().spec.volumes.push_back({"again", std::nullopt, claim("work")});
  world.job().spec.volumes.push_back({"scratch", std::nullopt, {{"emptyDir", json::object()}}});
  world.job().spec.worker.pod_template = {
      {"spec",
       {{"volumes", {{{"name", "more"}, {"persistentVolumeClaim", {{"claimName", "more"}}}}}}}}};
  EXPECT_EQ(said("already used by pod(s) stranger").message,
            "one of the PersistentVolumeClaims data, more, work (volume pv-1) can be attached to "
            "one node alone, and another has it for stranger; mrpc-worker-1 starts as soon as it "
            "is free");
}

// Waiting would be for ever: the other worker keeps it until the end of the training.
TEST_F(MultiAttach, SaysWhatToDoAboutTwoWorkersOfTheJobOnTwoNodes) {
  const Obstacle obstacle = said("already used by pod(s) mrpc-worker-0");
  EXPECT_EQ(obstacle.reason, "ClaimInUse");
  EXPECT_EQ(obstacle.message,
            "the PersistentVolumeClaim work can be attached to one node alone, and mrpc-worker-0 "
            "has it on node-a; keep the workers on one node by spec.worker.nodeSelector or "
            "affinity: mrpc-worker-1 is placed anew as soon as the job changes");
  EXPECT_EQ(said("already used by pod(s) mrpc-worker-0, stranger").message,
            "the PersistentVolumeClaim work can be attached to one node alone, and another has it "
            "for mrpc-worker-0, stranger; mrpc-worker-1 starts as soon as it is free");
}

TEST_F(MultiAttach, GivesTheEventsWordsWhereTheJobNamesNoClaim) {
  world.job().spec.volumes.clear();
  const Obstacle obstacle = said("already used by 2 pod(s) in different namespaces");
  EXPECT_EQ(obstacle.reason, "FailedAttachVolume");
  EXPECT_EQ(obstacle.message,
            "a volume of mrpc-worker-1 cannot be attached to its node: Multi-Attach error for "
            "volume \"pv-1\" Volume is already used by 2 pod(s) in different namespaces; it is "
            "tried again until it can");
}

}  // namespace
}  // namespace tilewright::reconcile
