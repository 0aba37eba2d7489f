#include "controller/local/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/contract/reported.h"
#include "controller/api/document.h"
#include "controller/api/validate.h"
#include "controller/local/console.h"
#include "controller/local/coordinator.h"
#include "controller/local/cpus.h"
#include "controller/local/job_store.h"
#include "controller/local/launch.h"
#include "controller/local/session.h"
#include "controller/local/signals.h"

extern char** environ;

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxResultBytes = 1 << 20;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

Result<api::Checked> read_manifest(const RunOptions& options) {
  const Result<std::string> text =
      read_file(options.manifest, api::kMaxManifestBytes, ExitCode::kManifest);
  if (!text) return text.error();
  Result<api::Checked> checked =
      api::check_manifest(*text, options.manifest.string(), api::Target::kLocal);
  if (checked && !options.name.empty()) checked->job.metadata.name = options.name;
  return checked;
}

// "eval_accuracy 0.8725, eval_loss 0.3": the results in the worker's eval_results.json, without how
// long they took; empty where there is none.
std::string results_in_words(const fs::path& output) {
  const Result<std::string> text =
      read_file(output / reported::kEvaluationFile, kMaxResultBytes, ExitCode::kOutput);
  if (!text) return "";
  const nlohmann::json results = nlohmann::json::parse(*text, nullptr, false);
  std::string words;
  if (!results.is_object()) return words;
  for (const auto& [name, value] : results.items()) {
    const bool cost = name.find("_runtime") != std::string::npos ||
                      name.find("_samples") != std::string::npos || name == "epoch";
    if (cost || !value.is_number()) continue;
    words += fmt::format("{}{} {:.4g}", words.empty() ? "" : ", ", name, value.get<double>());
  }
  return words;
}

void summarise(const Session& session, const JobStore& store, const RunOptions& options,
               Console& console) {
  console.clear_progress();
  const api::TrainJob& job = session.job();
  const api::TrainJobStatus& status = job.status;
  const fs::path manifest_folder = fs::absolute(options.manifest).parent_path();
  if (session.stopped_by() != 0) {
    console.note(fmt::format("job {} was stopped; `tilewright up {} --name {}` resumes it",
                             job.metadata.name, options.manifest.string(), job.metadata.name));
  } else if (status.phase == api::Phase::kSucceeded) {
    const api::Condition* end = status.find_condition(api::condition::kSucceeded);
    console.note(
        fmt::format("job {} succeeded: {}", job.metadata.name, end == nullptr ? "" : end->message));
    const fs::path output = output_folder(job, manifest_folder);
    const std::string results = results_in_words(output);
    if (!results.empty()) console.note("results: " + results);
    console.note(fmt::format("output: {}", output.string()));
  } else {
    const api::Condition* end = status.find_condition(api::condition::kFailed);
    console.note(
        fmt::format("job {} failed: {}", job.metadata.name, end == nullptr ? "" : end->message));
    if (!status.failures.empty()) {
      for (const std::string& line : status.failures.back().last_lines) console.note("  " + line);
    }
  }
  if (status.restarts.total() > 0) {
    console.note(fmt::format(
        "restarts: {} of the program, {} of the infrastructure, {} out of "
        "memory",
        status.restarts.program, status.restarts.infrastructure, status.restarts.out_of_memory));
  }
  console.note(fmt::format("logs: {}", store.log_folder().string()));
}

Result<int> run(const RunOptions& options) {
  // First, so that the coordinator's thread leaves the signals to this one.
  Result<Signals> signals = Signals::take_over();
  if (!signals) return signals.error();

  Result<api::Checked> checked = read_manifest(options);
  if (!checked) return checked.error();
  Console console(Console::detect());
  for (const api::FieldError& warning : checked->warnings) {
    console.note("warning: " + warning.sentence(options.manifest.string()));
  }
  api::TrainJob& job = checked->job;
  const fs::path manifest_folder = fs::absolute(options.manifest).parent_path();
  const Result<fs::path> program = find_worker_program(options.worker_binary);
  if (!program) return program.error();
  if (const Status ready = prepare_folders(job, manifest_folder); !ready) return ready.error();

  Result<JobStore> store = JobStore::open(options.state_dir, job, options.replace);
  if (!store) return store.error();
  Result<net::SecretKey> key = net::SecretKey::from_file(store->key_file());
  if (!key) return key.error();
  const bool tls = api::uses_tls(job);
  Result<std::unique_ptr<Coordinator>> coordinator =
      serve_rendezvous({job.metadata.uid, api::global_batch(job), tls,
                        static_cast<rendezvous::Epoch>(job.status.rendezvous_epoch)},
                       std::move(key).value(), make_logger("up", options.log_level));
  if (!coordinator) return coordinator.error();

  const LaunchSetting setting{*program,          manifest_folder,
                              store->key_file(), (*coordinator)->endpoint(),
                              allowed_cpus(),    own_environment()};
  std::optional<Session> session;
  Session::Options session_options;
  session_options.workers.log_folder = store->log_folder();
  session_options.workers.node = host_name();
  session_options.workers.grace = std::chrono::seconds(
      job.spec.worker.termination_grace_period_seconds.value_or(api::kDefaultGraceSeconds));
  session_options.workers.command = [&](const reconcile::WorkerCreation& creation) {
    return Result<ChildCommand>(command_for(session->job(), creation, setting));
  };
  session_options.workers.new_uid = random_uid;
  session_options.workers.now = wall_now;
  session_options.save = [&](const api::TrainJob& state) { return store->save(state); };
  session_options.reload = [&]() -> Result<api::TrainJobSpec> {
    Result<api::Checked> again = read_manifest(options);
    if (!again) return again.error();
    if (api::uses_tls(again->job) != tls)
      return Error{
          ExitCode::kManifest,
          "spec.elasticPolicy.rdzvConf: tls cannot change while the job is being run: stop "
          "`tilewright up` and start it again"};
    return std::move(again->job.spec);
  };
  session.emplace(std::move(job), **coordinator, *signals, console, std::move(session_options));
  console.note(
      fmt::format("{} job {} with {} (state in {})", store->resumed() ? "going on with" : "running",
                  session->job().metadata.name, program->string(), store->folder().string()));
  session->run();
  summarise(*session, *store, options, console);
  if (session->stopped_by() != 0) {
    return static_cast<int>(session->stopped_by() == SIGINT ? ExitCode::kInterrupted
                                                            : ExitCode::kTerminated);
  }
  const bool good = session->job().status.phase == api::Phase::kSucceeded;
  return static_cast<int>(good ? ExitCode::kOk : ExitCode::kJobFailed);
}

}  // namespace

int run_up(const RunOptions& options) {
  const Result<int> outcome = run(options);
  if (outcome) return *outcome;
  std::fprintf(stderr, "%s\n", outcome.error().message.c_str());
  return static_cast<int>(outcome.error().code);
}

}  // namespace tilewright::local
