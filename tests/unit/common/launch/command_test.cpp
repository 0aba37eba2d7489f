#include "common/launch/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/launch/unknown_value.h"

namespace tilewright::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

std::string nothing_set(const char*) { return ""; }

Result<Command> read(const std::vector<std::string>& words) {
  return interpret(words, nothing_set);
}

Command command_of(const std::vector<std::string>& words) { return read(words).or_throw(); }

Command shell(const std::string& text) { return command_of({"/bin/bash", "-c", text}); }

std::string refusal(const std::vector<std::string>& words) {
  const auto command = read(words);
  if (command.ok()) return "";
  EXPECT_EQ(command.error().code, ExitCode::kCommandNotFound);
  return command.error().message;
}

std::string shell_refusal(const std::string& text) { return refusal({"bash", "-c", text}); }

TEST(Interpret, ReadsPythonWithAScript) {
  for (const char* program : {"python", "python3", "/usr/bin/python3", "/usr/local/bin/python"}) {
    const Command command = command_of({program, "run_qa.py", "--bf16", "--output_dir", "a b"});
    EXPECT_FALSE(command.torchrun.has_value());
    EXPECT_EQ(command.script, "run_qa.py");
    EXPECT_TRUE(command.question_answering);
    EXPECT_THAT(command.arguments, ElementsAre("--bf16", "--output_dir", "a b"));
    EXPECT_THAT(command.skipped, IsEmpty());
  }
  EXPECT_FALSE(command_of({"python3", "-u", "/workspace/x/run_glue.py"}).question_answering);
}

// As run_qa.py: question answering, whatever the files hold.
TEST(Interpret, RunQaWithFilesOfOnesOwnImpliesItsTask) {
  const auto task_of = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"python", "run_qa.py"});
    return command_of(words).task;
  };
  EXPECT_EQ(task_of({"--train_file", "train.json", "--do_train"}), "squad");
  EXPECT_EQ(task_of({"--validation-file=dev.json"}), "squad");
  EXPECT_EQ(task_of({"--test_file=t.json", "--version_2_with_negative"}), "squad_v2");
  EXPECT_EQ(task_of({"--test_file=t.json", "--version_2_with_negative", "False"}), "squad");
  EXPECT_EQ(task_of({"--train_file=t.json", "--dataset_name=squad_v2"}), "");
  EXPECT_EQ(task_of({"--train_file=t.json", "--task_name=squad"}), "");
  EXPECT_EQ(task_of({"--do_train"}), "") << "run_qa.py needs a data set or files";
  EXPECT_EQ(task_of({"flags.json", "--train_file=t.json"}), "") << "the file may name the task";
  EXPECT_EQ(task_of({"--train_file=t.json", "--config", "flags.json"}), "");
  EXPECT_EQ(command_of({"python", "run_glue.py", "--train_file=t.json"}).task, "");

  const Command command = command_of({"torchrun", "run_qa.py", "--train_file=t.json", "--bf16"});
  EXPECT_THAT(command.arguments, ElementsAre("--train_file=t.json", "--bf16"));
  EXPECT_THAT(train_arguments(command),
              ElementsAre("--train_file=t.json", "--bf16", "--task_name=squad"));
  EXPECT_EQ(describe(command),
            "torchrun run_qa.py: runs natively as tilewright-worker train --task_name=squad");
  EXPECT_THAT(train_arguments(command_of({"python", "run_glue.py", "--bf16"})),
              ElementsAre("--bf16"));
}

TEST(Interpret, ReadsTorchrun) {
  for (const std::vector<std::string>& program :
       {std::vector<std::string>{"torchrun"},
        {"/usr/local/bin/torchrun"},
        {"python", "-m", "torch.distributed.run"},
        {"python3", "-u", "-m", "torch.distributed.run"}}) {
    std::vector<std::string> words = program;
    for (const char* word : {"--nproc-per-node", "2", "--standalone", "/workspace/run_glue.py",
                             "--nproc_per_node", "8", "--bf16"}) {
      words.emplace_back(word);
    }
    const Command command = command_of(words);
    ASSERT_TRUE(command.torchrun.has_value());
    EXPECT_EQ(command.torchrun->nproc_per_node, "2");
    EXPECT_TRUE(command.torchrun->standalone);
    EXPECT_THAT(command.torchrun_flags, ElementsAre("--nproc-per-node", "2", "--standalone"));
    EXPECT_EQ(command.script, "/workspace/run_glue.py");
    EXPECT_THAT(command.arguments, ElementsAre("--nproc_per_node", "8", "--bf16"));
  }
}

// The guides' first manifest.
TEST(Interpret, ReadsTorchrunWithoutFlags) {
  const Command command = command_of(
      {"torchrun", "/workspace/transformers/examples/pytorch/question-answering/run_qa.py",
       "--model_name_or_path", "google-bert/bert-large-uncased", "--bf16"});
  EXPECT_TRUE(command.torchrun.has_value());
  EXPECT_THAT(command.torchrun_flags, IsEmpty());
  EXPECT_TRUE(command.question_answering);
  EXPECT_EQ(describe(command),
            "torchrun /workspace/transformers/examples/pytorch/question-answering/run_qa.py: runs "
            "natively as tilewright-worker train");
}

TEST(Interpret, PassesVariablesToTorchrun) {
  const Command command = shell("export PET_NPROC_PER_NODE=4; torchrun run_qa.py");
  EXPECT_EQ(command.torchrun->nproc_per_node, "4");
  EXPECT_THAT(command.torchrun_flags, IsEmpty());
}

TEST(Interpret, RefusesModulesAndProgramsOfTorchrun) {
  EXPECT_THAT(refusal({"torchrun", "-m", "package.module"}), HasSubstr("--module of torchrun"));
  EXPECT_THAT(refusal({"torchrun", "--no-python", "run_qa.py"}),
              HasSubstr("--no-python of torchrun"));
  EXPECT_THAT(refusal({"torchrun", "--nproc_per_node=2", "train.py"}),
              HasSubstr("found \"train.py\" as the script of torchrun"));
}

TEST(Interpret, TakesTheArgumentsOfAnExecAsTheyAre) {
  EXPECT_THAT(command_of({"python", "run_qa.py", "$A", "'b'", "\\", "$(date +%Y)"}).arguments,
              ElementsAre("$A", "'b'", "\\", "$(date +%Y)"));
}

// The guides' second manifest, as YAML folds it.
TEST(Interpret, ReadsTheCommandOfAGuide) {
  const Command command = shell(
      "cd /workspace/transformers; pip install -r "
      "/workspace/transformers/examples/pytorch/question-answering/requirements.txt; python "
      "/workspace/transformers/examples/pytorch/question-answering/run_qa.py \\\n  "
      "--model_name_or_path distilbert/distilbert-base-uncased \\\n  --output_dir "
      "/tmp/pvc-mount/output_$(date +%Y%m%d_%H%M%S) \\\n  --bf16;");
  EXPECT_EQ(command.directory, "/workspace/transformers");
  EXPECT_EQ(command.script,
            "/workspace/transformers/examples/pytorch/question-answering/run_qa.py");
  EXPECT_THAT(
      command.arguments,
      ElementsAre("--model_name_or_path", "distilbert/distilbert-base-uncased", "--output_dir",
                  "/tmp/pvc-mount/output_$(date +%Y%m%d_%H%M%S)", "--bf16"));
  EXPECT_THAT(command.skipped, ElementsAre("pip install -r /workspace/transformers/examples/"
                                           "pytorch/question-answering/requirements.txt"));
  EXPECT_EQ(describe(command),
            "python /workspace/transformers/examples/pytorch/question-answering/run_qa.py: runs "
            "natively as tilewright-worker train; skipped: pip install -r /workspace/transformers/"
            "examples/pytorch/question-answering/requirements.txt");
}

TEST(Interpret, AppliesVariables) {
  const Command command = shell(
      "export MASTER_ADDR=node1 CCL_WORKER_COUNT=2; N=4; export N; M=5; LD_PRELOAD=/lib/a.so "
      "OMP_NUM_THREADS=$N python run_qa.py --a=$M ${MASTER_ADDR}");
  EXPECT_THAT(
      command.variables,
      ElementsAre(Pair("CCL_WORKER_COUNT", "2"), Pair("LD_PRELOAD", "/lib/a.so"),
                  Pair("MASTER_ADDR", "node1"), Pair("N", "4"), Pair("OMP_NUM_THREADS", "4")));
  EXPECT_THAT(command.arguments, ElementsAre("--a=5", "node1"));
}

TEST(Interpret, ReadsVariablesOfTheEnvironment) {
  const std::map<std::string, std::string> set = {{"OUT", "/tmp/a b"}, {"FLAGS", " --x  --y "}};
  const std::vector<std::string> words = {
      "sh", "-ec", "python run_glue.py $FLAGS \"$OUT\" $OUT $NONE \"$NONE\""};
  const Command command = interpret(words, [&](const char* name) {
                            const auto found = set.find(name);
                            return found == set.end() ? std::string() : found->second;
                          }).or_throw();
  EXPECT_THAT(command.arguments, ElementsAre("--x", "--y", "/tmp/a b", "/tmp/a", "b", ""));
}

TEST(Interpret, KeepsValuesThatOnlyThePodKnows) {
  const auto interpreted = [](const std::string& script) {
    const std::vector<std::string> words = {"bash", "-c", script};
    return interpret(words, [](const char* name) { return unknown_value(name); });
  };
  const Command command =
      interpreted(
          "cd /d/$DIR; pip install $PACKAGE; export A=$B; torchrun --nnodes=$WORLD_SIZE "
          "--node-rank $RANK run_qa.py --output_dir \"/o/${JOB}\"/$A --seed=$SEED")
          .or_throw();
  EXPECT_THAT(command.arguments,
              ElementsAre("--output_dir", "/o/" + unknown_value("JOB") + "/" + unknown_value("B"),
                          "--seed=" + unknown_value("SEED")));
  EXPECT_EQ(command.torchrun->nnodes, unknown_value("WORLD_SIZE"));
  EXPECT_EQ(command.torchrun->node_rank, unknown_value("RANK"));
  EXPECT_EQ(command.torchrun->max_restarts, std::nullopt) << "PET_MAX_RESTARTS counts as not set";
  EXPECT_EQ(command.directory, "/d/" + unknown_value("DIR"));
  EXPECT_THAT(command.variables, ElementsAre(Pair("A", unknown_value("B"))));
  EXPECT_THAT(command.skipped, ElementsAre("pip install $PACKAGE"));
  EXPECT_EQ(with_references(command.arguments[1]), "/o/$JOB/$B");
  EXPECT_EQ(unknown_variable(command.arguments[1]), "JOB");
  EXPECT_EQ(unknown_variable("/o/$JOB"), "");

  const auto message = [&](const std::string& script) {
    return interpreted(script).error().message;
  };
  EXPECT_EQ(
      message("python run_qa.py $(date +$FORMAT)"),
      "bash -c: found $FORMAT, whose value only the pod knows, expected a plain value in env");
  EXPECT_THAT(message("$PROGRAM run_qa.py"), HasSubstr("found the command \"$PROGRAM run_qa.py\""));
  EXPECT_THAT(message("torchrun $SCRIPT"), HasSubstr("found \"$SCRIPT\" as the script"));
  EXPECT_THAT(message("python -$FLAG run_qa.py"),
              HasSubstr("found the option \"-$FLAG\" of python"));
  EXPECT_THAT(message("python -m $MODULE run_qa.py"),
              HasSubstr("found python -m $MODULE, expected"));
  EXPECT_THAT(message("export $NAME; python run_qa.py"), HasSubstr("found \"export $NAME\""));
  EXPECT_THAT(
      message("python run_qa.py $(date +$RANK)"),
      HasSubstr("found $RANK, whose value only the pod knows, expected a plain value in the "
                "command"));
}

TEST(Interpret, AnAssignmentExportsAVariableThatIsKnownToBeSet) {
  const auto variables_of = [](const std::string& value) {
    const std::vector<std::string> words = {"bash", "-c", "A=1; python run_qa.py"};
    return interpret(words,
                     [&](const char* name) { return std::string(*name == 'A' ? value : ""); })
        .or_throw()
        .variables;
  };
  EXPECT_THAT(variables_of("0"), ElementsAre(Pair("A", "1")));
  EXPECT_THAT(variables_of(""), IsEmpty());
  EXPECT_THAT(variables_of(unknown_value("A")), IsEmpty());
}

TEST(Interpret, AcceptsTheKubeletsUnknownValuesInScripts) {
  const Command command = shell("torchrun --node_rank=" + unknown_value("RANK") + " run_qa.py '" +
                                unknown_value("A") + "' \"/o/" + unknown_value("B") + "\"");
  EXPECT_EQ(command.torchrun->node_rank, unknown_value("RANK"));
  EXPECT_THAT(command.arguments, ElementsAre(unknown_value("A"), "/o/" + unknown_value("B")));
}

TEST(Interpret, KeepsDatesForTheJob) {
  const Command command = shell(
      "OUT=/tmp/out_$(date +%F); export RUN=\"$(date '+%H %M')\"; python run_qa.py $OUT/x \"$RUN\" "
      "'$(echo)'");
  EXPECT_THAT(command.arguments,
              ElementsAre("/tmp/out_$(date +%F)/x", "$(date \"+%H %M\")", "$(echo)"));
  EXPECT_THAT(command.variables, ElementsAre(Pair("RUN", "$(date \"+%H %M\")")));
}

TEST(Interpret, AppliesDirectories) {
  EXPECT_EQ(shell("cd a && cd b; python run_qa.py").directory, "a/b");
  EXPECT_EQ(shell("cd a; cd /b; python run_qa.py").directory, "/b");
  EXPECT_EQ(shell("python run_qa.py").directory, "");
}

TEST(Interpret, ListsWhatItSkips) {
  const Command command = shell(
      "pip3 install 'transformers>=4.40' datasets\nsource /opt/intel/env/setvars.sh\n"
      ". ./setvars.sh && lscpu\npython3 -m pip install torch\npython run_qa.py");
  EXPECT_THAT(command.skipped, ElementsAre("pip3 install transformers>=4.40 datasets",
                                           "source /opt/intel/env/setvars.sh", ". ./setvars.sh",
                                           "lscpu", "python3 -m pip install torch"));
}

TEST(Interpret, AcceptsOptionsOfTheShell) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"bash", "-lc"},
                                                {"/bin/sh", "-c"},
                                                {"sh", "-e", "-c"},
                                                {"/usr/bin/bash", "-exc"}}) {
    std::vector<std::string> with = words;
    with.insert(with.end(), {"python run_qa.py", "name"});
    EXPECT_TRUE(read(with).ok());
  }
}

TEST(Interpret, RefusesOtherPrograms) {
  EXPECT_EQ(refusal({"python", "/app/train.py"}),
            "found \"/app/train.py\" as the script of python, expected run_qa.py or run_glue.py, "
            "which run natively; Tilewright runs no Python");
  EXPECT_EQ(refusal({"python"}),
            "found python without a script, expected the path of run_qa.py or run_glue.py");
  EXPECT_EQ(refusal({"python", "-c", "print(1)"}),
            "found the option \"-c\" of python, expected the path of run_qa.py or run_glue.py; "
            "Tilewright runs no Python");
  EXPECT_EQ(refusal({"python", "-m", "http.server"}),
            "found python -m http.server, expected the module torch.distributed.run; Tilewright "
            "runs no Python");
  EXPECT_EQ(refusal({"accelerate", "launch"}),
            "found the command \"accelerate\", expected torchrun, python, python3, bash or sh");
  EXPECT_EQ(refusal({"bash"}),
            "found bash without a command, expected bash -c \"torchrun .../run_qa.py ...\"; "
            "Tilewright runs no shell");
  EXPECT_EQ(refusal({"/bin/sh", "script.sh"}),
            "found sh without a command, expected sh -c \"torchrun .../run_qa.py ...\"; Tilewright "
            "runs no shell");
  EXPECT_EQ(refusal({"bash", "-i"}),
            "found the option \"-i\" of bash, expected -c; Tilewright runs no shell");
  EXPECT_FALSE(refusal({}).empty());
}

TEST(Interpret, RefusesTheRestOfTheShell) {
  const std::map<std::string, std::string> found = {
      {"python run_qa.py | tee log", "\"|\", a pipe"},
      {"python run_qa.py > log", "\">\", a redirection"},
      {"python run_qa.py 2>&1", "\">\", a redirection"},
      {"python run_qa.py < in", "\"<\", a redirection"},
      {"python run_qa.py &", "\"&\", which starts a command in the background"},
      {"python run_qa.py || exit 1", "\"|\", a pipe"},
      {"python run_qa.py `date`", "\"`\", a command substitution"},
      {"python run_qa.py \"`date`\"", "\"`\", a command substitution"},
      {"python run_qa.py $(ls)", "\"$(ls)\""},
      {"python run_qa.py $((1+1))", "\"$((1+1)\""},
      {"python run_qa.py ${A:-1}", "\"${A\" without a name and \"}\""},
      {"python run_qa.py $1", "\"$1\" without a name"},
      {"python run_qa.py $'a'", "\"$'\" without a name"},
      {"python run_qa.py a$", "\"$\" without a name"},
      {"python run_qa.py *.txt", "'*' without quotes"},
      {"python run_qa.py {a,b}", "'{' without quotes"},
      {"python run_qa.py ~user", "\"~\" before a name"},
      {"python run_qa.py 'a", "a ' that is not closed"},
      {"python run_qa.py \"a", "a \" that is not closed"},
      {"python run_qa.py $PWD", "$PWD, a variable of the shell"},
      {"IFS=, python run_qa.py", "an assignment to IFS"},
      {"(python run_qa.py)", "\"(\""},
      {"for i in 1; do python run_qa.py; done", "the command \"for i in 1\""},
      {"; python run_qa.py", "\";\" without a command before it"},
      {"python run_qa.py;;", "\";;\""},
      {"cd a &&", "nothing after \"&&\""},
      {"cd a", "no command that starts a training"},
      {"", "no command that starts a training"},
      {"cd -; python run_qa.py", "\"cd -\""},
      {"source activate x; python run_qa.py", "the command \"source activate x\""},
      {"pip uninstall x; python run_qa.py", "the command \"pip uninstall x\""},
      {"python run_qa.py; python run_qa.py", "another command after the one that starts"},
      {"python run_qa.py '$(date)'", "\"$(date)\" in single quotes"},
      {"python run_qa.py $(date)", "without quotes, which a shell splits"},
      {"D=$(date); python run_qa.py $D", "in a variable without quotes"},
      {"A='*'; python run_qa.py $A", "'*' in the value of a variable without quotes"},
      {"export 1=2; python run_qa.py", "\"export 1=2\""},
      {"export -n A; python run_qa.py", "\"export -n\""},
      {"python run_qa.py ~", "\"~\" or $HOME without a value"},
      {std::string("python run_qa.py a\0b", 20), "a control character"},
      {"python run_qa.py a\x01", "a control character"},
  };
  for (const auto& [text, part] : found) {
    const std::string message = shell_refusal(text);
    EXPECT_THAT(message, ::testing::AllOf(StartsWith("bash -c: found "), HasSubstr(part))) << text;
    EXPECT_THAT(message, HasSubstr(", expected ")) << text;
  }
}

TEST(Interpret, BoundsWhatVariablesExpandTo) {
  std::string text = "A=xxxxxxxxxxxxxxxx; ";
  for (int i = 0; i < 40; ++i) text += "A=$A$A; ";
  EXPECT_THAT(shell_refusal(text + "python run_qa.py $A"), HasSubstr("expand to more than"));
}

TEST(Interpret, RefusesAFormatThatDateDoesNotHave) {
  const auto command = read({"bash", "-c", "python run_qa.py \"$(date +%Q)\""});
  ASSERT_FALSE(command.ok());
  EXPECT_EQ(command.error().code, ExitCode::kUsage);
}

TEST(StartsCommand, KnowsTheNames) {
  for (const char* name : {"torchrun", "/usr/bin/torchrun", "python", "python3", "/bin/bash", "sh"})
    EXPECT_TRUE(starts_command(name)) << name;
  for (const char* name : {"tilewright-worker", "", "python3.11", "/bin/", "zsh"})
    EXPECT_FALSE(starts_command(name)) << name;
}

}  // namespace
}  // namespace tilewright::launch
