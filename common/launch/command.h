// Interprets the commands with which PyTorchJobs of the CPU guides start a training:
//   torchrun [flags] .../run_qa.py ARGUMENT...
//   python[3] -m torch.distributed.run [flags] .../run_glue.py ARGUMENT...
//   python[3] .../run_glue.py ARGUMENT...
//   /bin/bash -c "cd DIRECTORY; pip install -r FILE; torchrun ... run_qa.py ... $(date +FORMAT);"
// It is no shell: exactly these shapes, everything else is an error. The worker image runs them
// natively; `tilewright convert` turns them into a TrainJob.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/launch/dates.h"
#include "common/launch/torchrun.h"

namespace tilewright::launch {

struct Command {
  std::optional<TorchrunOptions> torchrun;  // nullopt: python alone starts the script
  std::vector<std::string> torchrun_flags;  // its words, as written, without PET_* variables
  std::string script;                       // as written: /workspace/.../run_qa.py
  bool question_answering = false;          // run_qa.py; otherwise run_glue.py
  // The --task_name that run_qa.py implies: with files of the user's own and without --dataset_name
  // it trains question answering, whatever the files hold. Empty: the arguments decide.
  std::string task;
  // The arguments of the script. In a command of bash, quotes and backslashes are resolved and
  // $NAME and ${NAME} are replaced; $(date +FORMAT) remains, see dates.h, and so does a value that
  // only the pod knows, see unknown_value.h.
  std::vector<std::string> arguments;
  std::string directory;  // of `cd`; empty: the current one
  // Variables that the commands set for the script, by `export` or in front of it. Dates and values
  // that only the pod knows remain.
  std::map<std::string, std::string> variables;
  std::vector<std::string> skipped;  // commands that a native training does not need: pip install
};

// Whether a program of this name, with or without a path, starts such a command: torchrun, python,
// python3, bash or sh.
bool starts_command(std::string_view program);

// `words`: argv of the process; words[0] is the program as it was called, with or without a path.
// Errors: kCommandNotFound (127), with the part that has no known shape and what was expected;
// kUsage for a flag of torchrun or a format of date(1). `environment` may return unknown_value().
Result<Command> interpret(std::span<const std::string> words, const GetVariable& environment);

// The arguments of `tilewright-worker train`: those of the script, and --task_name if the script
// implies one.
std::vector<std::string> train_arguments(const Command& command);

// "torchrun .../run_qa.py: runs natively as tilewright-worker train; skipped: pip install -r ..."
std::string describe(const Command& command);

}  // namespace tilewright::launch
