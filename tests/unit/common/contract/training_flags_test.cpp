// The table of training flags, and the parser of command lines.
#include "common/contract/training_flags.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/paths.h"

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
    for (const std::string_view alias : flag.aliases) {
      EXPECT_TRUE(names.insert(alias).second) << alias;
    }
    EXPECT_EQ(std::holds_alternative<std::monostate>(flag.member),
              flag.accepted_without_effect || flag.refused)
        << flag.name;
  }
}

TEST(TrainingFlags, HaveValidNormalizedDefaults) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.name == "task_name") continue;  // has no default
    if (flag.accepted_without_effect || flag.refused) {
      EXPECT_EQ(describe_default(flag), "") << flag.name;
      continue;
    }
    const Result<std::string> normal = normalize_flag_value(flag, flag.default_value);
    ASSERT_TRUE(normal.ok()) << flag.name << ": " << normal.error().message;
    EXPECT_EQ(*normal, flag.default_value) << flag.name;
  }
}

TEST(TrainingFlags, DefaultsParseToTheMembersOfTrainingSettings) {
  const TrainingSettings defaults;
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.required || flag.name == "task_name") continue;
    if (flag.accepted_without_effect || flag.refused) continue;
    const auto parsed = parse({fmt::format("--{}={}", flag.name, flag.default_value)});
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    std::visit(
        [&](auto member) {
          if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
            EXPECT_EQ(parsed->settings().*member, defaults.*member) << flag.name;
          }
        },
        flag.member);
  }
}

// From tests/golden/train/write_goldens.py.
nlohmann::json arguments_golden() {
  std::ifstream file(testing::source_dir() / "tests/golden/train/arguments.json");
  return nlohmann::json::parse(file);
}

// Other defaults are stated as differences. `given`: have other values in the golden.
TEST(TrainingFlags, HaveTheDefaultsOfTrainingArguments) {
  const std::set<std::string> differ = {"do_train",         "do_eval", "logging_steps",
                                        "save_total_limit", "bf16",    "ddp_backend"};
  const std::set<std::string> given = {"output_dir", "max_steps"};
  const nlohmann::json golden = arguments_golden();
  int compared = 0;
  for (const auto& [name, value] : golden.at("dumped").items()) {
    const TrainingFlag* flag = find_training_flag(name);
    ASSERT_NE(flag, nullptr) << name;
    if (!flag->works() || flag->name != name || given.contains(name)) continue;
    const bool is_unset = flag->default_value.empty() || flag->default_value == "-1" ||
                          !flag->default_description.empty();
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const bool same = value.is_null()
                          ? is_unset
                          : normalize_flag_value(*flag, text).value() == flag->default_value;
    EXPECT_EQ(same, !differ.contains(name)) << name << ": " << text;
    EXPECT_TRUE(same || !flag->difference.empty()) << name;
    ++compared;
  }
  EXPECT_GE(compared, 39);
  EXPECT_EQ(TrainingArguments().settings().max_steps, -1);
}

// Of run_glue.py and, from doc_stride, of run_qa.py.
TEST(TrainingFlags, HaveTheDefaultsOfTheScripts) {
  const TrainingArguments none;
  EXPECT_EQ(none.settings().model_revision, "main");
  EXPECT_EQ(none.settings().max_seq_length, 128);
  EXPECT_FALSE(none.settings().overwrite_cache);
  EXPECT_FALSE(none.settings().ignore_mismatched_sizes);
  EXPECT_EQ(none.settings().doc_stride, 128);
  EXPECT_EQ(none.settings().n_best_size, 20);
  EXPECT_EQ(none.settings().max_answer_length, 30);
  EXPECT_FALSE(none.settings().version_2_with_negative);
  EXPECT_DOUBLE_EQ(none.settings().null_score_diff_threshold, 0);
}

// The fields of transformers' TrainingArguments and of the scripts' own dataclasses;
// tests/golden/train/write_goldens.py gives the sources.
TEST(TrainingFlags, KnowEveryArgumentOfTheScripts) {
  for (const auto& [list, count] : {std::pair{"training_arguments.txt", 132},
                                    {"training_arguments_5.txt", 114},
                                    {"script_arguments.txt", 28}}) {
    std::ifstream file(testing::source_dir() / "tests/golden/train" / list);
    ASSERT_TRUE(file.is_open());
    int fields = 0;
    for (std::string name; std::getline(file, name); ++fields) {
      EXPECT_NE(find_training_flag(name), nullptr) << name;
    }
    EXPECT_EQ(fields, count) << list;
  }
}

TEST(TrainingArguments, AcceptTheSpellingsOfTransformers5) {
  const auto parsed =
      parse({"--warmup_steps", "0.1", "--activation_checkpointing", "--train_sampling_strategy",
             "group_by_length", "--use_cache", "False", "--trackio_static_space_id", "False"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->settings().warmup_steps, 0.1);
  EXPECT_TRUE(parsed->settings().gradient_checkpointing);
  EXPECT_EQ(parsed->settings().train_sampling_strategy, "group_by_length");
  EXPECT_EQ(parse({"--train_sampling_strategy=sequential"}).error().message,
            "--train_sampling_strategy: found sequential, expected one of random, group_by_length");
  EXPECT_EQ(
      parse({"--warmup_steps=1.5"}).error().message,
      "--warmup_steps: found 1.5, expected an integer of at least 0, or a fraction below 1 of "
      "all steps");
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

TEST(TrainingArguments, AcceptTheBooleanWordsOfHfArgumentParser) {
  for (const char* word : {"True", "true", "TRUE", "yes", "y", "t", "1"}) {
    const auto parsed = parse({"--overwrite_output_dir", word, "--seed", "1"});
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_TRUE(parsed->settings().overwrite_output_dir) << word;
  }
  for (const char* word : {"False", "false", "no", "n", "f", "0"}) {
    const auto parsed = parse({"--bf16", word, "--seed", "1"});
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_FALSE(parsed->settings().bf16) << word;
  }
  EXPECT_FALSE(parse({"--no_bf16", "--seed=1"})->settings().bf16);
  EXPECT_TRUE(parse({"--no_cuda", "True"}).ok());
  EXPECT_TRUE(parse({"--no_use_fast_tokenizer"}).ok());
}

TEST(TrainingArguments, AcceptAliasesDashesAndSynonyms) {
  const auto parsed =
      parse({"--per_gpu_train_batch_size", "3", "--learning-rate", "1e-3", "--evaluation_strategy",
             "epoch", "--task_name", "MRPC", "--log_level", "warning"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->settings().per_device_train_batch_size, 3);
  EXPECT_DOUBLE_EQ(parsed->settings().learning_rate, 1e-3);
  EXPECT_EQ(parsed->settings().eval_strategy, "epoch");
  EXPECT_TRUE(parsed->is_set("eval_strategy"));
  EXPECT_EQ(parsed->settings().task_name, "mrpc");
  EXPECT_EQ(parsed->settings().log_level, "warn");
}

TEST(TrainingArguments, SayWhichFlagsHaveNoEffect) {
  const auto parsed = parse(
      {"--use_ipex", "--no_cuda", "True", "--fp16", "False", "--bf16", "--ddp_timeout", "1800"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->note(),
            "--no_cuda, --use_ipex, --ddp_timeout: no effect, see docs/reference.md");
  EXPECT_EQ(parse({"--xpu_backend", "mpi"})->settings().ddp_backend, "mpi");
  EXPECT_EQ(parse({"--seed=1"})->note(), "");
  EXPECT_TRUE(parsed->is_set("bf16"));
  EXPECT_FALSE(parsed->is_set("fp16"));
}

// The commands of the CPU fine-tuning guides: the words after the name of the script.
TEST(TrainingArguments, AcceptTheCommandsOfTheCpuGuides) {
  const std::string distilbert =
      "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
      "--per_device_train_batch_size 32 --num_train_epochs 1 --output_dir /tmp/debug_squad/ ";
  const std::string large =
      "--model_name_or_path google-bert/bert-large-uncased --dataset_name squad --do_train "
      "--do_eval --per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 "
      "--max_seq_length 384 --doc_stride 128 --output_dir /tmp/debug_squad/ ";
  const std::string glue =
      "--do_train --do_eval --max_seq_length 128 --per_device_train_batch_size 32 --learning_rate "
      "2e-5 --num_train_epochs 3 --output_dir /tmp/glue/ --overwrite_output_dir True ";
  const std::string commands[] = {
      distilbert + "--use_ipex --bf16 --no_cuda",
      distilbert + "--overwrite_output_dir --no_cuda --xpu_backend ccl --bf16",
      distilbert + "--use_ipex --bf16 --no_cuda \\",
      large + "--use_ipex --bf16 --use_cpu",
      large + "--no_cuda --ddp_backend ccl --use_ipex",
      large + "--no_cuda --ddp_backend ccl --use_ipex --bf16",
      "--model_name_or_path bert-base-cased --task_name mrpc " + glue,
      "--model_name_or_path bert-base-cased --task_name mrpc " + glue +
          "--xpu_backend ccl --no_cuda True",
  };
  for (const std::string& command : commands) {
    std::istringstream stream(command);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    const auto parsed = parse(words);
    ASSERT_TRUE(parsed.ok()) << command << ": " << parsed.error().message;
    EXPECT_TRUE(parsed->is_set("do_train") && parsed->is_set("do_eval")) << command;
    EXPECT_TRUE(parsed->settings().do_train && parsed->settings().do_eval) << command;
    EXPECT_FALSE(parsed->settings().do_predict) << command;
    EXPECT_TRUE(parsed->settings().output_dir.starts_with("/tmp/")) << command;
    EXPECT_EQ(parsed->is_set("bf16"), command.find("--bf16") != std::string::npos) << command;
  }
}

TEST(TrainingArguments, AreThoseOfHfArgumentParser) {
  const nlohmann::json golden = arguments_golden();
  for (const nlohmann::json& one : golden.at("command_lines")) {
    const auto parsed = parse(one.at("words").get<std::vector<std::string>>());
    ASSERT_EQ(parsed.ok(), !one.contains("error"))
        << one.at("words") << (parsed.ok() ? "" : ": " + parsed.error().message);
    if (!parsed.ok()) continue;
    for (const auto& [name, value] : one.at("fields").items()) {
      const TrainingFlag* flag = find_training_flag(name);
      ASSERT_NE(flag, nullptr) << name;
      EXPECT_EQ(parsed->is_set(name), !flag->refused) << one.at("words");
      if (!flag->works()) continue;
      EXPECT_EQ(setting_value(parsed->settings(), *flag),
                *normalize_flag_value(*flag, value.dump()))
          << one.at("words");
    }
  }
}

// The nearest float is 1, with which the training would divide by 0.
TEST(TrainingArguments, RoundNoFloatToALimitThatIsOutOfRange) {
  const auto parsed = parse({"--adam_beta2=0.9999999999", "--adam_beta1=0.9999999999999999",
                             "--hidden_dropout_prob=0.99999999"});
  const TrainingSettings& settings = parsed.value().settings();
  const float below_1 = 1 - std::numeric_limits<float>::epsilon() / 2;
  EXPECT_EQ(settings.adam_beta2, below_1);
  EXPECT_EQ(settings.adam_beta1, below_1);
  EXPECT_EQ(settings.hidden_dropout_prob, below_1);
}

TEST(TrainingArguments, AcceptTheBeginningOfANameThatNoOtherNameHas) {
  const auto parsed =
      parse({"--task", "mrpc", "--per-gpu-train", "3", "--overwrite_output", "--use_ip", "--no_cud",
             "True", "--no_use_fast", "--no_pad", "--seed=1"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->settings().task_name, "mrpc");
  EXPECT_EQ(parsed->settings().per_device_train_batch_size, 3);
  EXPECT_TRUE(parsed->settings().overwrite_output_dir);
  EXPECT_FALSE(parsed->settings().pad_to_max_length);
  EXPECT_TRUE(parsed->is_set("pad_to_max_length"));
  EXPECT_EQ(parsed->note(),
            "--no_cuda, --use_ipex, --use_fast_tokenizer: no effect, see docs/reference.md");
  EXPECT_EQ(parse({"--eval_s=5"}).error().message,
            "--eval_s: ambiguous flag, expected one of --eval_strategy, --eval_steps");
  EXPECT_EQ(parse({"--no_bf16=true"}).error().message,
            "--no_bf16: found a value, expected none; --bf16 takes one");
  EXPECT_EQ(parse({"--num_train=x"}).error().message,
            "--num_train: found x, expected a number from 0 to 1000000");
}

TEST(TrainingArguments, TakeABooleanUseAuthTokenForNoToken) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--use_auth_token"},
                                                {"--use_auth_token", "True"},
                                                {"--use_auth_token=no"},
                                                {"--no_use_auth_token"}}) {
    const auto parsed = parse(words);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->settings().token, "");
    EXPECT_EQ(parsed->note(), "--use_auth_token: no effect, see docs/reference.md");
  }
  const auto token = parse({"--use_auth_token", "hf_abc", "--seed=1"});
  ASSERT_TRUE(token.ok()) << token.error().message;
  EXPECT_EQ(token->settings().token, "hf_abc");
  EXPECT_TRUE(token->is_set("token"));
  EXPECT_EQ(token->note(), "");
  EXPECT_FALSE(find_training_flag("use_auth_token")->in_manifest()) << "it may be a token";
}

TEST(TrainingArguments, AcceptSeveralWordsOfReportTo) {
  const auto parsed = parse({"--report_to", "wandb", "tensorboard", "--seed", "1"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->settings().seed, 1);
  EXPECT_EQ(parse({"--run_name", "a", "b"}).error().message,
            "found the argument \"b\", expected --flag=value");
}

TEST(TrainingArguments, AcceptValuesThatSwitchARefusedFlagOff) {
  for (const char* value : {"", "None", "{}", "[]", "{ }"}) {
    EXPECT_TRUE(parse({fmt::format("--lr_scheduler_kwargs={}", value)}).ok()) << value;
  }
  EXPECT_TRUE(parse({R"(--accelerator_config={"even_batches": true})"}).ok());
  for (const char* value : {R"({"split_batches": true})", R"({"batches": false})", R"([false])",
                            "accelerate.json", "{"}) {
    EXPECT_EQ(parse({fmt::format("--accelerator_config={}", value)}).error().message,
              "--accelerator_config: not supported: Tilewright does not use accelerate");
  }
}

TEST(TrainingArguments, ExpandTheHomeDirectoryInPathsOnly) {
  auto parsed = parse({"--output_dir=~/out", "--data_dir=~", "--train_file=a/~/b", "--run_name=~/x",
                       "--model_name_or_path=~/model", "--cache_dir=~other/cache"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  parsed->expand_home([](const char* name) {
    return std::string(name) == "HOME" ? std::string("/home/~/me") : std::string();
  });
  EXPECT_EQ(parsed->settings().output_dir, "/home/~/me/out");
  EXPECT_EQ(parsed->settings().data_dir, "/home/~/me");
  EXPECT_EQ(parsed->settings().train_file, "a/~/b");
  EXPECT_EQ(parsed->settings().run_name, "~/x");
  EXPECT_EQ(parsed->settings().model_name_or_path, "/home/~/me/model");
  EXPECT_EQ(parsed->settings().cache_dir, "~other/cache");
}

class ArgumentFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const auto path = directory_.path() / "arguments.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string error_of(const std::string& text) {
    const std::string path = write(text);
    const auto parsed = parse({path});
    EXPECT_FALSE(parsed.ok()) << text;
    if (parsed.ok()) return "";
    EXPECT_EQ(parsed.error().code, ExitCode::kUsage);
    const std::string& message = parsed.error().message;
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  }
  testing::TemporaryDirectory directory_;
};

TEST_F(ArgumentFile, IsReadAsTheFirstWordOrAfterConfig) {
  const std::string path = write(
      R"({"task_name": "mrpc", "learning_rate": 2e-5, "do_train": true, "max_steps": 10,
          "report_to": ["tensorboard"], "fp16": false, "hub_token": null,
          "warmup_steps": 5, "evaluation_strategy": "steps"})");
  for (const std::vector<std::string>& words : {std::vector<std::string>{path, "--max_steps=20"},
                                                {"--config", path, "--max_steps=20"},
                                                {"--config=" + path, "--max_steps", "20"}}) {
    const auto parsed = parse(words);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->settings().task_name, "mrpc");
    EXPECT_DOUBLE_EQ(parsed->settings().learning_rate, 2e-5);
    EXPECT_EQ(parsed->settings().max_steps, 20);
    EXPECT_EQ(parsed->settings().eval_strategy, "steps");
    EXPECT_TRUE(parsed->is_set("do_train"));
  }
}

TEST_F(ArgumentFile, RejectsOtherContentWithOneSentence) {
  EXPECT_EQ(error_of("{"), "found invalid JSON at byte 2, expected a JSON object of flags");
  EXPECT_EQ(error_of(R"({"seed": )" + std::string(200'000, '[')),
            "the JSON nests deeper than 64 levels");
  EXPECT_EQ(error_of(std::string("{}\0{}", 5)),
            "found a NUL byte, expected a JSON object of flags");
  EXPECT_EQ(error_of("[1]"), "found array, expected a JSON object of flags");
  EXPECT_EQ(error_of("{\"run_name\": \"caf\xE9\"}"),
            "found bytes that are not UTF-8, expected a JSON object of flags");
  EXPECT_EQ(error_of(R"({"max_steps": "10"})"),
            "max_steps: found \"10\", expected an integer of at least 1, or -1; write it without "
            "quotes");
  EXPECT_EQ(error_of(R"({"max_steps": 1.5})"),
            "max_steps: found 1.5, expected an integer of at least 1, or -1");
  EXPECT_EQ(error_of(R"({"bf16": "yes"})"),
            "bf16: found \"yes\", expected true or false; write it without quotes");
  EXPECT_EQ(error_of(R"({"bf16": "maybe"})"), "bf16: found \"maybe\", expected true or false");
  EXPECT_EQ(error_of(R"({"lerning_rate": 1})"),
            "--lerning_rate: unknown flag; did you mean --learning_rate?");
  EXPECT_EQ(error_of(R"({"fp16": true})"),
            "--fp16: not supported: use bf16, which needs no loss scaling");
  EXPECT_EQ(parse({directory_.path() / "none.json"}).error().code, ExitCode::kUsage);
}

TEST_F(ArgumentFile, MayBeADumpedTrainingArguments) {
  const nlohmann::json dumped = arguments_golden().at("dumped");
  const auto parsed = parse({write(dumped.dump())});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->settings().max_steps, 10);
  EXPECT_EQ(parsed->settings().logging_steps, 500);
  EXPECT_EQ(error_of(R"({"fsdp": ["full_shard"]})"),
            "--fsdp: not supported: each worker holds all weights");
  EXPECT_EQ(error_of(R"({"accelerator_config": {"split_batches": true}})"),
            "--accelerator_config: not supported: Tilewright does not use accelerate");
  EXPECT_EQ(error_of(R"({"seed": []})"),
            "seed: found [], expected an integer from 0 to 4294967295");
}

TEST_F(ArgumentFile, NeedsFullNames) {
  EXPECT_EQ(error_of(R"({"num_train": 2})"),
            "--num_train: unknown flag; did you mean --num_train_epochs?");
}

TEST_F(ArgumentFile, TakesABooleanUseAuthTokenForNoToken) {
  EXPECT_EQ(parse({write(R"({"use_auth_token": true})")})->settings().token, "");
  EXPECT_EQ(parse({write(R"({"use_auth_token": "hf_abc"})")})->settings().token, "hf_abc");
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
      {{"--save_strategy=never"},
       "--save_strategy: found never, expected one of no, steps, epoch, best"},
      {{"--fp16"}, "--fp16: not supported: use bf16, which needs no loss scaling"},
      {{"--push_to_hub", "yes"},
       "--push_to_hub: not supported: the trainer does not upload; run `huggingface-cli upload` on "
       "output_dir"},
      {{"--label_smoothing_factor", "1.5"},
       "--label_smoothing_factor: found 1.5, expected a number from 0 to 1"},
      {{"--ddp_backend=nccl"},
       "--ddp_backend: found nccl, expected one of ccl, gloo, mpi, shm, tcp"},
      {{"--optim=adafactor"},
       "--optim: found adafactor, expected one of adamw_torch, adamw_torch_fused, adamw_hf"},
      {{"--text_column_names=text"},
       "--text_column_names: a flag of run_classification.py, expected those of run_glue.py: the "
       "columns of a file are sentence1, sentence2 and label"},
      {{"--no_seed"}, "--no_seed: unknown flag; did you mean --seed?"},
      {{"--config"}, "--config: found no value, expected a JSON file of flags"},
      {{"--do_train", "arguments.json"},
       "--do_train: found arguments.json, expected true or false"},
      {{"--seed=1", "arguments.json"},
       "found the argument \"arguments.json\", expected --flag=value"},
      {{"--gemm_backend=mkl"}, "--gemm_backend: found mkl, expected one of native, onednn"},
      {{"--run_name", "caf\xE9"}, "--run_name: found caf\\xe9, expected UTF-8 text"},
      {{"--output_dir=\xFF"}, "--output_dir: found \\xff, expected UTF-8 text"},
      {{"--max_steps=9223372036854775807"},
       "--max_steps: found 9223372036854775807, expected an integer of at least 1, or -1, at most "
       "1000000000000000"},
      {{"--nominal_workers=1025"},
       "--nominal_workers: found 1025, expected an integer from 0 to 1024"},
      {{"--max_workers=1025"}, "--max_workers: found 1025, expected an integer from 0 to 1024"},
      {{"--max_steps=0"}, "--max_steps: found 0, expected an integer of at least 1, or -1"},
      {{"--logging_steps=1.5"},
       "--logging_steps: found 1.5, expected an integer of at least 1, or a fraction below 1 of "
       "all steps"},
      {{"--save_steps=-0.5"},
       "--save_steps: found -0.5, expected an integer, or a fraction below 1 of all steps"},
      {{"--max_seq_length=1000001"},
       "--max_seq_length: found 1000001, expected an integer from 4 to 1000000"},
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
