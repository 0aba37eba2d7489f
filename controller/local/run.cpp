#include "controller/local/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/random.h"
#include "common/base/strings.h"
#include "common/contract/log_lines.h"
#include "common/host/host.h"
#include "common/json/document.h"
#include "common/process/shell_quoting.h"
#include "common/process/signals.h"
#include "controller/api/validate.h"
#include "controller/local/console.h"
#include "controller/local/coordinator.h"
#include "controller/local/job_store.h"
#include "controller/local/launch.h"
#include "controller/local/session.h"
#include "controller/policy/elasticity.h"
#include "controller/policy/status.h"

extern char** environ;

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

Result<api::ValidatedJob> read_manifest(const RunOptions& options) {
  if (options.manifest == "-") {
    return Error{
        ExitCode::kManifest,
        "found - for the manifest, expected a file: `tilewright up` reads it again when it "
        "scales or resumes the job"};
  }
  const Result<std::string> text =
      read_file(options.manifest, kMaxManifestBytes, ExitCode::kManifest);
  if (!text) return text.error();
  Result<api::ValidatedJob> checked =
      api::check_manifest(*text, options.manifest.string(), api::Target::kLocal);
  if (!checked || options.name.empty()) return checked;
  if (const Status named = api::check_job_name(options.name, checked->job); !named) {
    return Error{named.error().code, "--name: " + named.error().message};
  }
  checked->job.metadata.name = options.name;
  return checked;
}

void print_start(const api::TrainJob& job, const JobStore& store, const fs::path& program,
                 Console& console) {
  const int workers = policy::sizes_of(job).desired;
  console.print("job",
                fmt::format("{}: {}, {}{} ({})", job.metadata.name, api::describe_task(job),
                            counted(static_cast<std::size_t>(workers), "worker"),
                            store.resumed() ? ", resumed" : "", display_path(store.folder())));
  if (console.verbose()) console.print("program", program.string());
}

std::string message_of(const api::TrainJobStatus& status, const char* condition) {
  const api::Condition* found = status.find_condition(condition);
  return found == nullptr ? "" : found->message;
}

// With the options by which `up` finds the job's state and its worker program.
std::string resume_command(const RunOptions& options, const std::string& name) {
  std::string line =
      fmt::format("tilewright up {} --name {}", shell_quoted(options.manifest.string()), name);
  if (options.state_dir != RunOptions().state_dir) {
    line += " --state_dir " + shell_quoted(options.state_dir.string());
  }
  if (!options.worker_binary.empty()) {
    line += " --worker_binary " + shell_quoted(options.worker_binary.string());
  }
  return line;
}

// Prints the last lines of the run. The workers have already printed results and output unless an
// earlier `up` trained the model.
void print_end(const Session& session, const JobStore& store, const RunOptions& options,
               Console& console) {
  using Style = Console::Style;
  console.clear_progress();
  const api::TrainJob& job = session.job();
  const std::string& name = job.metadata.name;
  const api::TrainJobStatus& status = job.status;
  const bool stopped = session.stop_signal() != 0;
  const bool succeeded = !stopped && status.phase == api::Phase::kSucceeded;
  if (succeeded && !console.has_summary(log_lines::kOutput)) {
    const fs::path manifest_folder = fs::absolute(options.manifest).parent_path();
    console.print(log_lines::kOutput, display_path(output_folder(job, manifest_folder)));
  }
  if (status.restarts.total() > 0) {
    console.print("restarts",
                  fmt::format("{}: {} after program errors, {} after infrastructure failures, {} "
                              "after running out of memory",
                              status.restarts.total(), status.restarts.program,
                              status.restarts.infrastructure, status.restarts.out_of_memory));
  }
  console.print("logs", display_path(store.log_folder()));
  if (stopped) {
    console.print("stopped",
                  fmt::format("job {}; `{}` resumes it", name, resume_command(options, name)),
                  Style::kWarning);
  } else if (succeeded) {
    // The condition's message repeats the results.
    const std::string message = console.has_summary(log_lines::kResults)
                                    ? ""
                                    : ": " + message_of(status, api::condition::kSucceeded);
    console.print("succeeded", fmt::format("job {}{}", name, message), Style::kSuccess);
  } else {
    const std::string message = message_of(status, api::condition::kFailed);
    console.print("failed", fmt::format("job {}: {}", name, message), Style::kFailure);
    if (!status.failures.empty()) {
      for (const std::string& line : status.failures.back().last_lines) {
        if (message.find(line) == std::string::npos) console.print("", line);
      }
    }
  }
}

// A problem of the manifest's field, with file and line.
Error error_of(const FieldProblem& problem, const Positions& positions, const fs::path& manifest) {
  const FieldError found{problem.field, positions.line_of(problem.field), problem.message};
  return Error{problem.code, found.sentence(manifest.string())};
}

FieldProblem output_of_another_job(const api::TrainJob& job, const fs::path& manifest_folder) {
  return {ExitCode::kOutput, "spec.trainer.output",
          fmt::format("{}: {} contains the results of another job; use another directory, or set "
                      "spec.trainer.overwrite_output_dir: true",
                      job.spec.trainer.output, output_folder(job, manifest_folder).string())};
}

Result<std::unique_ptr<Coordinator>> start_coordinator(const api::TrainJob& job,
                                                       const JobStore& store,
                                                       const std::string& log_level) {
  Result<net::SecretKey> key = net::SecretKey::from_file(store.key_file());
  if (!key) return key.error();
  const RdzvConf conf = api::rdzv_conf(job);
  return serve_rendezvous({job.metadata.uid, api::global_batch(job), conf.tls,
                           static_cast<rendezvous::Epoch>(job.status.rendezvous_epoch),
                           policy::last_checkpoint_step(job.status), api::is_exact(job),
                           job.status.instruction_set, conf.heartbeat_timeout()},
                          std::move(key).value(), make_logger(log_level));
}

// Reads the manifest again. `conf`: that of the running job.
Result<api::TrainJobSpec> reload_spec(const RunOptions& options, const RdzvConf& conf) {
  Result<api::ValidatedJob> again = read_manifest(options);
  if (!again) return again.error();
  if (api::rdzv_conf(again->job) != conf) {
    return Error{ExitCode::kManifest,
                 "spec.elasticPolicy.rdzvConf cannot change while the job runs; stop `tilewright "
                 "up` and start it again"};
  }
  return std::move(again->job.spec);
}

// Without workers.command, which needs the session. The references must outlive the session.
Session::Options session_options(const RunOptions& options, const api::TrainJob& job,
                                 const JobStore& store) {
  Session::Options to;
  to.workers.log_folder = store.log_folder();
  to.workers.node = host::host_name();
  to.workers.grace =
      std::chrono::seconds(*job.spec.worker.termination_grace_period_seconds);  // has a default
  to.workers.new_uid = random_uuid;
  to.workers.now = wall_now;
  to.save = [&store](const api::TrainJob& state) { return store.save(state); };
  to.reload = [&options, conf = api::rdzv_conf(job)] { return reload_spec(options, conf); };
  return to;
}

ExitCode exit_code_of(const Session& session) {
  if (session.stop_signal() != 0) {
    return session.stop_signal() == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
  }
  const bool good = session.job().status.phase == api::Phase::kSucceeded;
  return good ? ExitCode::kOk : ExitCode::kJobFailed;
}

Result<ExitCode> run(const RunOptions& options) {
  // Before the signals are blocked: they end a program that waits for the writer of a pipe.
  Result<api::ValidatedJob> checked = read_manifest(options);
  if (!checked) return checked.error();
  // Must precede the start of the coordinator's thread, which inherits the blocked signals.
  Result<Signals> signals = Signals::install();
  if (!signals) return signals.error();

  Console console(Console::detect(options.verbose));
  for (const FieldError& warning : checked->warnings) {
    console.print("warning", warning.sentence(options.manifest.string()), Console::Style::kWarning);
  }
  api::TrainJob& job = checked->job;
  const fs::path manifest_folder = fs::absolute(options.manifest).parent_path();
  const Result<fs::path> program = find_worker_program(options.worker_binary);
  if (!program) return program.error();
  const auto refuse = [&](const FieldProblem& problem) {
    return error_of(problem, checked->positions, options.manifest);
  };
  if (const auto problem = prepare_folders(job, manifest_folder)) return refuse(*problem);

  Result<JobStore> store = JobStore::open(options.state_dir, job, options.replace);
  if (!store) return store.error();
  const std::string owner = foreign_owner(job, manifest_folder);
  const bool replaces_output = !owner.empty() && store->has_discarded(owner);
  if (!owner.empty() && !replaces_output) {
    return refuse(output_of_another_job(job, manifest_folder));
  }
  if (Status saved = store->save(job); !saved) return saved.error();
  Result<std::unique_ptr<Coordinator>> coordinator =
      start_coordinator(job, *store, options.log_level);
  if (!coordinator) return coordinator.error();

  const LaunchConfig config{
      *program,          manifest_folder,       store->key_file(), (*coordinator)->endpoint(),
      host::this_host(), current_environment(), replaces_output};
  std::optional<Session> session;
  Session::Options to = session_options(options, job, *store);
  to.workers.command = [&](const policy::WorkerCreation& creation) {
    return Result<ChildCommand>(command_for(session->job(), creation, config));
  };
  session.emplace(std::move(job), **coordinator, *signals, console, std::move(to));
  print_start(session->job(), *store, *program, console);
  session->run();
  print_end(*session, *store, options, console);
  return exit_code_of(*session);
}

}  // namespace

int run_up(const RunOptions& options) {
  const Result<ExitCode> outcome = run(options);
  if (outcome) return static_cast<int>(*outcome);
  std::fprintf(stderr, "%s\n", outcome.error().message.c_str());
  return static_cast<int>(outcome.error().code);
}

}  // namespace tilewright::local
