// The table of training flags, and the parser of command lines.
#include "common/contract/training_flags.h"

#include <gtest/gtest.h>

#include <set>

namespace tilewright {
namespace {

Result<TrainingArguments> parse(std::vector<std::string> words) {
  return TrainingArguments::parse(words);
}

TEST(TrainingFlags, HaveUniqueNamesAndHelp) {
  std::set<std::string_view> names;
  for (const TrainingFlag& flag : training_flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_FALSE(flag.help.empty()) << flag.name;
    EXPECT_EQ(flag.name.find('-'), std::string_view::npos) << flag.name;
    EXPECT_EQ(flag.type == FlagType::kChoice, !flag.choices.empty()) << flag.name;
  }
}

TEST(TrainingFlags, HaveValidNormalizedDefaults) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.name == "task_name") continue;  // has no default
    const Result<std::string> normal = normalize_flag_value(flag, flag.default_value);
    ASSERT_TRUE(normal.ok()) << flag.name << ": " << normal.error().message;
    EXPECT_EQ(*normal, flag.default_value) << flag.name;
  }
}

TEST(TrainingFlags, DefaultsParseToTheMembersOfTrainingSettings) {
  const TrainingSettings defaults;
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.required) continue;
    const auto parsed = parse({fmt::format("--{}={}", flag.name, flag.default_value)});
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    std::visit(
        [&](auto member) { EXPECT_EQ(parsed->settings().*member, defaults.*member) << flag.name; },
        flag.member);
  }
}

// Hugging Face's defaults, from the documentation of TrainingArguments.
TEST(TrainingFlags, HaveHuggingFaceDefaults) {
  const TrainingArguments none;
  EXPECT_EQ(none.settings().per_device_train_batch_size, 8);
  EXPECT_EQ(none.settings().per_device_eval_batch_size, 8);
  EXPECT_EQ(none.settings().gradient_accumulation_steps, 1);
  EXPECT_DOUBLE_EQ(none.settings().learning_rate, 5e-5);
  EXPECT_DOUBLE_EQ(none.settings().weight_decay, 0);
  EXPECT_FLOAT_EQ(none.settings().adam_beta1, 0.9f);
  EXPECT_FLOAT_EQ(none.settings().adam_beta2, 0.999f);
  EXPECT_FLOAT_EQ(none.settings().adam_epsilon, 1e-8f);
  EXPECT_DOUBLE_EQ(none.settings().max_grad_norm, 1);
  EXPECT_DOUBLE_EQ(none.settings().num_train_epochs, 3);
  EXPECT_EQ(none.settings().max_steps, -1);
  EXPECT_EQ(none.settings().lr_scheduler_type, "linear");
  EXPECT_EQ(none.settings().save_steps, 500);
  EXPECT_EQ(none.settings().save_strategy, "steps");
  EXPECT_EQ(none.settings().seed, 42);
  EXPECT_EQ(none.settings().max_seq_length, 128);
  EXPECT_FALSE(none.settings().overwrite_output_dir);
}

TEST(TrainingArguments, AcceptEqualsSpaceAndBareBooleanSyntax) {
  const auto parsed =
      parse({"--learning_rate=1e-4", "--max_steps", "7", "--do_train", "--bf16=False",
             "--warmup_steps", "-0", "--max_eval_samples", "-1", "--run_name=a=b"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_DOUBLE_EQ(parsed->settings().learning_rate, 1e-4);
  EXPECT_EQ(parsed->settings().max_steps, 7);
  EXPECT_TRUE(parsed->settings().do_train);
  EXPECT_FALSE(parsed->settings().bf16);
  EXPECT_EQ(parsed->settings().max_eval_samples, -1);
  EXPECT_EQ(parsed->settings().run_name, "a=b");
  EXPECT_TRUE(parsed->is_set("max_steps"));
  EXPECT_FALSE(parsed->is_set("seed"));
}

TEST(TrainingArguments, LastValueWins) {
  EXPECT_EQ(parse({"--seed=1", "--seed=2"})->settings().seed, 2);
}

struct Refusal {
  std::vector<std::string> words;
  std::string sentence;
};

TEST(TrainingArguments, RejectInvalidValuesWithOneMessage) {
  const Refusal refusals[] = {
      {{"--lerning_rate=1"}, "--lerning_rate: unknown flag; did you mean --learning_rate?"},
      {{"--quux=1"}, "--quux: unknown flag"},
      {{"mrpc"}, "found the argument \"mrpc\", expected --flag=value"},
      {{"--seed"}, "--seed: found no value, expected an integer from 0 to 4294967295"},
      {{"--seed=abc"}, "--seed: found abc, expected an integer from 0 to 4294967295"},
      {{"--seed=1.5"}, "--seed: found 1.5, expected an integer from 0 to 4294967295"},
      {{"--seed=-1"}, "--seed: found -1, expected an integer from 0 to 4294967295"},
      {{"--seed="}, "--seed: found nothing, expected an integer from 0 to 4294967295"},
      {{"--adam_beta1=1"}, "--adam_beta1: found 1, expected a number from 0 to below 1"},
      {{"--hidden_dropout_prob=-0.5"},
       "--hidden_dropout_prob: found -0.5, expected a number from 0 to below 1, or -1"},
      {{"--learning_rate=nan"}, "--learning_rate: found nan, expected a number from 0 to 100"},
      {{"--bf16=maybe"}, "--bf16: found maybe, expected true or false"},
      {{"--save_strategy=never"}, "--save_strategy: found never, expected one of no, steps, epoch"},
      {{"--gemm_backend=mkl"}, "--gemm_backend: found mkl, expected one of native, onednn"},
      {{"--max_steps=0"}, "--max_steps: found 0, expected an integer of at least 1, or -1"},
  };
  for (const Refusal& refusal : refusals) {
    const auto parsed = parse(refusal.words);
    ASSERT_FALSE(parsed.ok()) << refusal.sentence;
    EXPECT_EQ(parsed.error().message, refusal.sentence);
    EXPECT_EQ(parsed.error().code, ExitCode::kUsage);
  }
}

}  // namespace
}  // namespace tilewright
