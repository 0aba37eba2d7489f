// Tests of Reconciler: an exception in the reconcile of one job ends that reconcile only.
#include "controller/operator/reconciler.h"

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>

#include <optional>
#include <stdexcept>

#include "controller/api/encode.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/controller/api/manifest.h"
#include "tests/unit/controller/operator/scripted_api.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::ScriptedApi;
using tilewright::testing::make_silent_logger;

constexpr const char* kBroken = "ns/broken";
constexpr const char* kPostPods = "POST /api/v1/namespaces/ns/pods";

// Throws while it creates the pods of the job "broken", as a bug in a builder would.
kube::SenderOptions throwing_options() {
  kube::SenderOptions options = kube::no_retry_delay();
  options.before_write = [](const kube::ApiRequest& request) {
    if (request.operation.find("broken-worker") != std::string::npos) {
      throw std::runtime_error("a bug");
    }
  };
  return options;
}

json stored_job(const std::string& name) {
  api::TrainJob job = api::testing::decode_manifest(api::testing::kManifest).job;
  job.metadata.name = name;
  job.metadata.namespace_name = "ns";
  job.metadata.uid = name + "-uid";
  job.metadata.resource_version = "17";
  job.metadata.generation = 1;
  return api::to_json(job);
}

class ReconcilerTest : public ::testing::Test {
 protected:
  // Fills the caches with these jobs, and no pods and nodes.
  void SetUp() override {
    api_.answer_list("GET /api/v1/pods", {});
    api_.answer_list("GET /api/v1/nodes", {});
    api_.answer_list("GET /apis/tilewright.dev/v1alpha1/trainjobs",
                     {stored_job("broken"), stored_job("mrpc")});
    caches_.emplace(
        api_.client(), "", [](const auto&, auto) {}, make_silent_logger());
    caches_->start();
    ASSERT_TRUE(caches_->wait_synced(kube::soon()));
    recorder_.emplace(api_.client(), std::make_shared<const kube::WriteGuard>(MonotonicTime::max()),
                      "replica-0", make_silent_logger());
    applier_.emplace(
        Applier::Dependencies{api_.client(), guard_, *hub_, keys_, *recorder_, pool_},
        [] { return "10.96.0.7:29400"; }, make_silent_logger());
    make_reconciler("");
  }
  void make_reconciler(const std::string& gang_scheduler) {
    reconciler_.emplace(
        Reconciler::Dependencies{api_.client(), *caches_, *hub_, keys_, *applier_, *recorder_,
                                 queue_, metrics_, nullptr, gang_scheduler},
        make_silent_logger());
  }
  void reconcile(const std::string& key) { reconciler_->reconcile(key, kube::soon()); }
  // The events, all of which have been posted.
  std::vector<ScriptedApi::Request> take_events() {
    reconciler_.reset();
    applier_.reset();
    recorder_.reset();
    return api_.events();
  }
  std::string metrics_text() {
    return prometheus::TextSerializer().Serialize(
        metrics_.collectable([] { return MetricsSnapshot{}; })->Collect());
  }
  // The condition Blocked in the last status that was written for the job.
  json last_blocked(const std::string& name) {
    json blocked;
    for (const ScriptedApi::Request& request : api_.seen()) {
      if (!request.what.ends_with("/trainjobs/" + name + "/status")) continue;
      for (const json& condition : request.body["status"]["conditions"]) {
        if (condition["type"] == "Blocked") blocked = condition;
      }
    }
    return blocked;
  }

  ScriptedApi api_{throwing_options()};
  const kube::WriteGuard guard_{MonotonicTime::max()};
  TaskPool pool_{2};
  workqueue::WorkQueue queue_;
  Metrics metrics_;
  const JobKeys keys_{net::SecretKey::from_bytes("0123456789abcdef0123456789abcdef").value()};
  const std::unique_ptr<RendezvousHub> hub_ =
      RendezvousHub::start(
          {"127.0.0.1", 0}, [](const auto&, auto) {}, make_silent_logger())
          .or_throw();
  std::optional<Caches> caches_;
  std::optional<Recorder> recorder_;
  std::optional<Applier> applier_;
  std::optional<Reconciler> reconciler_;
};

TEST_F(ReconcilerTest, ReportsAnExceptionAndRetriesWithBackOff) {
  reconcile(kBroken);
  EXPECT_EQ(queue_.stats().retries, 1U);
  EXPECT_THAT(metrics_text(), HasSubstr("\ntilewright_controller_reconcile_exceptions_total 1\n"));
  reconcile(kBroken);
  EXPECT_EQ(queue_.stats().retries, 2U);
  const json blocked = last_blocked("broken");
  EXPECT_EQ(blocked["status"], "True");
  EXPECT_EQ(blocked["reason"], "InternalError");
  EXPECT_EQ(blocked["message"],
            "a bug in the operator stops the job: a bug; the operator keeps retrying");
  std::vector<std::string> reasons;
  for (const ScriptedApi::Request& event : take_events()) {
    EXPECT_EQ(event.body["regarding"]["name"], "broken");
    reasons.push_back(event.body["reason"]);
  }
  EXPECT_THAT(reasons, Contains("InternalError"));
}

TEST_F(ReconcilerTest, ReconcilesOtherJobsAfterAnException) {
  reconcile(kBroken);
  reconcile("ns/mrpc");
  EXPECT_EQ(queue_.stats().retries, 1U) << "of the job broken";
  EXPECT_THAT(api_.order(), Contains(kPostPods).Times(2)) << "the two workers of mrpc";
}

// The manifest has no schedulingPolicy.
TEST_F(ReconcilerTest, RunsEveryJobWithTheGangSchedulerOfTheOperator) {
  make_reconciler("volcano");
  reconcile("ns/mrpc");
  EXPECT_THAT(api_.order(),
              Contains("POST /apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"));
  for (const ScriptedApi::Request& request : api_.seen()) {
    if (request.what != kPods) continue;
    EXPECT_EQ(request.body["spec"]["schedulerName"], "volcano");
  }
}

}  // namespace
}  // namespace tilewright::controller
