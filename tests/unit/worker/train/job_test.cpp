#include "worker/train/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright::train {
namespace {

using ::testing::IsEmpty;

Job job_that_chooses_its_data_type(bool exact) {
  Job job;
  job.settings.chooses_data_type = true;
  job.settings.exact = exact;
  job.fingerprint = nlohmann::json::object();
  return job;
}

TEST(Job, HasTheDataTypeOfTheInstructionSetUnlessTheFlagsNameOne) {
  Job job = job_that_chooses_its_data_type(true);
  job.set_instruction_set(runtime::Isa::kAmx);
  EXPECT_TRUE(job.settings.bf16);
  job.set_instruction_set(runtime::Isa::kAvx2);
  EXPECT_FALSE(job.settings.bf16);

  job.settings.chooses_data_type = false;
  job.set_instruction_set(runtime::Isa::kAmx);
  EXPECT_FALSE(job.settings.bf16);
}

TEST(Job, HasTheInstructionSetInTheFingerprintIfItIsExact) {
  Job exact = job_that_chooses_its_data_type(true);
  exact.set_instruction_set(runtime::Isa::kAmx);
  EXPECT_EQ(exact.fingerprint, (nlohmann::json{{"instruction_set", "amx"}, {"bf16", true}}));

  Job other = job_that_chooses_its_data_type(false);
  other.set_instruction_set(runtime::Isa::kAmx);
  EXPECT_THAT(other.fingerprint, IsEmpty());
}

}  // namespace
}  // namespace tilewright::train
