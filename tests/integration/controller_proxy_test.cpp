// Runs jobs with a proxy between the controller and the API server that cuts watches, rejects
// requests, returns wrong statuses, delays and disconnects. The end state is always the same.
#include <algorithm>

#include "tests/integration/job_lifecycle_fixture.h"
#include "tests/support/faulty_proxy.h"

namespace tilewright::testing {
namespace {

using Kind = Fault::Kind;
using std::chrono::milliseconds;

class FaultyProxyTest : public JobLifecycleTest {
 protected:
  void start_proxy(FaultyProxy::Script script) {
    // 409 for an event means that it exists, so the controller would not post it again.
    const auto filtered = [script = std::move(script)](const ProxiedRequest& request) {
      const Fault fault = script(request);
      const bool event = request.resource == "events";
      return event && fault.kind == Kind::kReject && fault.status == 409 ? Fault{} : fault;
    };
    proxy_ = std::make_unique<FaultyProxy>(control_plane(), filtered);
    kubeconfig_ = proxy_->kubeconfig();
  }
  int faults() const {
    int sum = 0;
    for (const auto& [kind, count] : proxy_->faults()) sum += count;
    return sum;
  }
  void expect_usual_end_state(const std::vector<std::string>& arguments = kNoLeaderElection) {
    track_pods();
    ObjectWatch events(*client_, kube::resource::events(), namespace_);
    const ObjectWatch statuses(
        *client_, controller::resource::train_jobs(), namespace_,
        [this](const std::string&, const json& job) { record_expected_events(job); });
    RunningProgram& controller = start_controller("", arguments);
    ASSERT_TRUE(run_job({}));
    // Expected for every job that lost worker 1 once, whatever the faults.
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
    EXPECT_EQ(pods_created("mrpc-worker-0"), 1U);
    EXPECT_EQ(pods_created("mrpc-worker-1"), 2U);
    // Every expected event is recorded exactly once, also after the controller is done.
    const auto all_recorded = [this](const Objects& objects) {
      const std::vector<std::string> wanted = expected_events();
      return std::ranges::count(wanted, "Succeeded") == 1 && reasons_of(objects) == wanted;
    };
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (!events.wait_until(all_recorded, milliseconds(100))) {
      if (std::chrono::steady_clock::now() > deadline) break;
    }
    controller.send(SIGTERM);
    EXPECT_EQ(controller.wait(), 0);
    EXPECT_EQ(event_reasons(), expected_events());
    EXPECT_THAT(expected_events(), ::testing::IsSupersetOf({"Created", "Running", "Running",
                                                            "Succeeded", "WorkerFailed"}));
  }
  // Derives the expected events from each status in the API server. A job can become running,
  // waiting and running again more often than its worker fails, because the controller sees its
  // pods late.
  void record_expected_events(const json& job) {
    if (job.is_null()) return;
    const std::lock_guard lock(expected_events_mutex_);
    for (const char* type : {"Created", "Running", "Succeeded"}) {
      if (is_true(job, type) && !is_true(previous_job_, type)) expected_events_.emplace_back(type);
    }
    const json::json_pointer failures("/status/failures");
    const json none = json::array();
    for (std::size_t i = previous_job_.value(failures, none).size();
         i < job.value(failures, none).size(); ++i) {
      expected_events_.emplace_back("WorkerFailed");
    }
    previous_job_ = job;
  }
  std::vector<std::string> expected_events() const {
    const std::lock_guard lock(expected_events_mutex_);
    std::vector<std::string> sorted = expected_events_;
    std::ranges::sort(sorted);
    return sorted;
  }
  // The events that the API server has now.
  std::vector<std::string> event_reasons() {
    Objects events;
    const std::string path = "/apis/events.k8s.io/v1/namespaces/" + namespace_ + "/events";
    const json list = admin().get(path).json();
    for (const json& event : list["items"]) {
      events[event["metadata"]["name"]] = event;
    }
    return reasons_of(events);
  }
  void TearDown() override {
    JobLifecycleTest::TearDown();  // stops the controllers, which use the proxy
    proxy_.reset();
  }

  std::unique_ptr<FaultyProxy> proxy_;
  mutable std::mutex expected_events_mutex_;
  json previous_job_ = json::object();  // the last version seen
  std::vector<std::string> expected_events_;
};

TEST_F(FaultyProxyTest, ForwardsUnchangedWithoutFaults) {
  start_proxy([](const ProxiedRequest&) { return Fault{}; });
  expect_usual_end_state();
  EXPECT_EQ(faults(), 0);
}

// The watch reports a pod's creation and deletion while the controller still waits for the response
// to the create request. The controller must not treat that response as newer.
TEST_F(FaultyProxyTest, RecreatesAPodDeletedBeforeItsCreateResponse) {
  start_proxy([](const ProxiedRequest& request) {
    const bool slow = request.method == "POST" && request.resource == "pods" &&
                      request.name == "mrpc-worker-1" && request.occurrence == 1;
    return slow ? Fault{Kind::kDelayResponse, 0, std::chrono::seconds(2), 0} : Fault{};
  });
  start_controller("", kNoLeaderElection);
  create_job();
  ASSERT_TRUE(
      node_->pods().wait_until([](const Objects& pods) { return pods.contains("mrpc-worker-1"); }));
  const HttpResponse removed = admin().send(
      "DELETE", fmt::format("/api/v1/namespaces/{}/pods/mrpc-worker-1", namespace_),
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

// One kind of fault, injected up to a number of times for each request.
struct FaultCase {
  const char* name;
  enum { kWrites, kReads, kWatches } of;
  Fault fault;
  int max_occurrences = 2;

  friend std::ostream& operator<<(std::ostream& out, const FaultCase& one) {
    return out << one.name;
  }
};

class FaultyProxyCases : public FaultyProxyTest, public ::testing::WithParamInterface<FaultCase> {};

TEST_P(FaultyProxyCases, ReachTheSameEndState) {
  const FaultCase& one = GetParam();
  RandomFaults::Options options;
  (one.of == FaultCase::kWrites  ? options.write_faults
   : one.of == FaultCase::kReads ? options.read_faults
                                 : options.watch_faults) = {one.fault};
  options.percent = 100;
  options.max_occurrences = one.max_occurrences;
  start_proxy(RandomFaults(options));
  expect_usual_end_state();
  // Three lists and three watches. Per job: two status updates, three owned resources, two pods,
  // one delete.
  EXPECT_GE(faults(), one.of == FaultCase::kWrites ? 8 : 3);
}

constexpr Fault reject(int status) { return {Kind::kReject, status, {}, 0}; }
constexpr Fault wrong_status(int status) { return {Kind::kWrongStatus, status, {}, 0}; }
constexpr Fault plain(Kind kind) { return {kind, 0, {}, 0}; }
constexpr Fault late(Kind kind, milliseconds pause) { return {kind, 0, pause, 0}; }
constexpr Fault after(Kind kind, int events) { return {kind, 0, {}, events}; }

INSTANTIATE_TEST_SUITE_P(
    Of, FaultyProxyCases,
    ::testing::Values(
        FaultCase{"SpuriousConflicts", FaultCase::kWrites, reject(409)},
        FaultCase{"ConflictsAfterWrite", FaultCase::kWrites, wrong_status(409)},
        FaultCase{"TooManyRequests", FaultCase::kWrites, reject(429), 1},
        FaultCase{"TooManyRequestsAfterWrite", FaultCase::kWrites, wrong_status(429), 1},
        FaultCase{"ServerErrors", FaultCase::kWrites, reject(500)},
        FaultCase{"ServerErrorsAfterWrite", FaultCase::kWrites, wrong_status(500)},
        FaultCase{"Unavailability", FaultCase::kWrites, reject(503)},
        FaultCase{"UnavailabilityAfterWrite", FaultCase::kWrites, wrong_status(503)},
        FaultCase{"ResetsBeforeWrite", FaultCase::kWrites, plain(Kind::kReset)},
        FaultCase{"ResetsAfterWrite", FaultCase::kWrites, plain(Kind::kResetAfter)},
        FaultCase{"TruncatedWriteResponses", FaultCase::kWrites, plain(Kind::kTruncate)},
        FaultCase{"TruncatedLists", FaultCase::kReads, plain(Kind::kTruncate)},
        FaultCase{"UnavailableLists", FaultCase::kReads, reject(503)},
        FaultCase{"DuplicatedWrites", FaultCase::kWrites, plain(Kind::kDuplicate), 100},
        FaultCase{"SlowWrites", FaultCase::kWrites, late(Kind::kDelayResponse, milliseconds(100)),
                  100},
        FaultCase{"WatchesBrokenAtOnce", FaultCase::kWatches, after(Kind::kBreakStream, 0), 3},
        FaultCase{"WatchesBrokenMidStream", FaultCase::kWatches, after(Kind::kBreakStream, 2), 6},
        FaultCase{"WatchesThatEndEarly", FaultCase::kWatches, after(Kind::kEndStream, 1), 6},
        FaultCase{"RejectedWatches", FaultCase::kWatches, reject(410), 3},
        FaultCase{"WatchesThatExpire", FaultCase::kWatches, after(Kind::kExpireStream, 1), 6},
        FaultCase{"DelayedEvents", FaultCase::kWatches, late(Kind::kDelayEvents, milliseconds(100)),
                  100},
        FaultCase{"RepeatedEvents", FaultCase::kWatches, plain(Kind::kRepeatEvents), 100}),
    [](const auto& of) { return std::string(of.param.name); });

class FaultyProxySeeds : public FaultyProxyTest,
                         public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(FaultyProxySeeds, ReachTheSameEndStateWithMixedFaults) {
  RandomFaults::Options options;
  options.seed = GetParam();
  std::cout << "seed " << options.seed << "\n";
  options.write_faults = {reject(409),
                          wrong_status(409),
                          reject(429),
                          reject(500),
                          wrong_status(500),
                          reject(503),
                          wrong_status(503),
                          plain(Kind::kReset),
                          plain(Kind::kResetAfter),
                          plain(Kind::kTruncate),
                          plain(Kind::kDuplicate),
                          late(Kind::kDelayResponse, milliseconds(200))};
  options.read_faults = {reject(429), reject(500), plain(Kind::kReset), plain(Kind::kTruncate),
                         late(Kind::kDelayResponse, milliseconds(200))};
  options.watch_faults = {after(Kind::kBreakStream, 0),
                          after(Kind::kBreakStream, 3),
                          after(Kind::kEndStream, 2),
                          after(Kind::kExpireStream, 2),
                          reject(410),
                          reject(503),
                          plain(Kind::kRepeatEvents),
                          plain(Kind::kReset),
                          late(Kind::kDelayEvents, milliseconds(200))};
  start_proxy(RandomFaults(options));
  // Seed 2 also tests leader election under these faults.
  const bool elects = options.seed == 2;
  expect_usual_end_state(elects ? std::vector<std::string>{"--lease_name=proxied"}
                                : kNoLeaderElection);
  EXPECT_GE(faults(), 10);
}

INSTANTIATE_TEST_SUITE_P(Of, FaultyProxySeeds, ::testing::Range<std::uint64_t>(1, 6),
                         [](const auto& of) { return "Seed" + std::to_string(of.param); });

}  // namespace
}  // namespace tilewright::testing
