// Of all that is told of a pod, what keeps it from starting now.
#include "controller/manager/pod_trouble.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace tilewright::manager {
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
// A kubelet's, two minutes after it and every two minutes from then on.
const json kUnmounted =
    event(30, "FailedMount",
          "Unable to attach or mount volumes: unmounted volumes=[work], unattached volumes=[], "
          "failed to process volumes=[]: context deadline exceeded");
json attached(int second, const char* volume = "pv-1") {
  return event(second, "SuccessfulAttachVolume",
               fmt::format("AttachVolume.Attach succeeded for volume \"{}\" ", volume));
}

std::string reason_of(const std::vector<json>& events) {
  const auto trouble = trouble_in(events);
  return trouble ? trouble->reason : "";
}

TEST(PodTrouble, IsTheNewest) {
  const json mount = event(2, "FailedMount", "MountVolume.SetUp failed for volume \"v\"");
  EXPECT_EQ(reason_of({kScheduled}), "");
  EXPECT_EQ(reason_of({kScheduled, kMultiAttach}), "FailedAttachVolume");
  EXPECT_EQ(reason_of({kMultiAttach, mount}), "FailedMount");
  EXPECT_EQ(reason_of({mount, kMultiAttach}), "FailedMount");
  EXPECT_EQ(trouble_in({mount})->message, "MountVolume.SetUp failed for volume \"v\"");
}

TEST(PodTrouble, IsReadFromEveryKindOfTime) {
  json early = event(5, "FailedMount", "early");
  json late = {{"reason", "FailedCreatePodSandBox"},
               {"note", "late"},
               {"eventTime", "2026-01-01T00:00:04.000000Z"},
               {"series", {{"count", 2}, {"lastObservedTime", "2026-01-01T00:00:06.000000Z"}}}};
  EXPECT_EQ(reason_of({late, early}), "FailedCreatePodSandBox");
  late.erase("series");
  EXPECT_EQ(reason_of({late, early}), "FailedMount");
}

// Else the sentence would turn, after two minutes, from the cause to "deadline exceeded".
TEST(PodTrouble, IsTheCauseRatherThanThatTheKubeletIsTiredOfWaiting) {
  EXPECT_EQ(reason_of({kMultiAttach, kUnmounted}), "FailedAttachVolume");
  EXPECT_EQ(reason_of({kUnmounted, kMultiAttach}), "FailedAttachVolume");
  EXPECT_EQ(reason_of({kUnmounted}), "FailedMount");
}

TEST(PodTrouble, IsOverOnceTheVolumeIsAttached) {
  EXPECT_EQ(reason_of({kMultiAttach, attached(2)}), "");
  EXPECT_EQ(reason_of({attached(2), kMultiAttach}), "");
  EXPECT_EQ(reason_of({kMultiAttach, attached(1)}), "") << "in the same second";
  EXPECT_EQ(reason_of({kMultiAttach, attached(2), kUnmounted}), "FailedMount");
  EXPECT_EQ(reason_of({kMultiAttach, attached(2, "pv-2")}), "FailedAttachVolume") << "another's";
  EXPECT_EQ(reason_of({attached(0), kMultiAttach}), "FailedAttachVolume") << "an earlier one";
}

}  // namespace
}  // namespace tilewright::manager
