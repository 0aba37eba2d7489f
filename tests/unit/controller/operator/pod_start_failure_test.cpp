// Tests of find_start_failure() on the events of a pod.
#include "controller/operator/pod_start_failure.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/unit/controller/client/paging_script.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;

json event(int second, const char* reason, const std::string& note) {
  return {{"reason", reason},
          {"note", note},
          {"deprecatedLastTimestamp", fmt::format("2026-01-01T00:00:{:02}Z", second)}};
}

const json kScheduled = event(0, "Scheduled", "Successfully assigned ns/pod to a node");
const json kMultiAttach =
    event(1, "FailedAttachVolume",
          "Multi-Attach error for volume \"pv-1\" Volume is already used by pod(s) other");
// The kubelet repeats this event every two minutes.
const json kUnmounted =
    event(30, "FailedMount",
          "Unable to attach or mount volumes: unmounted volumes=[work], unattached volumes=[], "
          "failed to process volumes=[]: context deadline exceeded");
json attached(int second, const char* volume = "pv-1") {
  return event(second, "SuccessfulAttachVolume",
               fmt::format("AttachVolume.Attach succeeded for volume \"{}\" ", volume));
}

std::string reason_of(const std::vector<json>& events) {
  const auto start_failure = find_start_failure(events);
  return start_failure ? start_failure->reason : "";
}

TEST(PodStartFailure, IsTheNewest) {
  const json mount = event(2, "FailedMount", "MountVolume.SetUp failed for volume \"v\"");
  EXPECT_EQ(reason_of({kScheduled}), "");
  EXPECT_EQ(reason_of({kScheduled, kMultiAttach}), "FailedAttachVolume");
  EXPECT_EQ(reason_of({kMultiAttach, mount}), "FailedMount");
  EXPECT_EQ(reason_of({mount, kMultiAttach}), "FailedMount");
  EXPECT_EQ(find_start_failure({mount})->message, "MountVolume.SetUp failed for volume \"v\"");
}

TEST(PodStartFailure, ReadsAllTimeFields) {
  json early = event(5, "FailedMount", "early");
  json late = {{"reason", "FailedCreatePodSandBox"},
               {"note", "late"},
               {"eventTime", "2026-01-01T00:00:04.000000Z"},
               {"series", {{"count", 2}, {"lastObservedTime", "2026-01-01T00:00:06.000000Z"}}}};
  EXPECT_EQ(reason_of({late, early}), "FailedCreatePodSandBox");
  late.erase("series");
  EXPECT_EQ(reason_of({late, early}), "FailedMount");
}

// Otherwise the message would change after two minutes from the cause to "deadline exceeded".
TEST(PodStartFailure, PrefersTheCauseOverTheKubeletsWaitTimeout) {
  EXPECT_EQ(reason_of({kMultiAttach, kUnmounted}), "FailedAttachVolume");
  EXPECT_EQ(reason_of({kUnmounted, kMultiAttach}), "FailedAttachVolume");
  EXPECT_EQ(reason_of({kUnmounted}), "FailedMount");
}

TEST(PodStartFailure, EndsOnceTheVolumeIsAttached) {
  EXPECT_EQ(reason_of({kMultiAttach, attached(2)}), "");
  EXPECT_EQ(reason_of({attached(2), kMultiAttach}), "");
  EXPECT_EQ(reason_of({kMultiAttach, attached(1)}), "") << "in the same second";
  EXPECT_EQ(reason_of({kMultiAttach, attached(2), kUnmounted}), "FailedMount");
  EXPECT_EQ(reason_of({kMultiAttach, attached(2, "pv-2")}), "FailedAttachVolume")
      << "another volume";
  EXPECT_EQ(reason_of({attached(0), kMultiAttach}), "FailedAttachVolume") << "attached earlier";
}

TEST(PodStartFailure, IsReadFromTheEventsOfThePod) {
  kube::ScriptedServer server(kube::paging_script({kScheduled.dump(), kMultiAttach.dump()}));
  const auto found = read_start_failure(*kube::client_for(server), "ns", "pod-uid", kube::soon());
  ASSERT_TRUE(found.ok());
  ASSERT_TRUE(found.value());
  EXPECT_EQ(found.value()->reason, "FailedAttachVolume");
  EXPECT_THAT(server.requests()[0].target, ::testing::HasSubstr("regarding.uid%3Dpod-uid"));
}

// A user can create any number of events.
TEST(PodStartFailure, IsReadFromABoundedNumberOfEvents) {
  kube::ScriptedServer server(
      kube::paging_script(std::vector<std::string>(5000, kMultiAttach.dump())));
  const auto found = read_start_failure(*kube::client_for(server), "ns", "pod-uid", kube::soon());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(server.requests().size(), 4U) << "of 250 events";
}

}  // namespace
}  // namespace tilewright::controller
