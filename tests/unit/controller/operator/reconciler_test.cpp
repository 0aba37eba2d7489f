// Tests of Reconciler: an exception in the reconcile of one job ends that reconcile only, and owned
// resources follow the job.
#include "controller/operator/reconciler.h"

#include <fmt/format.h>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kPodGroups;
using testing::ScriptedApi;
using ::testing::SizeIs;
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

// mrpc, as the user has changed it `generation` - 1 times.
json job_of_size(std::int64_t generation, int min_replicas, int replicas) {
  json job = stored_job("mrpc");
  job["metadata"]["generation"] = generation;
  job["metadata"]["resourceVersion"] = std::to_string(16 + generation);
  job["spec"]["elasticPolicy"]["minReplicas"] = min_replicas;
  job["spec"]["worker"]["replicas"] = replicas;
  return job;
}

class ReconcilerTest : public ::testing::Test {
 protected:
  // Fills the caches with these jobs, and no pods and nodes.
  void SetUp() override {
    api_.answer_list("GET /api/v1/pods", {});
    api_.answer_list("GET /api/v1/nodes", {});
    fill_caches({stored_job("broken"), stored_job("mrpc")});
    recorder_.emplace(api_.client(), std::make_shared<const kube::WriteGuard>(MonotonicTime::max()),
                      "replica-0", make_silent_logger());
    make_reconciler("");
  }
  // Also while a Reconciler uses the caches.
  void fill_caches(const std::vector<json>& jobs) {
    api_.answer_list("GET /apis/tilewright.dev/v1alpha1/trainjobs", jobs);
    caches_.emplace(
        api_.client(), "", [](const auto&, auto) {}, make_silent_logger());
    caches_->start();
    ASSERT_TRUE(caches_->wait_synced(kube::soon()));
  }
  void make_reconciler(const std::string& gang_scheduler) {
    reconciler_.reset();
    applier_.emplace(
        Applier::Dependencies{
            api_.client(), guard_, *hub_, keys_, *recorder_, pool_, {}, gang_scheduler},
        [] { return "10.96.0.7:29400"; }, make_silent_logger());
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
  std::vector<std::string> requests_of_pod_groups() {
    std::vector<std::string> requests = api_.order();
    std::erase_if(requests, [](const std::string& request) {
      return request.find(kPodGroups) == std::string::npos;
    });
    return requests;
  }
  // The condition Blocked in the last status that was written for the job.
  json last_blocked(const std::string& name) {
    json blocked;
    for (const ScriptedApi::Request& request : api_.seen()) {
      if (!request.what.ends_with("/trainjobs/" + name + "/status")) continue;
      const json conditions =
          request.body.value(json::json_pointer("/status/conditions"), json::array());
      for (const json& condition : conditions) {
        if (condition["type"] == "Blocked") blocked = condition;
      }
    }
    return blocked;
  }

  ScriptedApi api_{throwing_options()};
  const kube::WriteGuard guard_{MonotonicTime::max()};
  TaskPool pool_{2};
  MonotonicTime now_ = monotonic_now();
  workqueue::WorkQueue queue_{workqueue::Backoff(), [this] { return now_; }};
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

TEST_F(ReconcilerTest, WaitsAsLongAsAnOverloadedApiServerAsks) {
  json busy = ScriptedApi::status(429, "TooManyRequests", "overloaded");
  busy["details"]["retryAfterSeconds"] = 32;
  api_.answer(kPostPods, 429, busy);
  reconcile("ns/mrpc");
  using TimedOut = workqueue::WorkQueue::TimedOut;
  now_ += std::chrono::seconds(31);
  EXPECT_TRUE(std::holds_alternative<TimedOut>(queue_.take(now_)));
  now_ += std::chrono::seconds(1);
  EXPECT_FALSE(std::holds_alternative<TimedOut>(queue_.take(now_)));
}

// Objects that are not watched, such as Secrets, cause no event that would trigger a reconcile.
TEST_F(ReconcilerTest, ReconcilesAgainOnceARejectionHasEnded) {
  api_.answer(kPostPods, 403, ScriptedApi::status(403, "Forbidden", "violates PodSecurity"));
  reconcile("ns/mrpc");
  reconcile("ns/mrpc");
  ASSERT_EQ(last_blocked("mrpc")["status"], "True");
  EXPECT_EQ(queue_.stats().depth, 0U) << "only delayed";
  api_.forget_answers();
  reconcile("ns/mrpc");
  EXPECT_EQ(queue_.stats().depth, 1U);
}

// The manifest has no schedulingPolicy.
TEST_F(ReconcilerTest, RunsEveryJobWithTheGangSchedulerOfTheOperator) {
  make_reconciler("volcano");
  reconcile("ns/mrpc");
  EXPECT_THAT(api_.order(), Contains(std::string("POST ") + kPodGroups));
  EXPECT_THAT(api_.order(), Contains(kPostPods).Times(2));
  for (const ScriptedApi::Request& request : api_.seen()) {
    if (request.what != kPostPods) continue;
    EXPECT_EQ(request.body["spec"]["schedulerName"], "volcano");
  }
}

// minMember is minReplicas, because the job has no schedulingPolicy.
TEST_F(ReconcilerTest, ChangesThePodGroupWithTheSizeOfTheJob) {
  const std::string post = std::string("POST ") + kPodGroups;
  const std::string get = fmt::format("GET {}/mrpc", kPodGroups);
  const std::string patch = fmt::format("PATCH {}/mrpc", kPodGroups);
  make_reconciler("volcano");
  fill_caches({job_of_size(1, 2, 2)});
  reconcile("ns/mrpc");
  json group = api_.body_of(post);
  EXPECT_EQ(group["spec"]["minMember"], 2);
  reconcile("ns/mrpc");
  EXPECT_THAT(requests_of_pod_groups(), ElementsAre(post)) << "nothing has changed";

  group["metadata"]["uid"] = "group-uid";
  api_.answer(post, 409, ScriptedApi::status(409, "AlreadyExists"));
  api_.answer(get, 200, group);
  fill_caches({job_of_size(2, 1, 1)});
  reconcile("ns/mrpc");
  EXPECT_THAT(requests_of_pod_groups(), ElementsAre(post, post, get, patch));
  EXPECT_EQ(api_.body_of(patch)["spec"], json({{"minMember", 1}}));

  group["spec"]["minMember"] = 1;
  api_.answer(get, 200, group);
  reconcile("ns/mrpc");
  EXPECT_THAT(requests_of_pod_groups(), SizeIs(4)) << "nothing has changed";
  fill_caches({job_of_size(3, 1, 2)});
  reconcile("ns/mrpc");
  EXPECT_THAT(requests_of_pod_groups(), ElementsAre(post, post, get, patch, post, get))
      << "the group is not written again";
  EXPECT_THAT(api_.order(), Contains("POST /api/v1/namespaces/ns/services").Times(1))
      << "the Service does not depend on the size";
}

}  // namespace
}  // namespace tilewright::controller
