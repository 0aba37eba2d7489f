// A job's life while a proxy between the controller and the API server cuts watches, refuses, lies,
// stalls and breaks off: the end is the same.
#include <algorithm>

#include "tests/integration/controller_life.h"
#include "tests/support/faulty_proxy.h"

namespace tilewright::testing {
namespace {

using Kind = Fault::Kind;
using std::chrono::milliseconds;

class ControllerProxy : public ControllerLife {
 protected:
  void put_between(FaultyProxy::Script script) {
    // Of an event that is there already, as that answer says, the controller posts no other.
    const auto spared = [script = std::move(script)](const ProxiedRequest& request) {
      const Fault fault = script(request);
      const bool event = request.resource == "events";
      return event && fault.kind == Kind::kRefuse && fault.status == 409 ? Fault{} : fault;
    };
    proxy_ = std::make_unique<FaultyProxy>(control_plane(), spared);
    kubeconfig_ = proxy_->kubeconfig();
  }
  int faults() const {
    int sum = 0;
    for (const auto& [kind, count] : proxy_->faults()) sum += count;
    return sum;
  }
  void ends_as_ever(const std::vector<std::string>& arguments = kAlone) {
    watch_lives();
    ObjectWatch events(*client_, kube::resource::events(), space_);
    const ObjectWatch statuses(
        *client_, manager::resource::train_jobs(), space_,
        [this](const std::string&, const json& job) { note_what_is_to_be_told(job); });
    RunningProgram& controller = start_controller("", arguments);
    ASSERT_TRUE(live_through({}));
    // What is expected of a job that lost worker 1 once, whatever else happened.
    const json expected = {
        {"phase", "Succeeded"},
        {"replicas",
         {{"desired", 2}, {"active", 0}, {"ready", 0}, {"succeeded", 2}, {"failed", 0}}},
        {"restarts", {{"program", 1}, {"infrastructure", 0}, {"outOfMemory", 0}, {"total", 1}}},
        {"failures", {{1, "Program", 11, "Error"}}},
        {"conditions",
         {{"Created", "True"},
          {"Running", "False"},
          {"Restarting", "False"},
          {"Succeeded", "True"}}}};
    EXPECT_EQ(end_state(job()), expected);
    EXPECT_EQ(incarnations("mrpc-worker-0"), 1U);
    EXPECT_EQ(incarnations("mrpc-worker-1"), 2U);
    // Each thing was told, and told once: also when the controller has said all that it had to.
    const auto all_told = [this](const Objects& objects) {
      const std::vector<std::string> wanted = to_tell();
      return std::ranges::count(wanted, "Succeeded") == 1 && reasons_of(objects) == wanted;
    };
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!events.wait_until(all_told, milliseconds(100))) {
      if (std::chrono::steady_clock::now() > deadline) break;
    }
    controller.send(SIGTERM);
    EXPECT_EQ(controller.wait(), 0);
    EXPECT_EQ(event_reasons(), to_tell());
    EXPECT_THAT(to_tell(), ::testing::IsSupersetOf(
                               {"Created", "Running", "Running", "Succeeded", "WorkerFailed"}));
  }
  // By what the API server shows of each status that was written. The job can run, wait and run
  // again more often than its worker fails: its pods are shown late.
  void note_what_is_to_be_told(const json& job) {
    if (job.is_null()) return;
    const std::lock_guard lock(told_mutex_);
    for (const char* type : {"Created", "Running", "Succeeded"}) {
      if (is_true(job, type) && !is_true(before_, type)) to_tell_.emplace_back(type);
    }
    const json::json_pointer failures("/status/failures");
    const json none = json::array();
    for (std::size_t i = before_.value(failures, none).size(); i < job.value(failures, none).size();
         ++i) {
      to_tell_.emplace_back("WorkerFailed");
    }
    before_ = job;
  }
  std::vector<std::string> to_tell() const {
    const std::lock_guard lock(told_mutex_);
    std::vector<std::string> sorted = to_tell_;
    std::ranges::sort(sorted);
    return sorted;
  }
  // As the API server has them now.
  std::vector<std::string> event_reasons() {
    Objects events;
    const std::string path = "/apis/events.k8s.io/v1/namespaces/" + space_ + "/events";
    const json list = admin().get(path).json();
    for (const json& event : list["items"]) {
      events[event["metadata"]["name"]] = event;
    }
    return reasons_of(events);
  }
  void TearDown() override {
    ControllerLife::TearDown();  // the controllers with it
    proxy_.reset();
  }

  std::unique_ptr<FaultyProxy> proxy_;
  mutable std::mutex told_mutex_;
  json before_ = json::object();  // the job, as it was shown last
  std::vector<std::string> to_tell_;
};

TEST_F(ControllerProxy, PassesOnWhatItIsNotAskedToSpoil) {
  put_between([](const ProxiedRequest&) { return Fault{}; });
  ends_as_ever();
  EXPECT_EQ(faults(), 0);
}

// The watch shows a pod's beginning and its end while the controller still waits for the answer to
// its creation: it must not take that answer for news.
TEST_F(ControllerProxy, MakesAPodAnewThatWasDeletedBeforeItsCreationWasAnswered) {
  put_between([](const ProxiedRequest& request) {
    const bool slow = request.method == "POST" && request.resource == "pods" &&
                      request.name == "mrpc-worker-1" && request.occurrence == 1;
    return slow ? Fault{Kind::kStall, 0, std::chrono::seconds(2), 0} : Fault{};
  });
  start_controller("", kAlone);
  create_job();
  ASSERT_TRUE(
      node_->pods().wait_until([](const Objects& pods) { return pods.contains("mrpc-worker-1"); }));
  const HttpResponse removed = admin().send(
      "DELETE", fmt::format("/api/v1/namespaces/{}/pods/mrpc-worker-1", space_),
      R"({"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0})", "application/json");
  ASSERT_TRUE(removed.ok()) << removed.message();
  ASSERT_TRUE(node_->pods().wait_until(
      [](const Objects& pods) { return !pods.contains("mrpc-worker-1"); }));
  EXPECT_TRUE(jobs_->wait_until(
      [](const Objects& jobs) {
        return jobs.contains("mrpc") && phase_of(jobs.at("mrpc")) == "Running" &&
               jobs.at("mrpc")["status"]["replicas"]["ready"] == 2;
      },
      std::chrono::seconds(30)))
      << job()["status"].dump(1);
}

// One kind of fault, all the time, up to a number of times for each request.
struct OneKind {
  const char* name;
  enum { kWrites, kReads, kWatches } of;
  Fault fault;
  int most_times = 2;

  friend std::ostream& operator<<(std::ostream& out, const OneKind& one) { return out << one.name; }
};

class ControllerProxyKinds : public ControllerProxy,
                             public ::testing::WithParamInterface<OneKind> {};

TEST_P(ControllerProxyKinds, EndTheSame) {
  const OneKind& one = GetParam();
  RandomFaults::Options options;
  (one.of == OneKind::kWrites  ? options.of_writes
   : one.of == OneKind::kReads ? options.of_reads
                               : options.of_watches) = {one.fault};
  options.percent = 100;
  options.most_times = one.most_times;
  put_between(RandomFaults(options));
  ends_as_ever();
  // Three lists, three watches, and of a job two statuses, three companions, two pods, a deletion.
  EXPECT_GE(faults(), one.of == OneKind::kWrites ? 8 : 3);
}

constexpr Fault refuse(int status) { return {Kind::kRefuse, status, {}, 0}; }
constexpr Fault lie(int status) { return {Kind::kLie, status, {}, 0}; }
constexpr Fault plain(Kind kind) { return {kind, 0, {}, 0}; }
constexpr Fault late(Kind kind, milliseconds pause) { return {kind, 0, pause, 0}; }
constexpr Fault after(Kind kind, int events) { return {kind, 0, {}, events}; }

INSTANTIATE_TEST_SUITE_P(
    Of, ControllerProxyKinds,
    ::testing::Values(
        OneKind{"ConflictsThatAreNone", OneKind::kWrites, refuse(409)},
        OneKind{"ConflictsWithOneself", OneKind::kWrites, lie(409)},
        OneKind{"WritesToBeTriedLater", OneKind::kWrites, refuse(429), 1},
        OneKind{"WritesThatAreDoneThoughToBeTriedLater", OneKind::kWrites, lie(429), 1},
        OneKind{"ServerErrors", OneKind::kWrites, refuse(500)},
        OneKind{"ServerErrorsAfterTheDeed", OneKind::kWrites, lie(500)},
        OneKind{"Unavailability", OneKind::kWrites, refuse(503)},
        OneKind{"UnavailabilityAfterTheDeed", OneKind::kWrites, lie(503)},
        OneKind{"ResetsBeforeTheDeed", OneKind::kWrites, plain(Kind::kReset)},
        OneKind{"ResetsAfterTheDeed", OneKind::kWrites, plain(Kind::kResetAfter)},
        OneKind{"HalfAnswersToWrites", OneKind::kWrites, plain(Kind::kHalf)},
        OneKind{"HalfLists", OneKind::kReads, plain(Kind::kHalf)},
        OneKind{"UnavailableLists", OneKind::kReads, refuse(503)},
        OneKind{"WritesDoneTwice", OneKind::kWrites, plain(Kind::kTwice), 100},
        OneKind{"SlowWrites", OneKind::kWrites, late(Kind::kStall, milliseconds(100)), 100},
        OneKind{"WatchesCutAtOnce", OneKind::kWatches, after(Kind::kCut, 0), 3},
        OneKind{"WatchesCutInTheMiddle", OneKind::kWatches, after(Kind::kCut, 2), 6},
        OneKind{"WatchesThatEndSoon", OneKind::kWatches, after(Kind::kEnd, 1), 6},
        OneKind{"WatchesThatAreRefused", OneKind::kWatches, refuse(410), 3},
        OneKind{"WatchesThatExpire", OneKind::kWatches, after(Kind::kExpire, 1), 6},
        OneKind{"LateEvents", OneKind::kWatches, late(Kind::kDelay, milliseconds(100)), 100},
        OneKind{"RepeatedEvents", OneKind::kWatches, plain(Kind::kRepeat), 100}),
    [](const auto& of) { return std::string(of.param.name); });

class ControllerProxySeeds : public ControllerProxy,
                             public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(ControllerProxySeeds, EndTheSameWithFaultsOfAllKinds) {
  RandomFaults::Options options;
  options.seed = GetParam();
  std::cout << "seed " << options.seed << "\n";
  options.of_writes = {refuse(409),
                       lie(409),
                       refuse(429),
                       refuse(500),
                       lie(500),
                       refuse(503),
                       lie(503),
                       plain(Kind::kReset),
                       plain(Kind::kResetAfter),
                       plain(Kind::kHalf),
                       plain(Kind::kTwice),
                       late(Kind::kStall, milliseconds(200))};
  options.of_reads = {refuse(429), refuse(500), plain(Kind::kReset), plain(Kind::kHalf),
                      late(Kind::kStall, milliseconds(200))};
  options.of_watches = {
      after(Kind::kCut, 0),    after(Kind::kCut, 3), after(Kind::kEnd, 2),
      after(Kind::kExpire, 2), refuse(410),          refuse(503),
      plain(Kind::kRepeat),    plain(Kind::kReset),  late(Kind::kDelay, milliseconds(200))};
  put_between(RandomFaults(options));
  // Leadership that has to be won and kept through all that is another way to the same end.
  const bool elects = options.seed == 2;
  ends_as_ever(elects ? std::vector<std::string>{"--lease_name=proxied"} : kAlone);
  EXPECT_GE(faults(), 10);
}

INSTANTIATE_TEST_SUITE_P(Of, ControllerProxySeeds, ::testing::Range<std::uint64_t>(1, 6),
                         [](const auto& of) { return "Seed" + std::to_string(of.param); });

}  // namespace
}  // namespace tilewright::testing
