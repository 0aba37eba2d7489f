// Tests of build_event() and Recorder.
#include "controller/operator/recorder.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/support/silent_logger.h"
#include "tests/unit/controller/operator/scripted_api.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;
using policy::Event;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::ScriptedApi;
using ::testing::SizeIs;
using tilewright::testing::make_silent_logger;

// 2026-01-31T23:59:59.000042Z
const WallTime kEventTime =
    WallTime(std::chrono::seconds(1769903999)) + std::chrono::microseconds(42);

api::TrainJob job() {
  api::TrainJob made;
  made.metadata.name = "mrpc";
  made.metadata.namespace_name = "ns";
  made.metadata.uid = "job-uid";
  made.metadata.resource_version = "17";
  return made;
}

std::string name_of(const api::TrainJob& of, const Event& event) {
  return build_event(of, event, "replica-0", kEventTime)["metadata"]["name"];
}

// True if the bytes are valid UTF-8.
bool is_utf8(const std::string& text) {
  try {
    (void)json(text).dump();
  } catch (const json::exception&) {
    return false;
  }
  return true;
}

TEST(BuildEvent, ContainsTheFieldsThatKubectlShows) {
  const json event =
      build_event(job(), {true, "WorkerFailed", "worker 1 ended"}, "replica-0", kEventTime);
  EXPECT_EQ(event["eventTime"], "2026-01-31T23:59:59.000042Z");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(event["reason"], "WorkerFailed");
  EXPECT_EQ(event["note"], "worker 1 ended");
  EXPECT_EQ(event["metadata"]["namespace"], "ns");
  EXPECT_EQ(event["regarding"]["uid"], "job-uid");
  EXPECT_EQ(event["regarding"]["kind"], "TrainJob");
  EXPECT_EQ(event["reportingInstance"], "replica-0");
  EXPECT_EQ(build_event(job(), {false, "Running", "all"}, "replica-0", kEventTime)["type"],
            "Normal");
}

TEST(BuildEvent, HasANameDerivedFromItsContent) {
  const Event event{false, "Running", "all 2 workers are ready"};
  EXPECT_THAT(name_of(job(), event), MatchesRegex("mrpc\\.[0-9a-f]{16}"));
  // The same event from another replica at another time has the same name.
  EXPECT_EQ(build_event(job(), event, "replica-1", kEventTime + std::chrono::hours(1))["metadata"],
            build_event(job(), event, "replica-0", kEventTime)["metadata"]);
  std::set<std::string> names = {name_of(job(), event)};
  names.insert(name_of(job(), {false, "Restarting", event.message}));
  names.insert(name_of(job(), {false, "Running", "all 3 workers are ready"}));
  api::TrainJob later = job();
  later.metadata.resource_version = "18";
  names.insert(name_of(later, event));
  api::TrainJob again = job();
  again.metadata.uid = "another";
  names.insert(name_of(again, event));
  EXPECT_THAT(names, SizeIs(5));
}

TEST(BuildEvent, TruncatesALongNoteBetweenCharacters) {
  const auto note = [](const std::string& message) {
    return build_event(job(), {false, "Running", message}, "replica-0", kEventTime)["note"]
        .get<std::string>();
  };
  EXPECT_EQ(note(std::string(1023, 'x')), std::string(1023, 'x'));
  EXPECT_EQ(note(std::string(1024, 'x')), std::string(1023, 'x'));
  for (const std::string character : {"é", "€", "🚀"}) {
    for (std::size_t before = 0; before < 4; ++before) {
      std::string message(before, 'x');
      while (message.size() < 2000) message += character;
      const std::string text = note(message);
      EXPECT_TRUE(is_utf8(text)) << character << " after " << before;
      EXPECT_LE(text.size(), 1023U);
      EXPECT_GT(text.size() + character.size(), 1023U) << "truncated more than necessary";
      EXPECT_TRUE(message.starts_with(text));
    }
  }
}

std::shared_ptr<const kube::WriteGuard> permit(MonotonicTime until = MonotonicTime::max()) {
  return std::make_shared<const kube::WriteGuard>(until);
}

TEST(Recorder, PostsQueuedEventsBeforeItEnds) {
  ScriptedApi api;
  {
    Recorder recorder(api.client(), permit(), "replica-0", make_silent_logger());
    for (int i = 0; i < 20; ++i) {
      recorder.record(job(), {false, "Running", "number " + std::to_string(i)});
    }
  }
  const auto events = api.events();
  ASSERT_THAT(events, SizeIs(20));
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].what, "POST /apis/events.k8s.io/v1/namespaces/ns/events");
    EXPECT_EQ(events[i].body["note"], "number " + std::to_string(i)) << "in order";
  }
}

TEST(Recorder, ContinuesAfterARefusedEvent) {
  ScriptedApi api;
  api.answer("POST /apis/events.k8s.io/v1/namespaces/ns/events", 409,
             ScriptedApi::status(409, "AlreadyExists"));
  {
    Recorder recorder(api.client(), permit(), "replica-0", make_silent_logger());
    recorder.record(job(), {false, "Running", "one"});
    recorder.record(job(), {false, "Running", "two"});
  }
  EXPECT_THAT(api.events(), SizeIs(2)) << "each is posted once";
}

TEST(Recorder, PostsNothingWithoutTheLease) {
  ScriptedApi api;
  {
    Recorder recorder(api.client(), permit(MonotonicTime::min()), "replica-0",
                      make_silent_logger());
    recorder.record(job(), {false, "Running", "one"});
    recorder.record(job(), {false, "Running", "two"});
  }
  EXPECT_THAT(api.events(), IsEmpty());
}

}  // namespace
}  // namespace tilewright::controller
