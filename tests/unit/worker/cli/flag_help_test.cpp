#include "worker/cli/flag_help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/contract/training_flags.h"

namespace tilewright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FlagHelp, OfTrainHasAllFlagsThatWork) {
  const std::string help = train_help();
  for (const TrainingFlag& flag : training_flags()) {
    const std::string line = "\n  --" + std::string(flag.name) + " ";
    EXPECT_EQ(help.find(line) != std::string::npos, flag.works()) << flag.name;
  }
  EXPECT_THAT(help, HasSubstr("Example:\n  tilewright-worker train --task_name mrpc"));
}

TEST(FlagHelp, OfEvalAndPredictHasNoFlagOfATraining) {
  for (const std::string& help : {eval_help(), predict_help()}) {
    for (const char* flag : {"learning_rate", "train_file", "num_train_epochs", "save_steps",
                             "do_train", "eval_strategy", "per_device_train_batch_size"}) {
      EXPECT_THAT(help, Not(HasSubstr(std::string("--") + flag))) << flag;
    }
    for (const char* flag : {"model_name_or_path", "max_seq_length", "threads", "log_level"}) {
      EXPECT_THAT(help, HasSubstr(std::string("  --") + flag)) << flag;
    }
    EXPECT_THAT(help,
                HasSubstr("model: a directory, or a name on the Hugging Face hub (required)"));
    EXPECT_THAT(help, Not(HasSubstr("task to train on")));
  }
  EXPECT_THAT(eval_help(), HasSubstr("  --validation_file"));
  EXPECT_THAT(eval_help(), HasSubstr("Example:\n  tilewright-worker eval --model_name_or_path"));
}

TEST(FlagHelp, OfPredictHasTheInput) {
  const std::string help = predict_help();
  EXPECT_THAT(help, HasSubstr("  --input FILE"));
  EXPECT_THAT(help, HasSubstr("directory for the predictions (required without --input)"));
  EXPECT_THAT(help, HasSubstr("  --test_file"));
  EXPECT_THAT(help, HasSubstr("predict --model_name_or_path out/mrpc --input -\n"));
  EXPECT_THAT(bench_start_help(), HasSubstr("  --json "));
}

}  // namespace
}  // namespace tilewright::cli
