// Tests of the metric names and values that dashboards and alerts use.
#include "controller/operator/metrics.h"

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>

#include <sstream>

namespace tilewright::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const prometheus::Collectable& collectable) {
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, collectable.Collect());
  return text.str();
}

TEST(ControllerMetrics, HaveStableNamesAndCurrentValues) {
  Metrics metrics;
  metrics.observe_reconcile(std::chrono::milliseconds(20));
  metrics.observe_reconcile(std::chrono::seconds(2));
  metrics.count_exception();
  std::size_t asked = 0;
  const auto collectable = metrics.collectable([&] {
    ++asked;
    MetricsSnapshot snapshot;
    snapshot.leading = asked == 1;
    snapshot.pods = 11;
    snapshot.jobs_by_phase = {{JobKind::kTrainJob, {{"Running", 3}, {"Pending", 1}}},
                              {JobKind::kPyTorchJob, {{"Running", 2}}}};
    snapshot.last_failures = {{JobKind::kTrainJob, WallTime(std::chrono::seconds(1'700'000'000))}};
    const JobResults results{{1, 0, 2}, {{"accuracy", 0.875}}};
    if (snapshot.leading) {
      snapshot.jobs = {{"team-a", "mrpc", std::make_shared<const JobResults>(results)}};
    }
    snapshot.rendezvous_members = 7;
    snapshot.rendezvous_rejections = {{"no_proof", 3}};
    snapshot.tcpstore = {5, {{"address", 2}}};
    snapshot.queue.depth = 4;
    snapshot.queue.processing = 2;
    snapshot.queue.retries = 9;
    snapshot.queue.oldest_queued = std::chrono::milliseconds(1500);
    snapshot.requests = {{{"create", "pods", "201"}, 5},
                         {{"create", "pods", "none"}, 1},
                         {{"patch", "trainjobs/status", "200"}, 6}};
    return snapshot;
  });
  const std::string text = text_of(*collectable);
  for (const char* line : {
           "\ntilewright_controller_leading 1\n",
           "\ntilewright_controller_pods 11\n",
           "\ntilewright_controller_jobs{kind=\"TrainJob\",phase=\"Running\"} 3\n",
           "\ntilewright_controller_jobs{kind=\"TrainJob\",phase=\"Pending\"} 1\n",
           "\ntilewright_controller_last_job_failure_timestamp_seconds{kind=\"TrainJob\"} "
           "1700000000\n",
           "\ntilewright_controller_rendezvous_members 7\n",
           "\ntilewright_controller_rendezvous_rejections_total{reason=\"no_proof\"} 3\n",
           "\ntilewright_controller_tcpstore_connections 5\n",
           "\ntilewright_controller_tcpstore_rejections_total{reason=\"address\"} 2\n",
           "\ntilewright_controller_workqueue_depth 4\n",
           "\ntilewright_controller_workqueue_in_progress 2\n",
           "\ntilewright_controller_workqueue_retries_total 9\n",
           "\ntilewright_controller_workqueue_oldest_age_seconds 1.5\n",
           "\ntilewright_controller_api_requests_total"
           "{verb=\"create\",resource=\"pods\",code=\"201\"} 5\n",
           "\ntilewright_controller_api_requests_total"
           "{verb=\"create\",resource=\"pods\",code=\"none\"} 1\n",
           "\ntilewright_controller_api_requests_total"
           "{verb=\"patch\",resource=\"trainjobs/status\",code=\"200\"} 6\n",
           "\ntilewright_job_restarts_total"
           "{namespace=\"team-a\",trainjob=\"mrpc\",cause=\"Program\"} 1\n",
           "\ntilewright_job_restarts_total"
           "{namespace=\"team-a\",trainjob=\"mrpc\",cause=\"Infrastructure\"} 0\n",
           "\ntilewright_job_restarts_total"
           "{namespace=\"team-a\",trainjob=\"mrpc\",cause=\"OutOfMemory\"} 2\n",
           "\ntilewright_job_evaluation"
           "{namespace=\"team-a\",trainjob=\"mrpc\",metric=\"accuracy\"} 0.875\n",
           "\n# TYPE tilewright_job_restarts_total counter\n",
           "\n# TYPE tilewright_job_evaluation gauge\n",
           "\ntilewright_controller_reconcile_duration_seconds_count 2\n",
           "\ntilewright_controller_reconcile_duration_seconds_bucket{le=\"0.03\"} 1\n",
           "\ntilewright_controller_reconcile_duration_seconds_bucket{le=\"3\"} 2\n",
           "\ntilewright_controller_reconcile_exceptions_total 1\n",
           "\n# TYPE tilewright_controller_api_requests_total counter\n",
           "\ntilewright_build_info{version=\"",
       }) {
    EXPECT_THAT("\n" + text, HasSubstr(line));
  }
  const std::string later = text_of(*collectable);
  EXPECT_THAT(later, HasSubstr("\ntilewright_controller_leading 0\n"));
  EXPECT_THAT(later, Not(HasSubstr("trainjob="))) << "the job is gone";
}

}  // namespace
}  // namespace tilewright::controller
