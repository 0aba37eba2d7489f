#include "common/rendezvous/rejections.h"

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

namespace tilewright::rendezvous {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class RejectionsTest : public ::testing::Test {
 protected:
  // The lines since the last call.
  std::string logged() {
    std::string text = output.str();
    output.str("");
    return text;
  }
  std::ostringstream output;
  Rejections rejections{
      std::make_shared<Logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(output))};
  MonotonicTime now{seconds(1000)};
};

TEST_F(RejectionsTest, LogsTheFirstAndCountsTheOthers) {
  rejections.add(Rejection::kNoProof, "", "10.0.0.1:5", "did not prove a job's secret", now);
  EXPECT_THAT(logged(), HasSubstr("rendezvous: rejected 10.0.0.1:5: did not prove a job's secret"));
  for (int i = 0; i < 1000; ++i) rejections.add(Rejection::kNoProof, "", "10.0.0.1:6", "why", now);
  EXPECT_EQ(logged(), "");
  now += Rejections::kLogInterval;
  rejections.add(Rejection::kNoProof, "", "10.0.0.1:7", "why", now);
  EXPECT_THAT(logged(), HasSubstr("10.0.0.1:7: why (1000 similar rejections since"));
  EXPECT_EQ(rejections.counts().at("no_proof"), 1002u);
  EXPECT_EQ(rejections.counts().at("buffers"), 0u);
}

TEST_F(RejectionsTest, LogsEachReasonAndJobByItself) {
  rejections.add(Rejection::kJobMessages, "job-1", "10.0.0.1:5", "why", now);
  EXPECT_THAT(logged(), HasSubstr("rejected 10.0.0.1:5 of job job-1: why"));
  rejections.add(Rejection::kJobMessages, "job-2", "10.0.0.2:5", "why", now);
  EXPECT_THAT(logged(), HasSubstr("of job job-2"));
  rejections.add(Rejection::kJobBuffers, "job-1", "10.0.0.1:5", "why", now);
  EXPECT_THAT(logged(), HasSubstr("of job job-1"));
}

}  // namespace
}  // namespace tilewright::rendezvous
