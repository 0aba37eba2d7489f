// Tests of Applier: the requests of a plan, their order, and the handling of each response.
#include "controller/operator/applier.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>

#include "common/contract/labels.h"
#include "controller/api/encode.h"
#include "controller/cluster/objects.h"
#include "controller/cluster/pytorch_objects.h"
#include "controller/cluster/pytorch_status.h"
#include "controller/cluster/pytorch_view.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/controller/api/manifest.h"
#include "tests/unit/controller/operator/scripted_api.h"

namespace tilewright::controller {
namespace {

using kube::ErrorKind;
using nlohmann::json;
using policy::OwnedResource;
using policy::Plan;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Key;
using testing::kPodGroups;
using ::testing::Not;
using testing::ScriptedApi;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using tilewright::testing::make_silent_logger;

constexpr const char* kJob = "/apis/tilewright.dev/v1alpha1/namespaces/ns/trainjobs/mrpc";
constexpr const char* kPods = "/api/v1/namespaces/ns/pods";
constexpr const char* kSecrets = "/api/v1/namespaces/ns/secrets";
constexpr const char* kServices = "/api/v1/namespaces/ns/services";
constexpr const char* kPolicies = "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies";
const std::string kPatchStatus = std::string("PATCH ") + kJob + "/status";
const std::string kPostPod = std::string("POST ") + kPods;
const std::string kPostSecret = std::string("POST ") + kSecrets;
const std::string kPostService = std::string("POST ") + kServices;
const std::string kPostPolicy = std::string("POST ") + kPolicies;
const std::string kPostPodGroup = std::string("POST ") + kPodGroups;
const std::string kPatchPodGroup = std::string("PATCH ") + kPodGroups + "/mrpc";
std::string on_pod(const char* method, int index) {
  return fmt::format("{} {}/mrpc-worker-{}", method, kPods, index);
}

class ApplierTest : public ::testing::Test {
 protected:
  ApplierTest() : job(api::testing::job_of()) {
    job.metadata.namespace_name = "ns";
    job.metadata.uid = "5f0c8f6e-0b3a-4c2e-9d57-3f1f5a0a7c11";
    job.metadata.resource_version = "17";
    job.status.phase = api::Phase::kPending;
  }

  ApplyResult apply(const Plan& plan,
                    const kube::WriteGuard& guard = kube::WriteGuard::unfenced()) {
    return apply(plan, *train_job_objects(job), guard);
  }
  ApplyResult apply(const Plan& plan, const JobObjects& objects,
                    const kube::WriteGuard& guard = kube::WriteGuard::unfenced()) {
    Recorder recorder(api.client(), std::make_shared<const kube::WriteGuard>(MonotonicTime::max()),
                      "replica-0", make_silent_logger());
    Applier applier(
        {api.client(), guard, *hub, keys, recorder, pool, {"monitoring"}, gang_scheduler},
        [] { return "10.96.0.7:29400"; }, make_silent_logger());
    return applier.apply(job, stored.value_or(api::to_json(job.status)), plan, expectations,
                         kube::soon(), objects);
  }

  // A plan with all its parts: worker 1 has ended and is recreated.
  Plan full() const {
    Plan plan;
    plan.status = job.status;
    plan.status->phase = api::Phase::kRestarting;
    plan.status->restarts.program = 1;
    plan.deletions = {{"mrpc-worker-1", 1, "dead-uid", false, policy::DeletionReason::kFailed}};
    plan.ensure = {OwnedResource::kKeySecret, OwnedResource::kHeadlessService,
                   OwnedResource::kNetworkPolicy};
    plan.creations = {{"mrpc-worker-0", 0}, {"mrpc-worker-2", 2}};
    plan.membership = policy::Membership{1, 4, 2, std::chrono::seconds(5)};
    plan.events = {{true, "WorkerFailed", "worker 1 ended"}};
    return plan;
  }
  // The job as the next reconcile observes it after the status write.
  void see_written(const api::TrainJobStatus& status) {
    job.metadata.resource_version = std::to_string(std::stoi(job.metadata.resource_version) + 1);
    job.status = status;
  }
  // An object with this name, owned by this job or by another one.
  json owned_by(const std::string& name, const std::string& uid, const std::string& job_uid) const {
    json pod = cluster::build_pod(job, 0, {});
    pod["metadata"]["name"] = name;
    pod["metadata"]["uid"] = uid;
    pod["metadata"]["ownerReferences"][0]["uid"] = job_uid;
    return pod;
  }
  static Plan with_pod_group(std::int64_t min_member) {
    Plan plan;
    plan.ensure = {OwnedResource::kPodGroup};
    plan.gang.emplace().min_member = min_member;
    return plan;
  }
  // The job has this PodGroup, to which Volcano has added a default.
  void answer_existing_pod_group(std::int64_t min_member) {
    json group = cluster::build_pod_group(job, *with_pod_group(min_member).gang, "volcano");
    group["metadata"]["uid"] = "group-uid";
    group["spec"]["queue"] = "default";
    api.answer(kPostPodGroup, 409, ScriptedApi::status(409, "AlreadyExists"));
    api.answer(std::string("GET ") + kPodGroups + "/mrpc", 200, group);
  }
  bool open() const { return hub->view(job.metadata.uid, {}, wall_now()).has_value(); }

  ScriptedApi api;
  api::TrainJob job;
  std::optional<json> stored;  // the status in the API server, if it is not that of a TrainJob
  JobExpectations expectations;
  TaskPool pool{3};
  std::string gang_scheduler;
  const JobKeys keys{net::SecretKey::from_bytes("0123456789abcdef0123456789abcdef").value()};
  const std::unique_ptr<RendezvousHub> hub =
      RendezvousHub::start(
          {"127.0.0.1", 0}, [](const auto&, auto) {}, make_silent_logger())
          .or_throw();
};

TEST_F(ApplierTest, AppliesThePlanInOrder) {
  const ApplyResult outcome = apply(full());
  EXPECT_TRUE(outcome.complete) << outcome.error->sentence();
  const auto order = api.order();
  ASSERT_THAT(order, SizeIs(7));
  EXPECT_EQ(order[0], kPatchStatus);
  EXPECT_EQ(order[1], on_pod("DELETE", 1));
  EXPECT_THAT(std::vector(order.begin() + 2, order.begin() + 5),
              UnorderedElementsAre(kPostSecret, kPostService, kPostPolicy));
  EXPECT_THAT(std::vector(order.begin() + 5, order.end()), ElementsAre(kPostPod, kPostPod));
  ASSERT_THAT(api.events(), SizeIs(1));
  EXPECT_EQ(api.events()[0].body["reason"], "WorkerFailed");
  EXPECT_TRUE(open());
  EXPECT_EQ(expectations.owned_resources,
            (std::set{OwnedResource::kKeySecret, OwnedResource::kHeadlessService,
                      OwnedResource::kNetworkPolicy}));
  EXPECT_THAT(expectations.created, SizeIs(2));
  EXPECT_THAT(expectations.deleted, ElementsAre(Key("dead-uid")));
  EXPECT_FALSE(expectations.rejection);
}

TEST_F(ApplierTest, PatchesOnlyChangedStatusFieldsWithUidAndVersion) {
  Plan plan;
  plan.status = job.status;
  plan.status->restarts.program = 1;
  plan.membership = policy::Membership{};
  ASSERT_TRUE(apply(plan).complete);
  const json patch = api.body_of(kPatchStatus);
  EXPECT_EQ(patch["metadata"], json({{"uid", job.metadata.uid}, {"resourceVersion", "17"}}));
  json patched = api::to_json(job.status);
  patched.merge_patch(patch["status"]);
  EXPECT_EQ(patched, api::to_json(*plan.status));
  EXPECT_FALSE(patch["status"].contains("phase")) << "unchanged";
  ASSERT_TRUE(expectations.written);
  EXPECT_THAT(expectations.written->base_versions, ElementsAre("17"));
  EXPECT_EQ(expectations.written->version, "made-1") << "from the response";
  EXPECT_EQ(json::from_cbor(expectations.written->status), patch["status"]);
}

TEST_F(ApplierTest, StopsIfTheStatusCannotBeWritten) {
  for (const auto& [code, reason, kind] : {std::tuple{409, "Conflict", ErrorKind::kConflict},
                                           std::tuple{404, "NotFound", ErrorKind::kNotFound},
                                           std::tuple{422, "Invalid", ErrorKind::kInvalid}}) {
    api.answer(kPatchStatus, code, ScriptedApi::status(code, reason));
    const std::size_t before = api.seen().size();
    const ApplyResult outcome = apply(full());
    EXPECT_FALSE(outcome.complete);
    EXPECT_EQ(outcome.error->kind, kind);
    EXPECT_EQ(api.seen().size(), before + 1) << "only the status was written";
    EXPECT_THAT(api.events(), IsEmpty());
    EXPECT_FALSE(open());
    EXPECT_FALSE(expectations.written);
  }
}

// A lost response must not lose the events.
TEST_F(ApplierTest, PostsEventsOnceWhenAFailedStatusWriteWasApplied) {
  for (const auto& [code, reason] :
       {std::pair{500, "InternalError"},
        {504, "Timeout"},
        // The client sent the request twice, and the second one conflicts with the first.
        {409, "Conflict"}}) {
    const std::size_t posted = api.events().size();
    const Plan plan = full();
    api.answer(kPatchStatus, code, ScriptedApi::status(code, reason));
    EXPECT_FALSE(apply(plan).complete);
    // The cache does not show the write yet; the next reconcile repeats it.
    EXPECT_FALSE(apply(plan).complete);
    EXPECT_THAT(api.events(), SizeIs(posted)) << "the outcome is still unknown";

    see_written(*plan.status);
    EXPECT_TRUE(apply(Plan()).complete);
    ASSERT_THAT(api.events(), SizeIs(posted + 1)) << reason;
    EXPECT_EQ(api.events().back().body["reason"], "WorkerFailed");
    EXPECT_TRUE(apply(Plan()).complete);
    see_written(*plan.status);
    EXPECT_TRUE(apply(Plan()).complete);
    EXPECT_THAT(api.events(), SizeIs(posted + 1)) << "exactly once";
    job.status.phase = api::Phase::kPending;
  }
}

TEST_F(ApplierTest, PostsEventsOfALostResponseBeforeLaterEvents) {
  const Plan first = full();
  api.answer(kPatchStatus, 500, ScriptedApi::status(500, "InternalError"));
  EXPECT_FALSE(apply(first).complete);
  see_written(*first.status);
  api.forget_answers();
  Plan next;
  next.status = job.status;
  next.status->phase = api::Phase::kRunning;
  next.events = {{false, "Running", "all workers are ready"}};
  EXPECT_TRUE(apply(next).complete);
  ASSERT_THAT(api.events(), SizeIs(2));
  EXPECT_EQ(api.events()[0].body["reason"], "WorkerFailed");
  EXPECT_EQ(api.events()[1].body["reason"], "Running");
}

TEST_F(ApplierTest, PostsNoEventsForAStatusThatWasNotWritten) {
  const Plan plan = full();
  api.answer(kPatchStatus, 500, ScriptedApi::status(500, "InternalError"));
  EXPECT_FALSE(apply(plan).complete);
  // Another client changed the job first, so the write can no longer be applied.
  see_written(job.status);
  EXPECT_TRUE(apply(Plan()).complete);
  // An equal status that another client writes later is not this write.
  see_written(*plan.status);
  EXPECT_TRUE(apply(Plan()).complete);
  EXPECT_THAT(api.events(), IsEmpty());
  // The outcome of this response is known.
  job.status.phase = api::Phase::kPending;
  api.answer(kPatchStatus, 422, ScriptedApi::status(422, "Invalid"));
  EXPECT_FALSE(apply(plan).complete);
  see_written(*plan.status);
  EXPECT_TRUE(apply(Plan()).complete);
  EXPECT_THAT(api.events(), IsEmpty());
}

TEST_F(ApplierTest, PostsEventsOfARepeatedWriteOnce) {
  const Plan plan = full();
  api.answer(kPatchStatus, 500, ScriptedApi::status(500, "InternalError"));
  EXPECT_FALSE(apply(plan).complete);
  api.forget_answers();
  EXPECT_TRUE(apply(plan).complete) << "the first attempt was not applied";
  EXPECT_THAT(api.events(), SizeIs(1));
  see_written(*plan.status);
  EXPECT_TRUE(apply(Plan()).complete);
  EXPECT_THAT(api.events(), SizeIs(1));
}

TEST_F(ApplierTest, DoesNotWriteAnUnchangedStatus) {
  Plan plan;
  plan.membership = policy::Membership{};
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_THAT(api.order(), IsEmpty());
}

TEST_F(ApplierTest, DeletesByUidAndWithoutGracePeriodWhenForced) {
  Plan plan;
  plan.deletions = {{"mrpc-worker-0", 0, "uid-a", false, policy::DeletionReason::kScaledDown},
                    {"mrpc-worker-1", 1, "uid-b", true, policy::DeletionReason::kFailed}};
  ASSERT_TRUE(apply(plan).complete);
  const json gentle = api.body_of(on_pod("DELETE", 0));
  EXPECT_EQ(gentle["preconditions"], json({{"uid", "uid-a"}}));
  EXPECT_FALSE(gentle.contains("gracePeriodSeconds"));
  const json force = api.body_of(on_pod("DELETE", 1));
  EXPECT_EQ(force["preconditions"], json({{"uid", "uid-b"}}));
  EXPECT_EQ(force["gracePeriodSeconds"], 0);
  EXPECT_FALSE(expectations.deleted.at("uid-a").gone);
  EXPECT_TRUE(expectations.deleted.at("uid-b").gone);
}

TEST_F(ApplierTest, TreatsAMissingPodAsDeleted) {
  api.answer(on_pod("DELETE", 1), 404, ScriptedApi::status(404, "NotFound"));
  Plan plan;
  plan.deletions = {{"mrpc-worker-1", 1, "uid-b", false, policy::DeletionReason::kFailed}};
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_TRUE(expectations.deleted.at("uid-b").gone);
}

TEST_F(ApplierTest, TreatsAPodWithAnotherUidAsDeleted) {
  api.answer(on_pod("DELETE", 1), 409, ScriptedApi::status(409, "Conflict"));
  api.answer(on_pod("GET", 1), 200, owned_by("mrpc-worker-1", "uid-c", job.metadata.uid));
  Plan plan;
  plan.deletions = {{"mrpc-worker-1", 1, "uid-b", false, policy::DeletionReason::kFailed}};
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_TRUE(expectations.deleted.at("uid-b").gone);
}

// Conflict has other causes than a changed UID.
TEST_F(ApplierTest, DoesNotTreatAnExistingPodAsDeleted) {
  api.answer(on_pod("DELETE", 1), 409, ScriptedApi::status(409, "Conflict"));
  api.answer(on_pod("GET", 1), 200, owned_by("mrpc-worker-1", "uid-b", job.metadata.uid));
  Plan plan;
  plan.deletions = {{"mrpc-worker-1", 1, "uid-b", false, policy::DeletionReason::kFailed}};
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_THAT(expectations.deleted, IsEmpty());
}

TEST_F(ApplierTest, CreatesTheSecretBeforeAnyPodAndNoPodWithoutIt) {
  api.answer(kPostSecret, 403, ScriptedApi::status(403, "Forbidden", "not allowed"));
  const ApplyResult outcome = apply(full());
  EXPECT_FALSE(outcome.complete);
  EXPECT_THAT(api.order(), Not(Contains(kPostPod)));
  EXPECT_THAT(expectations.owned_resources, Not(Contains(OwnedResource::kKeySecret)));
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kForbidden);
}

TEST_F(ApplierTest, AcceptsExistingObjectsOfTheJob) {
  const json exists = ScriptedApi::status(409, "AlreadyExists");
  for (const auto& post : {kPostSecret, kPostService, kPostPolicy, kPostPod}) {
    api.answer(post, 409, exists);
  }
  const std::string& own = job.metadata.uid;
  api.answer(std::string("GET ") + kServices + "/mrpc", 200, owned_by("mrpc", "s", own));
  api.answer(std::string("GET ") + kPolicies + "/mrpc", 200, owned_by("mrpc", "p", own));
  api.answer(on_pod("GET", 0), 200, owned_by("mrpc-worker-0", "pod-0", own));
  api.answer(on_pod("GET", 2), 200, owned_by("mrpc-worker-2", "pod-2", own));
  const ApplyResult outcome = apply(full());
  EXPECT_TRUE(outcome.complete) << outcome.error->sentence();
  EXPECT_THAT(expectations.owned_resources, SizeIs(3));
  EXPECT_THAT(expectations.created, UnorderedElementsAre(Key("pod-0"), Key("pod-2")));
  for (const std::string& request : api.order()) {
    EXPECT_FALSE(request.starts_with(std::string("GET ") + kSecrets)) << "secrets are not read";
  }
}

TEST_F(ApplierTest, ReportsAPodNameTakenByAnotherOwner) {
  api.answer(kPostPod, 409, ScriptedApi::status(409, "AlreadyExists"));
  api.answer(on_pod("GET", 0), 200, owned_by("mrpc-worker-0", "x", "another job's uid"));
  Plan plan;
  plan.creations = {{"mrpc-worker-0", 0}};
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_THAT(expectations.created, IsEmpty());
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kNameTaken);
  EXPECT_THAT(expectations.rejection->message,
              HasSubstr("a Pod named mrpc-worker-0 exists and does not belong to the job"));
}

// The informer would never show such a pod.
TEST_F(ApplierTest, ReportsAPodNameTakenByAPodWithTheLabelsOfAnotherJob) {
  api.answer(kPostPod, 409, ScriptedApi::status(409, "AlreadyExists"));
  json pod = owned_by("mrpc-worker-0", "x", job.metadata.uid);
  pod["metadata"]["labels"][labels::kJobUid] = "another job's uid";
  api.answer(on_pod("GET", 0), 200, pod);
  Plan plan;
  plan.creations = {{"mrpc-worker-0", 0}};
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_THAT(expectations.created, IsEmpty());
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kNameTaken);
}

TEST_F(ApplierTest, SaysThatAnotherOperatorCreatedAPodOfTheJob) {
  api.answer(kPostPod, 409, ScriptedApi::status(409, "AlreadyExists"));
  json pod = owned_by("mrpc-worker-0", "x", job.metadata.uid);
  pod["metadata"]["labels"] = {{"training.kubeflow.org/job-name", "mrpc"}};
  api.answer(on_pod("GET", 0), 200, pod);
  Plan plan;
  plan.creations = {{"mrpc-worker-0", 0}};
  EXPECT_FALSE(apply(plan).complete);
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kNameTaken);
  EXPECT_THAT(expectations.rejection->message,
              HasSubstr("a Pod named mrpc-worker-0 exists and was created for the job by another "
                        "operator: delete it once it has ended, or create the job again"));
}

TEST_F(ApplierTest, ReportsAServiceNameTakenByAnotherOwner) {
  api.answer(kPostService, 409, ScriptedApi::status(409, "AlreadyExists"));
  json service = owned_by("mrpc", "x", job.metadata.uid);
  service["metadata"]["ownerReferences"][0]["controller"] = false;
  api.answer(std::string("GET ") + kServices + "/mrpc", 200, service);
  EXPECT_FALSE(apply(full()).complete);
  EXPECT_THAT(api.order(), Not(Contains(kPostPod)));
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kNameTaken);
}

// Volcano or scheduler-plugins is not installed.
TEST_F(ApplierTest, ReportsAPodGroupWithoutACrd) {
  gang_scheduler = "volcano";
  api.answer(kPostPodGroup, 404, "404 page not found");
  Plan plan = with_pod_group(2);
  plan.creations = {{"mrpc-worker-0", 0}};
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_THAT(api.order(), Not(Contains(kPostPod)));
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kCrdMissing);
  EXPECT_EQ(expectations.rejection->message,
            "the cluster has no CRD of PodGroup scheduling.volcano.sh/v1beta1: install "
            "podgroups.scheduling.volcano.sh");
  api.forget_answers();
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_FALSE(expectations.rejection);
  EXPECT_EQ(api.body_of(kPostPod)["spec"]["schedulerName"], "volcano");
}

// The namespace is being deleted, and the job with it.
TEST_F(ApplierTest, ReportsNoPodGroupInAMissingNamespace) {
  gang_scheduler = "volcano";
  api.answer(kPostPodGroup, 404, ScriptedApi::status(404, "NotFound"));
  EXPECT_FALSE(apply(with_pod_group(2)).complete);
  EXPECT_FALSE(expectations.rejection);
}

// The job has become smaller.
TEST_F(ApplierTest, ChangesAPodGroupThatDiffersFromTheJob) {
  gang_scheduler = "volcano";
  answer_existing_pod_group(2);
  EXPECT_TRUE(apply(with_pod_group(1)).complete);
  EXPECT_EQ(api.body_of(kPatchPodGroup),
            json::parse(R"({"metadata": {"uid": "group-uid"}, "spec": {"minMember": 1}})"));
  EXPECT_THAT(expectations.owned_resources, ElementsAre(OwnedResource::kPodGroup));
}

TEST_F(ApplierTest, LeavesAPodGroupThatIsThatOfTheJob) {
  gang_scheduler = "volcano";
  answer_existing_pod_group(2);
  EXPECT_TRUE(apply(with_pod_group(2)).complete);
  EXPECT_THAT(api.order(), Not(Contains(kPatchPodGroup)));
  EXPECT_THAT(expectations.owned_resources, ElementsAre(OwnedResource::kPodGroup));
}

TEST_F(ApplierTest, RetriesAPodGroupThatCannotBeChanged) {
  gang_scheduler = "volcano";
  answer_existing_pod_group(2);
  api.answer(kPatchPodGroup, 500, ScriptedApi::status(500, "InternalError"));
  Plan plan = with_pod_group(1);
  plan.creations = {{"mrpc-worker-0", 0}};
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_THAT(expectations.owned_resources, IsEmpty());
  EXPECT_THAT(api.order(), Not(Contains(kPostPod)))
      << "the gang scheduler would wait for more pods than the job has";
}

TEST_F(ApplierTest, DistinguishesQuotaRejections) {
  Plan plan;
  plan.creations = {{"mrpc-worker-0", 0}};
  api.answer(kPostPod, 403,
             ScriptedApi::status(403, "Forbidden",
                                 "pods \"mrpc-worker-0\" is forbidden: exceeded quota: q, "
                                 "requested: pods=1, used: pods=2, limited: pods=2"));
  EXPECT_FALSE(apply(plan).complete);
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kQuotaExceeded);
  EXPECT_THAT(expectations.rejection->message, HasSubstr("limited: pods=2"));

  api.answer(kPostPod, 403, ScriptedApi::status(403, "Forbidden", "violates PodSecurity"));
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kForbidden);
  api.answer(kPostPod, 422, ScriptedApi::status(422, "Invalid", "spec.containers: Required"));
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kInvalid);
  // Errors that are not caused by the job are not rejections.
  api.answer(kPostPod, 500, ScriptedApi::status(500, "InternalError"));
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_FALSE(expectations.rejection);
}

TEST_F(ApplierTest, SaysThatThePodOfAFailedWorkerMayNotBeDeleted) {
  api.answer(on_pod("DELETE", 1), 403, ScriptedApi::status(403, "Forbidden", "denied by a policy"));
  EXPECT_FALSE(apply(full()).complete);
  ASSERT_TRUE(expectations.rejection);
  EXPECT_EQ(expectations.rejection->cause, policy::RejectionCause::kForbidden);
  EXPECT_THAT(expectations.rejection->message, HasSubstr("denied by a policy"));
}

TEST_F(ApplierTest, ClearsTheRejectionAfterASuccess) {
  expectations.rejection = policy::Rejection{policy::RejectionCause::kQuotaExceeded, "used up"};
  Plan plan;
  plan.creations = {{"mrpc-worker-0", 0}};
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_FALSE(expectations.rejection);
}

TEST_F(ApplierTest, SendsNothingWithoutTheLease) {
  const kube::WriteGuard fenced(MonotonicTime::min());
  ApplyResult outcome = apply(full(), fenced);
  EXPECT_FALSE(outcome.complete);
  EXPECT_EQ(outcome.error->kind, ErrorKind::kFenced);
  EXPECT_THAT(api.order(), IsEmpty());

  Plan without_status = full();
  without_status.status.reset();
  without_status.delete_job = true;
  outcome = apply(without_status, fenced);
  EXPECT_FALSE(outcome.complete);
  EXPECT_THAT(api.order(), IsEmpty());
  EXPECT_THAT(expectations.deleted, IsEmpty());
}

// A user may have changed ttlSecondsAfterFinished since this version.
TEST_F(ApplierTest, DeletesOnlyTheVersionOfAnExpiredJobThatWasReconciled) {
  Plan plan;
  plan.delete_job = true;
  ASSERT_TRUE(apply(plan).complete);
  const json body = api.body_of(std::string("DELETE ") + kJob);
  EXPECT_EQ(body["preconditions"],
            json({{"uid", job.metadata.uid}, {"resourceVersion", job.metadata.resource_version}}));
  EXPECT_EQ(body["propagationPolicy"], "Background") << "its pods are deleted with it";
}

TEST_F(ApplierTest, DeletesTheVersionThatItsStatusWriteMade) {
  Plan plan;
  plan.status = job.status;
  plan.status->phase = api::Phase::kSucceeded;
  plan.delete_job = true;
  ASSERT_TRUE(apply(plan).complete);
  const json body = api.body_of(std::string("DELETE ") + kJob);
  EXPECT_EQ(body["preconditions"]["resourceVersion"], "made-1");
}

TEST_F(ApplierTest, RetriesAJobThatCouldNotBeDeleted) {
  Plan plan;
  plan.delete_job = true;
  api.answer(std::string("DELETE ") + kJob, 409, ScriptedApi::status(409, "Conflict"));
  EXPECT_FALSE(apply(plan).complete);
  api.answer(std::string("DELETE ") + kJob, 404, ScriptedApi::status(404, "NotFound"));
  EXPECT_TRUE(apply(plan).complete);
}

TEST_F(ApplierTest, RemovesOnlyResourcesOwnedByTheJob) {
  expectations.owned_resources = {OwnedResource::kKeySecret, OwnedResource::kHeadlessService,
                                  OwnedResource::kNetworkPolicy};
  const std::string service = std::string(kServices) + "/mrpc";
  const std::string policy = std::string(kPolicies) + "/mrpc";
  api.answer("GET " + service, 200, owned_by("mrpc", "service-uid", job.metadata.uid));
  api.answer("GET " + policy, 200, owned_by("mrpc", "policy-uid", "another's"));
  Plan plan;
  plan.remove = {OwnedResource::kKeySecret, OwnedResource::kHeadlessService,
                 OwnedResource::kNetworkPolicy};
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_EQ(api.body_of("DELETE " + service)["preconditions"], json({{"uid", "service-uid"}}));
  EXPECT_THAT(api.order(), Not(Contains("DELETE " + policy))) << "owned by another object";
  EXPECT_THAT(api.order(), Contains(fmt::format(
                               "DELETE {}/{}", kSecrets,
                               cluster::secret_name(job.metadata, keys.id_for(job.metadata.uid)))));
  EXPECT_THAT(expectations.owned_resources, IsEmpty());
  EXPECT_THAT(expectations.removed_owned_resources, SizeIs(3));
}

class PyTorchApplierTest : public ApplierTest {
 protected:
  PyTorchApplierTest() {
    pytorch.metadata = job.metadata;
    pytorch.metadata.name = "qa";
    pytorch.spec.worker.emplace().replicas = 2;
    pytorch.spec.worker->pod_template =
        json::parse(R"({"spec": {"containers": [{"name": "pytorch", "image": "trainer:1"}]}})");
    job = cluster::view_of(pytorch).job;
    for (int index = 0; index < 3; ++index) {
      json service = cluster::build_service(pytorch, index);
      service["metadata"]["uid"] = "service-uid";
      api.answer("GET " + service_path(index), 200, service);
    }
  }
  ApplyResult apply(const Plan& plan) {
    std::atomic<bool> drops_state{false};
    return ApplierTest::apply(
        plan,
        *pytorch_job_objects(job, pytorch, {}, stored.value_or(json::object()), drops_state, ""));
  }
  static std::string service_path(int index) {
    return fmt::format("{}/qa-worker-{}", kServices, index);
  }
  static std::string pod_path(int index) { return fmt::format("{}/qa-worker-{}", kPods, index); }
  static policy::WorkerDeletion deletion_with_service(int index) {
    return {fmt::format("qa-worker-{}", index),   index, "uid", false,
            policy::DeletionReason::kJobFinished, true};
  }

  api::PyTorchJob pytorch;
};

TEST_F(PyTorchApplierTest, CreatesThePodGroupOfTheOperatorsGangScheduler) {
  Plan plan = with_pod_group(2);
  plan.creations = {{"qa-worker-0", 0}};
  gang_scheduler = "scheduler-plugins-scheduler";
  EXPECT_TRUE(apply(plan).complete);
  const json group = api.body_of("POST /apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups");
  EXPECT_EQ(group["spec"]["minMember"], 2);
  EXPECT_EQ(api.body_of(kPostPod)["spec"]["schedulerName"], "scheduler-plugins-scheduler");
}

// Kubeflow's CRD drops status.tilewright. A write with this field would remove the state until the
// next write, and an operator that dies between the two would lose it.
TEST_F(PyTorchApplierTest, ANewLeaderWritesTheStateIntoTheConditionThatHoldsIt) {
  api::PyTorchJobStatus status;
  status.tilewright.restarts.program = 1;
  stored = cluster::encode_status(status, cluster::StatusLayout::kCondition);
  Plan plan;
  plan.status = job.status;
  plan.status->restarts.program = 2;
  ASSERT_TRUE(apply(plan).complete);
  json written = api.body_of("PATCH /apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/qa/status");
  EXPECT_FALSE(written["status"].contains("tilewright")) << written;
  cluster::restore_state(written);
  EXPECT_EQ(written.value(json::json_pointer("/status/tilewright/restarts/program"), 0), 2)
      << written;
}

TEST_F(PyTorchApplierTest, DeletesAServiceBeforeItsPod) {
  Plan plan;
  plan.deletions = {deletion_with_service(1)};
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_THAT(api.order(), ElementsAre("GET " + service_path(1), "DELETE " + service_path(1),
                                       "DELETE " + pod_path(1)));
}

// Without the pod the next reconcile would not know of the Service.
TEST_F(PyTorchApplierTest, KeepsThePodOfAServiceThatCannotBeDeleted) {
  api.answer("DELETE " + service_path(1), 500, ScriptedApi::status(500, "InternalError"));
  Plan plan;
  plan.deletions = {deletion_with_service(1)};
  EXPECT_FALSE(apply(plan).complete);
  EXPECT_THAT(api.order(), Not(Contains("DELETE " + pod_path(1))));
  EXPECT_THAT(expectations.deleted, IsEmpty());
}

TEST_F(PyTorchApplierTest, DeletesTheServicesOfWorkersThatTheJobNoLongerHas) {
  expectations.services = 3;
  expectations.owned_resources = {OwnedResource::kHeadlessService};
  Plan plan;
  plan.remove = {OwnedResource::kHeadlessService};
  EXPECT_TRUE(apply(plan).complete);
  EXPECT_THAT(api.order(), IsSupersetOf({"DELETE " + service_path(0), "DELETE " + service_path(1),
                                         "DELETE " + service_path(2)}));
  EXPECT_THAT(expectations.removed_owned_resources, ElementsAre(OwnedResource::kHeadlessService));
}

TEST_F(PyTorchApplierTest, ANewLeaderDeletesTheServicesOfAnEarlierScaleDown) {
  pytorch.spec.elastic_policy.emplace().max_replicas = 3;
  job = cluster::view_of(pytorch).job;
  Plan plan;
  plan.ensure = {OwnedResource::kHeadlessService};
  apply(plan);
  EXPECT_THAT(api.order(), Contains("DELETE " + service_path(2)));
  EXPECT_THAT(api.order(), Not(Contains("DELETE " + service_path(1))));
}

TEST_F(ApplierTest, ClosesTheRendezvousOfAFinishedJob) {
  apply(full());
  ASSERT_TRUE(open());
  apply(Plan());
  EXPECT_FALSE(open());
}

TEST_F(ApplierTest, CreatesPodsWithIndexOwnerAndRendezvousAddress) {
  Plan plan;
  plan.creations = {{"mrpc-worker-3", 3}};
  ASSERT_TRUE(apply(plan).complete);
  const json pod = api.body_of(kPostPod);
  EXPECT_EQ(pod["metadata"]["name"], "mrpc-worker-3");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], job.metadata.uid);
  EXPECT_THAT(pod["spec"]["containers"][0]["env"].dump(), HasSubstr("10.96.0.7:29400"));
  ASSERT_THAT(expectations.created, SizeIs(1));
  EXPECT_EQ(expectations.created.begin()->second.worker.index, 3);
}

TEST_F(ApplierTest, OpensTheWorkersMetricsToTheNamespacesOfTheOptions) {
  ASSERT_TRUE(apply(full()).complete);
  EXPECT_EQ(api.body_of(kPostPolicy)["spec"],
            cluster::build_network_policy(job, {"monitoring"})["spec"]);
}

}  // namespace
}  // namespace tilewright::controller
