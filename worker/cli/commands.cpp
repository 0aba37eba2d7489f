#include "worker/cli/commands.h"

#include <cstdio>
#include <exception>
#include <span>
#include <string_view>

#include "common/base/commit.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/version.h"
#include "common/cli/command_line.h"
#include "common/launch/command.h"
#include "worker/cli/launch_command.h"

namespace tilewright::cli {

void report_failure(const Failure& failure) {
  std::fprintf(stderr, "tilewright-worker: %s\n", printable(failure.what()).c_str());
}

int run_worker(int argc, char** argv) {
  CLI::App app("Fine-tunes BERT-family models on this machine's CPU, alone or with other workers.",
               "tilewright-worker");
  app.set_version_flag("--version", fmt::format("tilewright-worker {} ({})", kVersion, kCommit));
  app.require_subcommand(1);
  int exit_code = 0;
  add_train_commands(app, exit_code);
  add_agent_command(app);
  add_bench_command(app, exit_code);
  add_doctor_command(app, exit_code);
  try {
    std::vector<std::string> words(argv, argv + argc);
    if (!words.empty() && launch::starts_command(words.front())) words = worker_command(words);
    if (!words.empty() && begins_with_script(std::span(words).subspan(1))) {
      const std::vector<std::string> train = train_command(std::span(words).subspan(1));
      words.resize(1);
      words.insert(words.end(), train.begin(), train.end());
    }
    if (words.size() > 1 && words[1] == "agent") {
      return run_agent_command({words.begin() + 2, words.end()});
    }
    std::vector<const char*> pointers;
    pointers.reserve(words.size());
    for (const std::string& word : words) pointers.push_back(word.c_str());
    return parse_command_line(app, static_cast<int>(pointers.size()), pointers.data())
        .value_or(exit_code);
  } catch (const Failure& failure) {
    report_failure(failure);
    return static_cast<int>(failure.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tilewright-worker: out of memory\n");
    return static_cast<int>(ExitCode::kMemory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewright-worker: internal error: %s\n",
                 printable(error.what()).c_str());
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace tilewright::cli
