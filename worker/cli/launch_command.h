// The commands torchrun, python, bash and sh, under whose names the worker image starts this
// program.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tilewright::cli {

// The command line of tilewright-worker that does the work of `words`, which begin with the name of
// the program: `train ...`; or `agent ... -- train ...` where torchrun starts several processes or
// the environment names no rendezvous. Logs one line about it, changes into the directory of `cd`
// and sets the variables of `export`. Throws Failure: kCommandNotFound or kUsage.
std::vector<std::string> worker_command(const std::vector<std::string>& words);

// Whether a command begins with a Python script: the name of this program stands in place of
// python's or torchrun's.
bool begins_with_script(std::span<const std::string> words);
// `train ...` for a script and its arguments. Throws Failure(kCommandNotFound) for a script other
// than run_qa.py and run_glue.py.
std::vector<std::string> train_command(std::span<const std::string> words);

}  // namespace tilewright::cli
