// Gives the worker every kind of bad input. It must print one message (file, line or field; what it
// found; what it expected), exit with the code of that kind and leave no files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/base/exit_codes.h"
#include "tests/integration/faults.h"
#include "tests/integration/inputs.h"
#include "tests/support/running_program.h"
#include "worker/runtime/available_memory.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using testing::Inputs;
using testing::RunningProgram;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers reserve terabytes of address space
#else
constexpr bool kSanitized = false;
#endif

struct BadInputCase {
  std::string name;
  ExitCode code;
  // Substrings of the message, in this order.
  std::vector<std::string> said;
  std::function<void(Inputs&)> corrupt = [](Inputs&) {};
  std::vector<std::string> flags = {};
  std::string isa = {};                 // TILEWRIGHT_ISA
  std::uint64_t address_space_kib = 0;  // `ulimit -v`
};

void PrintTo(const BadInputCase& row, std::ostream* out) { *out << row.name; }

// What a clone without Git LFS has in place of a large file.
const std::string kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db\n"
    "size 90868376\n";

nlohmann::json& pooler(nlohmann::json& header) { return header.at("pooler.dense.weight"); }

std::vector<BadInputCase> bad_input_cases() {
  return {
      {"MissingModelDirectory",
       ExitCode::kModel,
       {"no/such/folder: no such directory, expected a model directory or a name on the hub"},
       {},
       {"--model_name_or_path=no/such/folder"}},
      {"MissingConfig",
       ExitCode::kModel,
       {"model/config.json", "No such file"},
       [](Inputs& i) { fs::remove(i.model() / "config.json"); }},
      {"ConfigWithInvalidJson",
       ExitCode::kModel,
       {"model/config.json", "JSON"},
       [](Inputs& i) { i.write("model/config.json", "{\"model_type\": "); }},
      {"ConfigOfAnotherArchitecture",
       ExitCode::kModel,
       {"model/config.json", "model_type", "is \"roberta\"", "expected \"bert\""},
       [](Inputs& i) { i.set_config("model_type", "roberta"); }},
      {"ConfigWithAnotherActivation",
       ExitCode::kModel,
       {"model/config.json", "hidden_act", "is \"relu\"", "expected \"gelu\""},
       [](Inputs& i) { i.set_config("hidden_act", "relu"); }},
      {"ConfigWithAWrongType",
       ExitCode::kModel,
       {"model/config.json", "hidden_size", "is \"384\"", "expected an integer"},
       [](Inputs& i) { i.set_config("hidden_size", "384"); }},
      {"MissingVocabulary",
       ExitCode::kModel,
       {"model", "tokenizer.json", "expected"},
       [](Inputs& i) {
         fs::remove(i.model() / "tokenizer.json");
         fs::remove(i.model() / "vocab.txt");
       }},

      {"VocabularyThatIsAGitLfsPointer",
       ExitCode::kModel,
       {"model/tokenizer.json: is a Git LFS pointer, expected the file itself: run git lfs pull"},
       [](Inputs& i) { i.write("model/tokenizer.json", kLfsPointer); }},

      {"MissingWeights",
       ExitCode::kWeights,
       {"model: found none of the weight files, expected model.safetensors, "
        "model.safetensors.index.json, pytorch_model.bin or pytorch_model.bin.index.json"},
       [](Inputs& i) { fs::remove(i.model() / "model.safetensors"); }},
      {"WeightsOfAnotherFormat",
       ExitCode::kWeights,
       {"model/pytorch_model.bin", "begins with", "expected a file written by torch.save"},
       [](Inputs& i) {
         fs::rename(i.model() / "model.safetensors", i.model() / "pytorch_model.bin");
       }},
      {"WeightsThatAreAGitLfsPointer",
       ExitCode::kWeights,
       {"model/model.safetensors: is a Git LFS pointer, expected the file itself: run git lfs "
        "pull"},
       [](Inputs& i) { i.write("model/model.safetensors", kLfsPointer); }},
      {"WeightsThatCallACommand",
       ExitCode::kWeights,
       {"model/pytorch_model.bin: the pickle calls posix.system; expected only tensors"},
       [](Inputs& i) {
         fs::remove(i.model() / "model.safetensors");
         i.write("model/pytorch_model.bin",
                 testing::read_text(testing::source_dir() /
                                    "tests/golden/weights/tensors/malicious_zip.bin"));
       }},
      {"TruncatedWeights",
       ExitCode::kWeights,
       {"model/model.safetensors", "tensor", "past the end of the data of", "truncated"},
       [](Inputs& i) {
         i.write("model/model.safetensors",
                 testing::read_text(testing::model_dir() / "model.safetensors", 1 << 20));
       }},
      {"HeaderPastTheEnd",
       ExitCode::kWeights,
       {"model/model.safetensors", "header of 1000 bytes", "past the end of the file of 10 bytes"},
       [](Inputs& i) {
         i.write("model/model.safetensors", testing::safetensors_length(1000) + "{}");
       }},
      {"OverlappingTensors",
       ExitCode::kWeights,
       {"model/model.safetensors", "tensor", "overlaps tensor"},
       [](Inputs& i) {
         i.rewrite_weights([](nlohmann::json& header) {
           auto& bias = header.at("encoder.layer.0.output.dense.bias").at("data_offsets");
           bias[0] = bias[0].get<std::int64_t>() - 4;
           bias[1] = bias[1].get<std::int64_t>() - 4;
         });
       }},
      {"WeightsOfAWrongType",
       ExitCode::kWeights,
       {"model/model.safetensors", "\"pooler.dense.weight\"", "found dtype I32",
        "expected F32, F16, BF16 or F64"},
       [](Inputs& i) {
         i.rewrite_weights([](nlohmann::json& header) { pooler(header)["dtype"] = "I32"; });
       }},
      {"WeightsOfAWrongShape",
       ExitCode::kWeights,
       {"model/model.safetensors", "\"pooler.dense.weight\"", "found shape [192, 768]",
        "expected [384, 384]"},
       [](Inputs& i) {
         i.rewrite_weights([](nlohmann::json& header) { pooler(header)["shape"] = {192, 768}; });
       }},
      {"WeightsWithoutATensor",
       ExitCode::kWeights,
       {"model/model.safetensors", "has no tensor", "LayerNorm.weight",
        "expected one of shape [384]"},
       [](Inputs& i) {
         i.rewrite_weights([](nlohmann::json& header) {
           header["other"] = header.at("embeddings.LayerNorm.weight");
           header.erase("embeddings.LayerNorm.weight");
         });
       }},

      {"MissingDataFolder",
       ExitCode::kData,
       {"nowhere: no such directory, expected"},
       {},
       {"--data_dir=nowhere"}},
      {"MissingDataFile",
       ExitCode::kData,
       {"data/train.tsv", "No such file"},
       [](Inputs& i) { fs::remove(i.folder() / "data/train.tsv"); }},
      {"DataFileThatIsAGitLfsPointer",
       ExitCode::kData,
       {"data/train.tsv: is a Git LFS pointer, expected the file itself: run git lfs pull"},
       [](Inputs& i) { i.write("data/train.tsv", kLfsPointer); }},
      {"TsvWithAMissingColumn",
       ExitCode::kData,
       {"data/train.tsv: ", "column \"Quality\" is missing", "found \"Label\", "},
       [](Inputs& i) {
         i.write("data/train.tsv", "Label\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tA.\tB.\n");
       }},
      {"TsvWithALabelOutOfRange",
       ExitCode::kData,
       {"data/train.tsv:3: ", "label is \"2\"", "expected 0 (", " or 1 ("},
       [](Inputs& i) {
         i.write("data/train.tsv", Inputs::header() + "1\t1\t2\tA.\tB.\n2\t3\t4\tC.\tD.\n");
       }},
      {"TsvWithInvalidUtf8",
       ExitCode::kData,
       {"data/train.tsv:2: byte 8 of the line", "UTF-8"},
       [](Inputs& i) { i.write("data/train.tsv", Inputs::header() + "1\t1\t2\tA\xff.\tB.\n"); }},
      {"TsvWithoutRows",
       ExitCode::kData,
       {"data/train.tsv", "no rows, expected at least one"},
       [](Inputs& i) { i.write("data/train.tsv", Inputs::header()); }},
      {"TsvWithAShortRow",
       ExitCode::kData,
       {"data/train.tsv:2: ", "the line has 3 ", "expected 5"},
       [](Inputs& i) { i.write("data/train.tsv", Inputs::header() + "1\t1\t2\n"); }},
      {"BadDevFileBeforeTheTraining",
       ExitCode::kData,
       {"data/dev.tsv", "no rows"},
       [](Inputs& i) { i.write("data/dev.tsv", Inputs::header()); },
       {"--do_train=true", "--do_eval=true"}},

      {"OutputThatIsAFile",
       ExitCode::kOutput,
       {"out", "is a file, expected a directory"},
       [](Inputs& i) { i.write("out", "something"); }},
      {"OutputThatIsAFileBeforeTheModelIsRead",
       ExitCode::kOutput,
       {"out: is a file, expected a directory"},
       [](Inputs& i) {
         i.write("out", "something");
         fs::remove_all(i.model());
       }},
      {"OutputBelowAFile",
       ExitCode::kOutput,
       {"data/train.tsv: is a file, expected a directory"},
       [](Inputs& i) { fs::remove_all(i.model()); },
       {"--output_dir=data/train.tsv/out"}},
      {"OutputThatCannotBeCreated",
       ExitCode::kOutput,
       {"/proc/tilewright"},
       {},
       {"--output_dir=/proc/tilewright"}},
      {"OutputWithUnrelatedFiles",
       ExitCode::kOutput,
       {"out", "is not empty (it contains notes.txt)", "use an empty or new --output_dir",
        "--overwrite_output_dir"},
       [](Inputs& i) {
         fs::create_directory(i.output());
         i.write("out/notes.txt", "mine");
       }},

      {"ResumingFromAMissingFolder",
       ExitCode::kCheckpoint,
       {"--resume_from_checkpoint: nowhere: no such directory, expected a checkpoint of "
        "tilewright-worker such as out/checkpoint-500"},
       {},
       {"--resume_from_checkpoint=nowhere"}},
      {"ResumingFromADirectoryWithoutACheckpoint",
       ExitCode::kCheckpoint,
       {"--resume_from_checkpoint: data: has no checksums.json, expected a checkpoint of "
        "tilewright-worker such as out/checkpoint-500"},
       {},
       {"--resume_from_checkpoint=data"}},
      // Existing output is deleted only right before new output replaces it.
      {"ResumingFromAMissingFolderOverAnotherJob",
       ExitCode::kCheckpoint,
       {"--resume_from_checkpoint: nowhere: no such directory"},
       [](Inputs& i) {
         fs::create_directories(i.output() / "checkpoint-1");
         i.write("out/.tilewright-job.json", "{\"job_uid\": \"another\"}\n");
         i.write("out/checkpoint-1/checksums.json", "{}\n");
       },
       {"--resume_from_checkpoint=nowhere", "--overwrite_output_dir"}},

      // 64 Ki token positions x 30522 logits would not fit; MiniLM's weights do.
      {"NotEnoughMemoryForTheBatch",
       ExitCode::kMemory,
       {"not enough memory: this training needs about ", " MiB", "weights", "activations of ",
        "found ", " MiB available",
        "expected more, --gradient_checkpointing or a smaller --per_device_train_batch_size"},
       [](Inputs& i) {
         std::string rows = Inputs::header();
         for (int row = 0; row < 256; ++row) rows += "1\t1\t2\tA cat sat.\tThe cat sat.\n";
         i.write("data/train.tsv", rows);
       },
       {"--per_device_train_batch_size=256", "--pad_to_max_length"},
       "",
       2500 << 10},
      {"NotEnoughMemoryForTheModel",
       ExitCode::kMemory,
       {"not enough memory: this training needs about ", "found ",
        "expected more or a smaller model"},
       {},
       {},
       "",
       420 << 10},

      // Before downloads, the data and the first evaluation.
      {"MetricThatTheTaskDoesNotHave",
       ExitCode::kUsage,
       {"--metric_for_best_model: found bleu, expected one of loss, accuracy, f1, combined_score"},
       [](Inputs& i) { fs::remove_all(i.model()); },
       {"--metric_for_best_model=bleu", "--load_best_model_at_end", "--eval_strategy=epoch"}},
      {"VocabularyLargerThanTheModels",
       ExitCode::kModel,
       {"model/config.json: vocab_size is 100, expected more than ", "the id of a token in example",
        "tokenizer and model do not belong together"},
       [](Inputs& i) { i.set_config("vocab_size", 100); }},
      {"DataSetOfAnotherTask",
       ExitCode::kUsage,
       {"--dataset_name: found squad, expected a data set of the task mrpc"},
       {},
       {"--dataset_name=squad", "--data_dir="}},

      {"OneDnnWhereItHasNoKernels",
       ExitCode::kUnsupported,
       {"--gemm_backend=onednn: found bf16 on ref", "expected --gemm_backend=native"},
       {},
       {"--gemm_backend=onednn", "--bf16"},
       "ref"},
      {"UnknownInstructionSet",
       ExitCode::kUsage,
       {"TILEWRIGHT_ISA: found \"mmx\", expected one of ref, avx2"},
       {},
       {},
       "mmx"},
  };
}

class BadInput : public ::testing::TestWithParam<BadInputCase> {
 protected:
  void SetUp() override { ASSERT_EQ(testing::missing_model(), ""); }
};
INSTANTIATE_TEST_SUITE_P(Worker, BadInput, ::testing::ValuesIn(bad_input_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(BadInput, IsRejectedWithOneMessageAndNoLeftovers) {
  const BadInputCase& row = GetParam();
  if (row.address_space_kib > 0 && kSanitized) GTEST_SKIP() << "needs an address space limit";
  Inputs inputs;
  if (row.corrupt) row.corrupt(inputs);
  const bool output_was_file = fs::is_regular_file(inputs.output());
  const auto before = testing::content_of(inputs.folder());

  // A shell, because `ulimit` is a shell builtin.
  std::string script;
  if (!row.isa.empty()) script += "export TILEWRIGHT_ISA=" + row.isa + "; ";
  if (row.address_space_kib > 0) {
    script += "ulimit -v " + std::to_string(row.address_space_kib) + "; ";
  }
  std::vector<std::string> arguments = {"-c", script + "exec \"$0\" \"$@\"",
                                        testing::program("tilewright-worker")};
  for (const std::string& word : testing::train_command(row.flags)) arguments.push_back(word);
  RunningProgram worker("/bin/sh", arguments, inputs.folder());
  EXPECT_EQ(worker.wait(), static_cast<int>(row.code)) << worker.output();

  const std::string& said = worker.output();
  EXPECT_THAT(said, ::testing::StartsWith("tilewright-worker: "));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_TRUE(said.ends_with('\n')) << said;
  std::size_t at = 0;
  for (const std::string& part : row.said) {
    at = said.find(part, at);
    ASSERT_NE(at, std::string::npos) << "\"" << part << "\" is missing or out of order in\n"
                                     << said;
    at += part.size();
  }
  EXPECT_EQ(fs::is_regular_file(inputs.output()), output_was_file);
  EXPECT_EQ(testing::content_of(inputs.folder()), before) << "files remain";
}

// The training itself needs no file.
TEST(FileSizeLimit, IsReportedWithTheFileThatIsTooLarge) {
  ASSERT_EQ(testing::missing_model(), "");
  Inputs inputs;
  std::vector<std::string> arguments = {"-c", "ulimit -f 1024; exec \"$0\" \"$@\"",
                                        testing::program("tilewright-worker")};
  for (const std::string& word : testing::train_command({})) arguments.push_back(word);
  RunningProgram worker("/bin/sh", arguments, inputs.folder());
  EXPECT_EQ(worker.wait(), static_cast<int>(ExitCode::kOutput)) << worker.output();
  EXPECT_THAT(worker.output(), ::testing::HasSubstr(": File too large"));
  EXPECT_THAT(worker.output(), ::testing::HasSubstr("model.safetensors"));
  EXPECT_FALSE(fs::exists(inputs.output() / "model.safetensors"));
}

// The first number after `words` in `text`.
double number_after(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  if (at == std::string::npos) throw std::runtime_error("no \"" + words + "\" in\n" + text);
  return std::stod(text.substr(at + words.size()));
}

TEST(NotEnoughMemory, IsReportedForTwoProcessesWhenOnlyOneFits) {
  if (kSanitized) GTEST_SKIP() << "needs an address space limit";
  Inputs inputs;
  const auto command = [&](int examples) {
    std::string rows = Inputs::header();
    for (int row = 0; row < examples; ++row) rows += "1\t1\t2\tA cat sat.\tThe cat sat.\n";
    inputs.write("data/train.tsv", rows);
    return testing::train_command({"--max_seq_length=512", "--pad_to_max_length",
                                   "--per_device_train_batch_size=" + std::to_string(examples)});
  };
  // Memory per token, from the error of a process with a low memory limit.
  const std::string program = testing::program("tilewright-worker");
  std::vector<std::string> words = {"-c", "ulimit -v 614400; exec \"$0\" \"$@\"", program};
  for (const std::string& word : command(16)) words.push_back(word);
  RunningProgram probe("/bin/sh", words, inputs.folder());
  ASSERT_EQ(probe.wait(), static_cast<int>(ExitCode::kMemory)) << probe.output();
  const double total = number_after(probe.output(), "needs about ");
  const double activations = number_after(probe.output(), "activations of 8192 tokens ");
  const auto available = static_cast<double>(runtime::available_memory() >> 20);

  // 70% of the available memory. The fault kills the process at the start of the first step, before
  // it touches this memory.
  const double activation_budget = 0.7 * available - (total - activations);
  const int examples = static_cast<int>(activation_budget / activations * 16);
  const testing::ScopedFault fault("step.begin");
  words = command(examples);
  RunningProgram alone(program, words, inputs.folder());
  EXPECT_EQ(alone.wait(), 128 + SIGKILL) << "one process fits: " << alone.output();
  fs::remove_all(inputs.output());

  std::vector<std::string> agent = {"agent", "--nproc_per_node=2", "--max_restarts=0", "--"};
  agent.insert(agent.end(), words.begin(), words.end());
  RunningProgram both(program, agent, inputs.folder());
  EXPECT_EQ(both.wait(), static_cast<int>(ExitCode::kMemory)) << both.output();
  EXPECT_THAT(
      both.output(),
      ::testing::ContainsRegex("not enough memory: each of 2 processes that share it needs about "
                               "[0-9]+ MiB .*, found [0-9]+ MiB available to them, expected more, "
                               "fewer processes, --gradient_checkpointing or a smaller "
                               "--per_device_train_batch_size"));
  EXPECT_FALSE(fs::exists(inputs.output())) << "files remain";
}

}  // namespace
}  // namespace tilewright
