// The table of training flags, and the values parsed by it.
#include "common/contract/training_flags.h"

#include <gtest/gtest.h>

#include <set>

namespace tilewright {
namespace {

Result<TrainingArguments> parse(std::vector<std::string> words) {
  return TrainingArguments::parse(words);
}

TEST(TrainingFlags, HaveNamesOfTheirOwnAndHelp) {
  std::set<std::string_view> names;
  for (const TrainingFlag& flag : training_flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_FALSE(flag.help.empty()) << flag.name;
    EXPECT_EQ(flag.name.find('-'), std::string_view::npos) << flag.name;
    EXPECT_EQ(flag.type == FlagType::kChoice, !flag.choices.empty()) << flag.name;
  }
}

TEST(TrainingFlags, HaveDefaultsThatTheTableItselfAllowsInNormalForm) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.name == "task_name") continue;  // has none
    const Result<std::string> normal = normalise_flag(flag, flag.default_value);
    ASSERT_TRUE(normal.ok()) << flag.name << ": " << normal.error().message;
    EXPECT_EQ(*normal, flag.default_value) << flag.name;
  }
}

// Hugging Face's defaults, from the documentation of TrainingArguments.
TEST(TrainingFlags, HaveHuggingFacesDefaults) {
  const TrainingArguments none;
  EXPECT_EQ(none.integer("per_device_train_batch_size"), 8);
  EXPECT_EQ(none.integer("per_device_eval_batch_size"), 8);
  EXPECT_EQ(none.integer("gradient_accumulation_steps"), 1);
  EXPECT_DOUBLE_EQ(none.number("learning_rate"), 5e-5);
  EXPECT_DOUBLE_EQ(none.number("weight_decay"), 0);
  EXPECT_DOUBLE_EQ(none.number("adam_beta1"), 0.9);
  EXPECT_DOUBLE_EQ(none.number("adam_beta2"), 0.999);
  EXPECT_DOUBLE_EQ(none.number("adam_epsilon"), 1e-8);
  EXPECT_DOUBLE_EQ(none.number("max_grad_norm"), 1);
  EXPECT_DOUBLE_EQ(none.number("num_train_epochs"), 3);
  EXPECT_EQ(none.integer("max_steps"), -1);
  EXPECT_EQ(none.text("lr_scheduler_type"), "linear");
  EXPECT_EQ(none.integer("save_steps"), 500);
  EXPECT_EQ(none.text("save_strategy"), "steps");
  EXPECT_EQ(none.integer("seed"), 42);
  EXPECT_EQ(none.integer("max_seq_length"), 128);
  EXPECT_FALSE(none.boolean("overwrite_output_dir"));
}

TEST(TrainingArguments, TakeValuesAfterEqualsAfterABlankAndNoneForBooleans) {
  const auto parsed =
      parse({"--learning_rate=1e-4", "--max_steps", "7", "--do_train", "--bf16=False",
             "--warmup_steps", "-0", "--max_eval_samples", "-1", "--run_name=a=b"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_DOUBLE_EQ(parsed->number("learning_rate"), 1e-4);
  EXPECT_EQ(parsed->integer("max_steps"), 7);
  EXPECT_TRUE(parsed->boolean("do_train"));
  EXPECT_FALSE(parsed->boolean("bf16"));
  EXPECT_EQ(parsed->integer("max_eval_samples"), -1);
  EXPECT_EQ(parsed->text("run_name"), "a=b");
  EXPECT_TRUE(parsed->is_set("max_steps"));
  EXPECT_FALSE(parsed->is_set("seed"));
}

TEST(TrainingArguments, LetTheLastOfTwoWin) {
  EXPECT_EQ(parse({"--seed=1", "--seed=2"})->integer("seed"), 2);
}

struct Refusal {
  std::vector<std::string> words;
  std::string sentence;
};

TEST(TrainingArguments, RefuseInOneSentence) {
  const Refusal refusals[] = {
      {{"--lerning_rate=1"},
       "--lerning_rate: there is no such flag; did you mean --learning_rate?"},
      {{"--quux=1"}, "--quux: there is no such flag"},
      {{"mrpc"}, "found the argument mrpc, expected --flag=value"},
      {{"--seed"}, "--seed: found no value, expected a whole number from 0 to 4294967295"},
      {{"--seed=abc"}, "--seed: found abc, expected a whole number from 0 to 4294967295"},
      {{"--seed=1.5"}, "--seed: found 1.5, expected a whole number from 0 to 4294967295"},
      {{"--seed=-1"}, "--seed: found -1, expected a whole number from 0 to 4294967295"},
      {{"--seed="}, "--seed: found nothing, expected a whole number from 0 to 4294967295"},
      {{"--adam_beta1=1"}, "--adam_beta1: found 1, expected a number from 0 to below 1"},
      {{"--hidden_dropout_prob=-0.5"},
       "--hidden_dropout_prob: found -0.5, expected a number from 0 to below 1, or -1"},
      {{"--learning_rate=nan"}, "--learning_rate: found nan, expected a number from 0 to 100"},
      {{"--bf16=maybe"}, "--bf16: found maybe, expected true or false"},
      {{"--save_strategy=never"}, "--save_strategy: found never, expected one of no, steps, epoch"},
      {{"--gemm_backend=mkl"}, "--gemm_backend: found mkl, expected one of native, onednn"},
      {{"--max_steps=0"}, "--max_steps: found 0, expected a whole number of at least 1, or -1"},
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
