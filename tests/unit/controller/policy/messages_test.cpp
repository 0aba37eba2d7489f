#include "controller/policy/messages.h"

#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

TEST(Messages, TellRejectionsOfTheApiServerApart) {
  const struct {
    RejectionCause cause;
    const char* detail;
    const char* reason;
    const char* text;
  } cases[] = {
      {RejectionCause::kQuotaExceeded, "pods \"mrpc-worker-0\" is forbidden: exceeded quota: team",
       "QuotaExceeded",
       "the namespace's quota is exceeded: pods \"mrpc-worker-0\" is forbidden: exceeded quota: "
       "team; the operator keeps retrying"},
      {RejectionCause::kForbidden, "pods \"mrpc-worker-0\" is forbidden: violates PodSecurity",
       "Forbidden",
       "the API server does not allow the operator to write an object of the job: pods "
       "\"mrpc-worker-0\" is forbidden: violates PodSecurity; the operator keeps retrying"},
      {RejectionCause::kInvalid, "Pod \"mrpc-worker-0\" is invalid: spec.tolerations", "Rejected",
       "the API server rejects an object of the job: Pod \"mrpc-worker-0\" is invalid: "
       "spec.tolerations; the operator keeps retrying"},
      {RejectionCause::kNameTaken,
       "a Pod named mrpc-worker-0 exists and does not belong to the job", "NameTaken",
       "an object of the job cannot be created: a Pod named mrpc-worker-0 exists and does not "
       "belong to the job; the operator keeps retrying"},
      {RejectionCause::kCrdMissing, "the cluster has no CRD of PodGroup", "CrdMissing",
       "an object of the job cannot be written: the cluster has no CRD of PodGroup; the operator "
       "keeps retrying"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.reason);
    const Message message = message_of(testing::make_job(), blocked::Rejected{{c.cause, c.detail}});
    EXPECT_EQ(message.reason, c.reason);
    EXPECT_EQ(message.text, c.text);
  }
}

}  // namespace
}  // namespace tilewright::policy
