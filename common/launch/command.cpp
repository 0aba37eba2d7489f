#include "common/launch/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "common/base/printable.h"
#include "common/contract/tasks.h"
#include "common/contract/training_checks.h"
#include "common/contract/training_flags.h"
#include "common/launch/shell.h"
#include "common/launch/unknown_value.h"

namespace tilewright::launch {
namespace {

constexpr std::array<std::string_view, 2> kPythons = {"python", "python3"};
constexpr std::array<std::string_view, 2> kShells = {"bash", "sh"};
constexpr std::string_view kTorchrun = "torchrun";
constexpr std::array<std::string_view, 2> kTorchrunModules = {"torch.distributed.run",
                                                              "torch.distributed.launch"};
constexpr std::string_view kQuestionAnswering = "run_qa.py";
constexpr std::string_view kClassification = "run_glue.py";
constexpr std::string_view kShellOptions = "celx";
// Variables that bash itself sets or whose value changes how it reads a command.
constexpr std::array<std::string_view, 28> kShellVariables = {
    "BASHOPTS",     "BASHPID",       "BASH_ARGC", "BASH_ARGV",    "BASH_COMMAND",
    "BASH_VERSION", "BASH_VERSINFO", "DIRSTACK",  "EPOCHSECONDS", "EPOCHREALTIME",
    "EUID",         "FUNCNAME",      "GROUPS",    "HOSTTYPE",     "IFS",
    "LINENO",       "MACHTYPE",      "OLDPWD",    "OPTIND",       "OSTYPE",
    "PIPESTATUS",   "PPID",          "PWD",       "RANDOM",       "SECONDS",
    "SHELLOPTS",    "SHLVL",         "UID"};

[[noreturn]] void refuse(std::string_view found, std::string_view expected) {
  throw Failure(ExitCode::kCommandNotFound, fmt::format("found {}, expected {}", found, expected));
}

std::string quoted_words(std::string_view text) { return quoted_excerpt(with_references(text)); }

std::string_view basename(std::string_view path) { return path.substr(path.rfind('/') + 1); }

template <typename Names>
bool is_one_of(std::string_view name, const Names& names) {
  return std::ranges::find(names, name) != std::end(names);
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && !(name.front() >= '0' && name.front() <= '9') &&
         std::ranges::all_of(name, [](char c) {
           return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                  (c >= 'a' && c <= 'z');
         });
}

// See Command::task. A file of arguments may name the task, so the worker decides then.
std::string implied_task(const std::vector<std::string>& arguments) {
  bool own_files = false, negative = false;
  bool first = true;
  for (const FlagArgument& argument : split_command_line(arguments)) {
    const bool file = first && argument.name.empty() && argument.value.ends_with(".json");
    first = false;
    if (file || argument.name == kConfigFlag) return "";
    if (argument.flag == nullptr || !argument.has_value || argument.value.empty()) continue;
    const std::string_view name = argument.flag->name;
    if (name == "task_name" || name == "dataset_name") return "";
    if (is_one_of(name, kOwnFileFlags)) own_files = true;
    if (name == "version_2_with_negative") {
      const Result<std::string> value = normalize_flag_value(*argument.flag, argument.value);
      negative = value.ok() && *value == "true";
    }
  }
  return own_files ? std::string(question_answering_task(negative)) : "";
}

// Fills in the script and its arguments; `words` begins with the script.
void set_script(Command& command, std::vector<std::string> words, std::string_view program) {
  if (words.empty()) {
    refuse(fmt::format("{} without a script", program), "the path of run_qa.py or run_glue.py");
  }
  command.script = words.front();
  const std::string_view name = basename(command.script);
  if (name != kQuestionAnswering && name != kClassification) {
    refuse(fmt::format("{} as the script of {}", quoted_words(command.script), program),
           "run_qa.py or run_glue.py, which run natively; Tilewright runs no Python");
  }
  command.question_answering = name == kQuestionAnswering;
  words.erase(words.begin());
  command.arguments = std::move(words);
  if (command.question_answering) command.task = implied_task(command.arguments);
}

void set_torchrun(Command& command, std::vector<std::string> words, std::string_view program,
                  const GetVariable& environment) {
  command.torchrun_flags = words;
  command.torchrun = take_torchrun_options(words, environment, {}, true).or_throw();
  command.torchrun_flags.resize(command.torchrun_flags.size() - words.size());
  if (command.torchrun->module || command.torchrun->no_python) {
    refuse(fmt::format("{} of {}", command.torchrun->module ? "--module" : "--no-python", program),
           "the path of run_qa.py or run_glue.py, which run natively; Tilewright runs no Python");
  }
  set_script(command, std::move(words), program);
}

// python's options before the script or module.
void set_python(Command& command, std::vector<std::string> words, std::string_view program,
                const GetVariable& environment) {
  if (!words.empty() && words.front() == "-u") words.erase(words.begin());
  if (!words.empty() && words.front() == "-m") {
    if (words.size() < 2 || !is_one_of(words[1], kTorchrunModules)) {
      refuse(fmt::format("{} -m {}", program,
                         words.size() < 2 ? "" : excerpt(with_references(words[1]))),
             "the module torch.distributed.run; Tilewright runs no Python");
    }
    const std::string module = fmt::format("{} -m {}", program, words[1]);
    words.erase(words.begin(), words.begin() + 2);
    return set_torchrun(command, std::move(words), module, environment);
  }
  if (!words.empty() && words.front().starts_with('-')) {
    refuse(fmt::format("the option {} of {}", quoted_words(words.front()), program),
           "the path of run_qa.py or run_glue.py; Tilewright runs no Python");
  }
  set_script(command, std::move(words), program);
}

bool starts_training(std::string_view program) {
  return program == kTorchrun || is_one_of(program, kPythons);
}

// A command that starts the training. `words` begins with the program.
void set_training(Command& command, std::vector<std::string> words,
                  const GetVariable& environment) {
  const std::string program(basename(words.front()));
  words.erase(words.begin());
  if (program == kTorchrun) {
    set_torchrun(command, std::move(words), program, environment);
  } else {
    set_python(command, std::move(words), program, environment);
  }
}

// Dates as expand_dates() reads them.
std::string with_dates(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == kDateBegin) {
      result += "$(";
    } else if (c == kDateEnd) {
      result += ')';
    } else {
      result += c;
    }
  }
  return result;
}

bool has_date(std::string_view text) { return text.find(kDateBegin) != std::string_view::npos; }

std::string joined(const std::vector<std::string>& words) {
  return with_references(with_dates(fmt::format("{}", fmt::join(words, " "))));
}

// Follows the commands of a script up to the one that starts the training.
class Script {
 public:
  explicit Script(const GetVariable& environment)
      : environment_(environment),
        expansion_([this](const std::string& name) { return value_of(name); }) {}

  Command run(std::string_view text) {
    for (const ShellCommand& command : parse_shell(text).or_throw()) {
      if (started_) {
        refuse("another command after the one that starts the training",
               "the training as the last command");
      }
      run_command(command);
    }
    if (!started_) {
      refuse("no command that starts a training",
             "torchrun or python with run_qa.py or run_glue.py");
    }
    return std::move(result_);
  }

 private:
  std::string value_of(const std::string& name) const {
    if (is_one_of(name, kShellVariables)) {
      refuse(fmt::format("${}, a variable of the shell", name),
             "variables of the container or of export; Tilewright runs no shell");
    }
    const auto set = variables_.find(name);
    std::string value = set != variables_.end() ? set->second : environment_(name.c_str());
    if (name == "HOME" && value.empty()) refuse("\"~\" or $HOME without a value", "HOME to be set");
    return value;
  }

  void assign(const std::string& name, const std::string& value) {
    if (is_one_of(name, kShellVariables)) {
      refuse(fmt::format("an assignment to {}, a variable of the shell", name),
             "another variable; Tilewright runs no shell");
    }
    // envFrom may have a variable that only the pod knows, or not.
    const std::string of_container = environment_(name.c_str());
    if (!of_container.empty() && unknown_variable(of_container).empty()) exported_.insert(name);
    variables_[name] = value;
  }

  void run_command(const ShellCommand& command) {
    std::size_t first = 0;  // the first word that is no assignment
    while (first < command.words.size() && !assigned_name(command.words[first]).empty()) ++first;
    std::vector<std::string> words;
    const bool exports = first < command.words.size() && is_export(command.words[first]);
    if (exports) {
      run_export(command, first);
      return;
    }
    for (std::size_t i = first; i < command.words.size(); ++i) {
      expansion_.fields(command.words[i], words).or_throw();
    }
    const auto before = variables_;
    const auto exported_before = exported_;
    for (std::size_t i = 0; i < first; ++i) {
      const std::string name(assigned_name(command.words[i]));
      assign(name, expansion_.assignment(command.words[i]).or_throw());
      if (!words.empty()) exported_.insert(name);
    }
    if (words.empty()) return;
    run_words(words);
    variables_ = before;
    exported_ = exported_before;
  }

  static bool is_export(const ShellWord& word) {
    return word.pieces.size() == 1 && word.pieces[0].kind == ShellPiece::Kind::kText &&
           !word.pieces[0].quoted && word.pieces[0].text == "export";
  }

  // Words NAME=VALUE of `export` are assignments; all others are split into fields first. All words
  // are expanded before the first is assigned.
  void run_export(const ShellCommand& command, std::size_t first) {
    if (first > 0) refuse("an assignment before export", "export NAME=VALUE");
    std::vector<std::string> fields;
    for (std::size_t i = 1; i < command.words.size(); ++i) {
      const ShellWord& word = command.words[i];
      if (const std::string name(assigned_name(word)); !name.empty() && !word.brace) {
        fields.push_back(name + "=" + expansion_.assignment(word).or_throw());
      } else {
        expansion_.fields(word, fields).or_throw();
      }
    }
    for (const std::string& field : fields) {
      const std::size_t equals = field.find('=');
      const std::string name = field.substr(0, equals);
      if (!is_variable_name(name)) {
        refuse(fmt::format("\"export {}\"", excerpt(with_references(with_dates(field)))),
               "export NAME=VALUE");
      }
      if (equals != std::string::npos) assign(name, field.substr(equals + 1));
      exported_.insert(name);
    }
  }

  void run_words(const std::vector<std::string>& words) {
    const std::string_view program = basename(words.front());
    if (words.front() == "cd") {
      change_directory(words);
    } else if (is_preparation(words)) {
      result_.skipped.push_back(joined(words));
    } else if (starts_training(program)) {
      start_training(words);
    } else {
      refuse(fmt::format("the command {}", quoted_excerpt(joined(words), kLineExcerpt)),
             "cd, export, pip install, source .../setvars.sh, lscpu, or torchrun or python with "
             "run_qa.py or run_glue.py; Tilewright runs no shell");
    }
  }

  // Whether a command only prepares what a native training does not need.
  static bool is_preparation(const std::vector<std::string>& words) {
    const std::string_view program = basename(words.front());
    const auto word = [&](std::size_t i) -> std::string_view {
      return i < words.size() ? std::string_view(words[i]) : "";
    };
    if (program == "lscpu") return true;
    if (program == "pip" || program == "pip3") return word(1) == "install";
    if (is_one_of(program, kPythons)) {
      return word(1) == "-m" && word(2) == "pip" && word(3) == "install";
    }
    return (words.front() == "source" || words.front() == ".") && basename(word(1)) == "setvars.sh";
  }

  void change_directory(const std::vector<std::string>& words) {
    if (words.size() > 2 || (words.size() == 2 && words[1].starts_with('-')) ||
        (words.size() == 2 && (words[1].empty() || has_date(words[1])))) {
      refuse(quoted_excerpt(joined(words), kLineExcerpt), "cd DIRECTORY");
    }
    const std::string target = words.size() == 1 ? value_of("HOME") : words[1];
    if (target.starts_with('/') || result_.directory.empty()) {
      result_.directory = target;
    } else {
      result_.directory += "/" + target;
    }
  }

  void start_training(const std::vector<std::string>& words) {
    std::vector<std::string> with;
    with.reserve(words.size());
    for (const std::string& word : words) with.push_back(to_argument(word));
    for (const std::string& name : exported_) {
      const auto variable = variables_.find(name);
      if (variable != variables_.end()) result_.variables[name] = to_argument(variable->second);
    }
    set_training(result_, std::move(with), [this](const char* name) {
      const auto variable = result_.variables.find(name);
      return variable != result_.variables.end() ? variable->second : environment_(name);
    });
    started_ = true;
  }

  // In the result, $(date ...) is a date.
  static std::string to_argument(const std::string& word) {
    if (holds_date(word)) {
      refuse(fmt::format("{} in single quotes or with a backslash", quoted_words(word)),
             "$(date +FORMAT) in double quotes or none");
    }
    return with_dates(word);
  }

  const GetVariable& environment_;
  ShellExpansion expansion_;
  std::map<std::string, std::string> variables_;
  std::set<std::string> exported_;
  Command result_;
  bool started_ = false;
};

Command interpret_shell(std::span<const std::string> words, const GetVariable& environment) {
  const std::string_view shell = basename(words.front());
  bool command = false;  // -c
  std::size_t i = 1;
  for (; i < words.size() && words[i].size() > 1 && words[i].starts_with('-'); ++i) {
    for (const char option : std::string_view(words[i]).substr(1)) {
      if (kShellOptions.find(option) == std::string_view::npos) {
        refuse(fmt::format("the option {} of {}", quoted_words(words[i]), shell),
               "-c; Tilewright runs no shell");
      }
      command = command || option == 'c';
    }
  }
  if (!command || i == words.size()) {
    refuse(fmt::format("{} without a command", shell),
           fmt::format("{} -c \"torchrun .../run_qa.py ...\"; Tilewright runs no shell", shell));
  }
  try {
    return Script(environment).run(words[i]);
  } catch (const Failure& failure) {
    throw Failure(failure.code(), fmt::format("{} -c: {}", shell, failure.what()));
  }
}

}  // namespace

bool starts_command(std::string_view program) {
  const std::string_view name = basename(program);
  return starts_training(name) || is_one_of(name, kShells);
}

Result<Command> interpret(std::span<const std::string> words, const GetVariable& environment) {
  try {
    if (words.empty()) refuse("no command", "torchrun, python or bash");
    if (is_one_of(basename(words.front()), kShells)) return interpret_shell(words, environment);
    if (!starts_training(basename(words.front()))) {
      refuse(fmt::format("the command {}", quoted_words(words.front())),
             "torchrun, python, python3, bash or sh");
    }
    Command command;
    set_training(command, {words.begin(), words.end()}, environment);
    return command;
  } catch (const Failure& failure) {
    return failure.error();
  }
}

std::vector<std::string> train_arguments(const Command& command) {
  std::vector<std::string> arguments = command.arguments;
  if (!command.task.empty()) arguments.push_back("--task_name=" + command.task);
  return arguments;
}

std::string describe(const Command& command) {
  return fmt::format(
      "{} {}: runs natively as tilewright-worker train{}{}{}{}",
      command.torchrun ? kTorchrun : "python", command.script,
      command.task.empty() ? "" : " --task_name=", command.task,
      command.skipped.empty() ? "" : "; skipped: ", fmt::join(command.skipped, ", "));
}

}  // namespace tilewright::launch
