// `tilewright-worker train`, `eval` and `predict`: run a training, or a part of one, from flags and
// environment variables.
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/output_queue.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/training_flags.h"
#include "common/contract/unknown_variables.h"
#include "common/contract/unneeded_variables.h"
#include "common/contract/virtual_shards.h"
#include "common/host/binding.h"
#include "common/process/open_files.h"
#include "common/process/signals.h"
#include "worker/cli/commands.h"
#include "worker/cli/flag_help.h"
#include "worker/cli/process_plan.h"
#include "worker/cli/variables.h"
#include "worker/collectives/mpi_library.h"
#include "worker/elastic/launched_group.h"
#include "worker/elastic/launcher.h"
#include "worker/elastic/session.h"
#include "worker/train/predict_lines.h"
#include "worker/train/run.h"
#include "worker/train/start_timing.h"

namespace tilewright::cli {
namespace {

// `only_copy`: no file has them, so the process waits for the reader. Otherwise the training ends
// though its output is not read.
void print_results(const std::string& text, bool only_copy) {
  if (only_copy) {
    std::fputs(text.c_str(), stdout);
  } else {
    OutputQueue().write(STDOUT_FILENO, text);
  }
}

// The value of a variable that counts processes or shards.
int count_of(const char* name, int if_not_set) {
  return integer_variable(environment_variable, name, 1, if_not_set, kMaxVirtualShards);
}

// The file of predict's own option, which is removed from `words`; empty if it is not there.
std::string take_input(std::vector<std::string>& words) {
  const std::string option = "--input";
  const auto is_option = [&](const std::string& word) {
    return word == option || word.starts_with(option + "=");
  };
  const auto word = std::ranges::find_if(words, is_option);
  if (word == words.end()) return "";
  const bool separate = *word == option;
  if (separate && word + 1 == words.end()) {
    throw Failure(ExitCode::kUsage, fmt::format("{}: found no value, expected a file", option));
  }
  std::string value = separate ? *(word + 1) : word->substr(option.size() + 1);
  words.erase(word, word + (separate ? 2 : 1));
  if (std::ranges::any_of(words, is_option)) {
    throw Failure(ExitCode::kUsage, fmt::format("{}: found it twice, expected one file", option));
  }
  return value;
}

// `notes`: lines about variables and --threads, for the log of the job's first process.
train::RunOptions make_options(
    const TrainingArguments& arguments, std::vector<std::string>& notes,
    const std::optional<elastic::LaunchedProcess>& launched = std::nullopt) {
  const runtime::CpuInfo cpu = runtime::detect_cpu();
  train::RunOptions options;
  const std::string forced = environment_variable(env::kIsa);
  const runtime::Isa best = runtime::choose_isa(cpu, forced).or_throw();
  options.isas = forced.empty() ? cpu.isas : std::vector{best};
  options.cpu_model = cpu.model;
  const bool bound_by_launcher = launched && elastic::read_cpu_binding().bound();
  host::ProcessPlan plan =
      process_plan(host::this_host(), launched, bound_by_launcher, environment_variable);
  host::bind_process(plan);
  ThreadCount threads =
      thread_count(plan, arguments.settings().threads, environment_variable(env::kOmpNumThreads));
  options.threads = threads.threads;
  options.thread_cpus = std::move(plan.thread_cpus);
  if (!threads.note.empty()) notes.push_back(std::move(threads.note));
  options.default_world_size =
      count_of(env::kNominalWorkers, launched ? launched->world : count_of(env::kWorldSize, 1));
  options.default_virtual_shards = count_of(env::kVirtualShards, 0);
  options.fault = environment_variable(env::kFault);
  options.terminal = isatty(STDERR_FILENO) != 0;
  options.variable = environment_variable;
  return options;
}

// Joins the other processes of the launcher; nullptr without a launcher.
std::unique_ptr<elastic::LaunchedGroup> join_group(
    const std::optional<elastic::LaunchedProcess>& launched, const StopSignals& signals,
    const std::shared_ptr<Logger>& log) {
  if (!launched) return nullptr;
  elastic::LaunchedGroup::Options options;
  options.cancel = &signals.cancel_token();
  auto manager = elastic::connect_process_manager(
      *launched, environment_variable, net::within(options.start_timeout, options.cancel));
  return std::make_unique<elastic::LaunchedGroup>(*launched, environment_variable,
                                                  std::move(manager), options, log);
}

// The MPI library of --ddp_backend=mpi; nullptr for the other backends.
collectives::MpiPort* open_mpi(const TrainingArguments& arguments,
                               const elastic::LaunchedGroup* group, Logger& log) {
  if (arguments.settings().ddp_backend != "mpi") return nullptr;
  if (group == nullptr) {
    log.info(
        "--ddp_backend=mpi: no effect, because mpirun did not start this process as one of "
        "several; gradients are exchanged through shared memory or TCP");
    return nullptr;
  }
  const elastic::LaunchedProcess& process = group->process();
  if (process.space != elastic::KeyValueSpace::kPmix) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--ddp_backend=mpi: found processes that {} started, expected Open "
                              "MPI's mpirun or `srun --mpi=pmix`; --ddp_backend=ccl gives the same "
                              "bits with any launcher",
                              process.launcher));
  }
  if (group->settings().tls) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("--ddp_backend=mpi: found {}=true, which encrypts Tilewright's own "
                              "transport; expected --ddp_backend=ccl",
                              env::kTls));
  }
  return &collectives::load_mpi(collectives::mpi_plugin_path(), process.rank, process.world);
}

// An MPI launcher does not give a training the CPUs that it needs unless it is told to: Open MPI
// binds each of two processes to one core.
void warn_of_narrow_binding(const elastic::LaunchedProcess& launched, Logger& log) {
  const elastic::CpuBinding binding = elastic::read_cpu_binding();
  if (!binding.bound() || binding.own * std::max(1, launched.local_world) >= binding.daemon) return;
  log.warn(
      "{} has bound this process to {} of the host's {} CPUs; to use all, expected `--bind-to "
      "none` (Open MPI), `-bind-to none` (Hydra) or more CPUs per process",
      launched.launcher, binding.own, binding.daemon);
}

// Returns when the launcher has read all that this process has written to stderr: what is in the
// pipe when it ends the job is lost. There is no event for this.
void wait_until_stderr_is_read() {
  constexpr auto kLimit = std::chrono::seconds(1);
  constexpr auto kPause = std::chrono::milliseconds(1);
  struct stat file {};
  if (fstat(STDERR_FILENO, &file) != 0 || !S_ISFIFO(file.st_mode)) return;
  const MonotonicTime deadline = monotonic_now() + kLimit;
  int unread = 0;
  while (ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0 && monotonic_now() < deadline) {
    std::this_thread::sleep_for(kPause);
  }
}

int train(const std::vector<std::string>& flags) {
  const ExpandedArguments expanded = expand_arguments(flags, environment_variable);
  const TrainingArguments arguments = parse_arguments(expanded.arguments, environment_variable);
  const std::optional<elastic::LaunchedProcess> launched =
      elastic::detect_launcher(environment_variable);
  std::vector<std::string> notes;
  train::RunOptions options = make_options(arguments, notes, launched);
  options.output_dir_of_one = expanded.dates;
  options.launch_time = launch_time(environment_variable);
  LogLevel level = log_level(environment_variable(env::kLogLevel));
  if (!level.note.empty()) notes.push_back(std::move(level.note));
  const auto log =
      make_logger(arguments.is_set("log_level") ? arguments.settings().log_level : level.name);
  const StopSignals signals;
  raise_open_files_limit();
  const std::unique_ptr<elastic::LaunchedGroup> group = join_group(launched, signals, log);
  const elastic::SessionSettings membership =
      group ? group->settings() : elastic::settings_from_environment(environment_variable);
  options.worker_index = membership.process.worker_index;
  const std::string metrics_address = environment_variable(env::kMetricsAddress);
  if (!metrics_address.empty() && membership.process.local_rank == 0) {
    options.metrics_address = net::parse_address(metrics_address).or_throw();
  }
  options.identity = {environment_variable(env::kJobName), membership.process.worker_index,
                      membership.process.local_rank};
  if (membership.process.worker_index == 0 && membership.process.local_rank == 0) {
    for (const std::string& warning : describe_unknown_variables(environ)) {
      log->warn("{}", warning);
    }
    for (const std::string& note : notes) log->warn("{}", note);
    for (const std::string& line : describe_unneeded_variables(environ)) log->info("{}", line);
    if (launched) warn_of_narrow_binding(*launched, *log);
  }
  options.cancel = &signals.cancel_token();
  options.print_results = [&](const std::string& text) {
    print_results(text, arguments.settings().output_dir.empty());
  };
  std::optional<elastic::Session> session;
  try {
    options.mpi = open_mpi(arguments, group.get(), *log);
    session.emplace(membership, &signals, log);
    train::run_training(arguments, options, *session, *log);
    session.reset();
    // Returns when all ranks have called it. A failure now loses nothing.
    if (options.mpi != nullptr) {
      if (const char* problem = options.mpi->finish()) log->warn("{}", problem);
    }
    if (group) group->finish();
  } catch (const Failure& failure) {
    if (!group) throw;
    // The message comes first: the launcher kills this process soon.
    report_failure(failure);
    wait_until_stderr_is_read();
    const bool in_epoch = session && session->has_joined();
    session.reset();  // before the wait for rank 0, which hears of this process's end by it
    group->abort(static_cast<int>(failure.code()), in_epoch);
    return static_cast<int>(failure.code());
  }
  return 0;
}

// The words after `eval` or `predict` as those of `train`.
std::vector<std::string> as_train(std::vector<std::string> words, const char* action) {
  for (const char* flag : {"do_train", "do_eval", "do_predict"}) {
    words.push_back(fmt::format("--{}={}", flag, std::string_view(flag) == action));
  }
  return words;
}

// What the commands need that print their own result: the log has warnings only, unless the flags
// say otherwise.
struct PrintingCommand {
  explicit PrintingCommand(const std::vector<std::string>& words)
      : arguments(parse_arguments(words, environment_variable)),
        log(make_logger(arguments.is_set("log_level") ? arguments.settings().log_level : "warn")) {
    std::vector<std::string> notes;
    options = make_options(arguments, notes);
    for (const std::string& note : notes) log->warn("{}", note);
  }
  TrainingArguments arguments;
  std::shared_ptr<Logger> log;
  train::RunOptions options;
};

int predict(std::vector<std::string> words) {
  const std::string input = take_input(words);
  words = as_train(std::move(words), "do_predict");
  if (input.empty()) {
    const auto settings = parse_arguments(words, environment_variable).settings();
    if (settings.output_dir.empty() && settings.test_file.empty() && settings.data_dir.empty() &&
        settings.dataset_name.empty() && settings.task_name.empty()) {
      throw Failure(ExitCode::kUsage,
                    "predict: found neither --input nor a data set, expected --input FILE, whose "
                    "results are printed, or --test_file FILE and --output_dir DIRECTORY");
    }
    return train(words);
  }
  const PrintingCommand command(words);
  if (command.arguments.is_set("output_dir")) {
    command.log->warn("--output_dir: no effect with --input, whose results are printed");
  }
  for (const char* flag : {"data_dir", "dataset_name", "test_file"}) {
    if (!command.arguments.is_set(flag)) continue;
    command.log->warn("--{}: no effect with --input, whose lines are the examples", flag);
  }
  const auto [name, text] = read_input(input, train::kMaxInputBytes, ExitCode::kData).or_throw();
  const std::string lines =
      train::predict_lines(command.arguments, command.options, text, name, *command.log);
  std::fputs(lines.c_str(), stdout);
  return 0;
}

int bench_start(std::vector<std::string> words) {
  const bool json = std::erase(words, "--json") > 0;
  words = as_train(std::move(words), "do_train");
  // measure_start() does not use the output directory, which a training must have.
  for (const char* flag :
       {"--max_steps=2", "--eval_strategy=no", "--save_strategy=no", "--output_dir=unused"}) {
    words.emplace_back(flag);
  }
  const PrintingCommand command(words);
  double total = 0;
  nlohmann::ordered_json parts;
  std::string lines;
  for (const auto& [name, seconds] :
       train::measure_start(command.arguments, command.options, *command.log)) {
    total += seconds;
    parts[name] = seconds;
    lines += fmt::format("{:6.3f} s  {}\n", seconds, name);
  }
  const nlohmann::ordered_json result = {{"benchmark", "start"},
                                         {"cpu", command.options.cpu_model},
                                         {"threads", command.options.threads},
                                         {"parts", parts},
                                         {"seconds", total}};
  lines += fmt::format("{:6.3f} s  total, until the first step ends\n", total);
  std::fputs((json ? result.dump(2) + "\n" : lines).c_str(), stdout);
  return 0;
}

// `help`: see flag_help.h.
CLI::App* add_command(CLI::App& app, const char* name, const char* summary,
                      const std::string& help) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->allow_extras();
  command->footer(help);
  return command;
}

}  // namespace

void add_train_commands(CLI::App& app, int& exit_code) {
  CLI::App* train_command =
      add_command(app, "train", "Train a model and evaluate it", train_help());
  train_command->callback([=, &exit_code] { exit_code = train(train_command->remaining()); });
  CLI::App* eval_command = add_command(
      app, "eval", "Evaluate a trained model; the same as train --do_eval", eval_help());
  eval_command->callback(
      [=, &exit_code] { exit_code = train(as_train(eval_command->remaining(), "do_eval")); });
  CLI::App* predict_command = add_command(app, "predict",
                                          "Predict the test examples of a task or, with --input "
                                          "FILE (-: standard input), the sentences "
                                          "or questions in JSON lines",
                                          predict_help());
  predict_command->callback([=, &exit_code] { exit_code = predict(predict_command->remaining()); });
}

void add_start_bench(CLI::App& bench, int& exit_code) {
  CLI::App* start = add_command(bench, "start",
                                "Start-up time of a training by phase, until the first step ends; "
                                "takes the flags of train, and --json",
                                bench_start_help());
  start->callback([=, &exit_code] { exit_code = bench_start(start->remaining()); });
}

}  // namespace tilewright::cli
