// Tests the response to a scrape of a worker over a real connection.
#include "worker/metrics/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/scrape.h"

namespace tilewright::metrics {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tilewright::testing::scrape;

std::unique_ptr<Exposition> serve() {
  return Exposition::serve({"127.0.0.1", 0}, {"mrpc", 1, 0}).or_throw();
}

TEST(Exposition, ExportsStepLossAndThroughput) {
  const auto exposition = serve();
  rendezvous::Progress progress;
  progress.step = 120;
  progress.total_steps = 345;
  progress.loss = 0.5;
  progress.examples_per_second = 160.25;
  progress.tokens_per_second = 8500;
  progress.metrics = {{"gflops", 550},
                      {"peak_gflops", 980},
                      {"eval_accuracy", 0.75},
                      {"compute_seconds", 0.25},
                      {"exchange_seconds", 0.125},
                      {"hidden_exchange_seconds", 0.0625},
                      {"shards", 3}};
  progress.slow_workers = {{{0, 0}, 2.0, 1}};
  exposition->set(progress);
  const std::string labels = R"({process="0",trainjob="mrpc",worker="1"})";
  EXPECT_THAT(scrape(exposition->port()),
              AllOf(HasSubstr("200 OK"), HasSubstr("tilewright_step" + labels + " 120"),
                    HasSubstr("tilewright_total_steps" + labels + " 345"),
                    HasSubstr("tilewright_loss" + labels + " 0.5"),
                    HasSubstr("tilewright_examples_per_second" + labels + " 160.25"),
                    HasSubstr("tilewright_tokens_per_second" + labels + " 8500"),
                    HasSubstr("tilewright_flops_per_second" + labels + " 550000000000"),
                    HasSubstr("tilewright_step_compute_seconds" + labels + " 0.25"),
                    HasSubstr("tilewright_step_exchange_seconds" + labels + " 0.125"),
                    HasSubstr("tilewright_step_hidden_exchange_seconds" + labels + " 0.0625"),
                    HasSubstr("tilewright_shards" + labels + " 3"),
                    HasSubstr("tilewright_slow_workers" + labels + " 1"),
                    HasSubstr("tilewright_last_checkpoint_step" + labels + " -1"),
                    HasSubstr(R"(tilewright_evaluation{process="0",trainjob="mrpc",worker="1",)"
                              R"(metric="accuracy"} 0.75)")));
}

TEST(Exposition, ExportsCountsOfTheReportAsCounters) {
  const auto exposition = serve();
  const std::string labels = R"({process="0",trainjob="mrpc",worker="1"})";
  rendezvous::Progress progress;
  progress.metrics = {{"failed_checkpoints", 1}, {"recoveries", 2}, {"steps_lost", 3}};
  exposition->set(progress);
  exposition->set(progress);  // the counts of a report are totals
  EXPECT_THAT(scrape(exposition->port()),
              AllOf(HasSubstr("# TYPE tilewright_failed_checkpoints_total counter"),
                    HasSubstr("tilewright_failed_checkpoints_total" + labels + " 1\n"),
                    HasSubstr("tilewright_recoveries_total" + labels + " 2\n"),
                    HasSubstr("tilewright_lost_steps_total" + labels + " 3\n")));
}

TEST(Exposition, CountsTheMembershipChangesAfterTheFirstEpoch) {
  const auto exposition = serve();
  const std::string labels = R"({process="0",trainjob="mrpc",worker="1"})";
  exposition->begin_epoch({3, 0, 2});
  EXPECT_THAT(scrape(exposition->port()),
              AllOf(HasSubstr("tilewright_membership_changes_total" + labels + " 0"),
                    HasSubstr("tilewright_world_size" + labels + " 2")));
  exposition->begin_epoch({4, 1, 3});
  EXPECT_THAT(scrape(exposition->port()),
              AllOf(HasSubstr("tilewright_membership_changes_total" + labels + " 1"),
                    HasSubstr("tilewright_membership_epoch" + labels + " 4"),
                    HasSubstr("tilewright_rank" + labels + " 1"),
                    HasSubstr("tilewright_world_size" + labels + " 3")));
}

TEST(Exposition, ShowsOnePhaseAtATime) {
  const auto exposition = serve();
  rendezvous::Progress progress;
  for (const char* phase : {"training", "training", "evaluating"}) {
    progress.phase = phase;
    exposition->set(progress);
  }
  EXPECT_THAT(scrape(exposition->port()),
              AllOf(HasSubstr("phase=\"evaluating\""), Not(HasSubstr("phase=\"training\""))));
}

TEST(Exposition, ServesIpv4AndIpv6WithoutAHost) {
  const auto exposition =
      Exposition::serve(net::parse_address(":0").or_throw(), {"mrpc", 1, 0}).or_throw();
  for (const std::string host : {"127.0.0.1", "::1"}) {
    if (!net::Listener::bind({host, 0}).ok()) continue;  // a system without IPv6
    EXPECT_THAT(scrape(exposition->port(), host), HasSubstr("200 OK")) << host;
  }
}

TEST(Exposition, AnAddressInUseIsAnError) {
  const auto first = serve();
  const auto second = Exposition::serve({"127.0.0.1", first->port()}, {"mrpc", 0, 0});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ExitCode::kUsage);
  EXPECT_THAT(second.error().message,
              HasSubstr("cannot serve metrics at 127.0.0.1:" + std::to_string(first->port())));
}

}  // namespace
}  // namespace tilewright::metrics
