#include "worker/train/run.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <thread>

#include "common/base/random.h"
#include "common/contract/log_lines.h"
#include "common/contract/training_report.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/streams.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/train/agreement.h"
#include "worker/train/checkpoint_writer.h"
#include "worker/train/collective_limits.h"
#include "worker/train/connector.h"
#include "worker/train/epoch_limit.h"
#include "worker/train/hand_over.h"
#include "worker/train/inputs.h"
#include "worker/train/instruction_set.h"
#include "worker/train/output_retry.h"
#include "worker/train/progress_reporter.h"
#include "worker/train/results.h"
#include "worker/train/summary.h"
#include "worker/train/trainer.h"

namespace tilewright::train {
namespace {

// The longest delay between attempts to write the last checkpoint of a process that ends: with
// those before it 7 s.
constexpr std::chrono::seconds kLongestStopRetry{4};
constexpr const char* kResume = "resume";  // rank 0's answer: the output directory is this job's

// Whether a failure ends only the membership epoch: a peer was lost, or a newer process writes to
// the output directory, so that this one has missed a change of the membership.
bool ends_epoch(ExitCode code) {
  return code == ExitCode::kPeerLost || code == ExitCode::kSuperseded;
}

// Checks that processes that share memory fit into it together. Processes that were in an earlier
// membership epoch have allocated their memory already; only a new worker can be refused.
void check_memory_across_ranks(const Trainer& trainer, collectives::Mesh& mesh, bool new_worker) {
  if (mesh.world() == 1) return;
  const std::vector<MemoryDemand> demands = gather_demands(mesh, trainer.memory_demand());
  if (!new_worker) return;
  check_shared_memory(trainer.memory_estimate(), demands, static_cast<std::size_t>(mesh.rank()));
}

std::vector<std::string> rank_names(const Connection& connection) {
  std::vector<std::string> names;
  names.reserve(connection.members.size());
  for (const rendezvous::MemberId& member : connection.members) {
    names.push_back(rendezvous::to_string(member.process));
  }
  return names;
}

// Ends the trainer's membership epoch.
struct EpochOfTrainer {
  Trainer& trainer;
  ~EpochOfTrainer() { trainer.end_epoch(); }
};

// One process's part in the training, over all membership epochs.
class TrainingRun {
 public:
  TrainingRun(const TrainingArguments& arguments, const RunOptions& options,
              elastic::Session& session, Logger& log)
      : options_(options), session_(session), log_(log), arguments_(arguments) {
    Settings settings = make_settings(
        arguments, {.world = options.default_world_size,
                    .virtual_shards = options.default_virtual_shards,
                    .has_bf16 = has_bf16(options.isas),
                    .model_task = find_model_task(arguments, hub_options(arguments, options, log)),
                    .question_file = find_question_file(arguments.settings())});
    faults_ = Faults::parse(options.fault).or_throw();
    if (options.metrics_address) {
      exposition_ =
          metrics::Exposition::serve(*options.metrics_address, options.identity).or_throw();
    }
    const bool is_first_process = options.identity.worker == 0 && options.identity.process == 0;
    // Before the data are read, whose errors depend on it.
    if (is_first_process && !settings.task_choice.empty()) log.info("{}", settings.task_choice);
    // Before downloads and the data, which take long. All pods of a job mount the same volume; on
    // the other hosts of a launcher the directory need not exist.
    if (is_first_process && !settings.output_dir.empty()) {
      retry_output([&] { checkpoint::require_usable_output_dir(settings.output_dir); });
    }
    const hub::HubOptions hub = hub_options(arguments, options, log);
    resolve_model_names(settings, hub);
    check_start_is_kept(settings);
    pool_.emplace(options.threads, options.thread_cpus);
    const FeatureCache features = feature_cache(settings, hub, log);
    max_seq_length_ = settings.max_seq_length;
    job_ = load_job(settings, session.output_uid(),
                    {.task = nullptr,
                     .tables = resolve_data_set(settings, hub),
                     .pool = &*pool_,
                     .features = &features});
    if (job_.settings.do_train && (session.output_uid().empty() || session.has_uid_of_agent())) {
      retry_output([&] { job_.adopt_output(job_.settings.output_dir, output_uid(job_.uid)); });
    }
    std::vector<runtime::Isa> isas;
    retry_output([&] { isas = usable_isas(job_, options.isas); });
    std::vector<std::string> names;
    names.reserve(isas.size());
    for (const runtime::Isa isa : isas) names.emplace_back(runtime::name(isa));
    session.set_isas(names);
    // Before the first join, so that a machine with too little memory disturbs no other worker.
    use_isa(isas.back());
    // If this worker joins a training, the others wait for its first step.
    if (!session.has_single_epoch()) trainer_->touch_memory();
  }

  void run() {
    static_assert(kMaxDdpStreams == collectives::kMaxStreams);
    const int streams = job_.settings.ddp_streams > 0 ? static_cast<int>(job_.settings.ddp_streams)
                                                      : collectives::default_streams(pool_->size());
    Connector connector(session_, options_.mpi, job_.settings.ddp_backend, streams, log_);
    for (;;) {
      const std::optional<Connection> connection = connect(connector);
      if (!connection) return options_.print_results(printed_results_);
      const auto& mesh = connection->mesh;
      epoch_ = mesh->epoch();
      is_rank0_ = mesh->rank() == 0;
      state_is_kept_ = false;
      use_isa(connection->isa);
      // A coordinator that restarts does not know the instruction set of a state that this worker
      // has.
      if (job_.settings.exact) session_.set_isas({std::string(runtime::name(isa_))});
      if (exposition_) exposition_->begin_epoch({mesh->epoch(), mesh->rank(), mesh->world()});
      try {
        bool complete = false;
        {
          const AbortOnEpochEnd abort(session_, *mesh);
          const EpochOfTrainer epoch{*trainer_};
          complete = run_epoch(*connection, connector);
        }
        if (complete && session_.finish()) return end_complete();
        end_epoch(false);
        throw_if_stopped();
        if (session_.has_single_epoch()) throw Failure(ExitCode::kPeerLost, session_.reason());
      } catch (const Failure& failure) {
        end_epoch(true);
        // Before another worker, which ends for the same reason, has this one stopped.
        if (failure.code() == ExitCode::kDiverged) end_diverged(failure);
        throw_if_stopped();
        if (!ends_epoch(failure.code()) || session_.has_single_epoch()) {
          save_outside_of_epochs();
          throw;
        }
        log_.warn("membership epoch {} ended: {}", mesh->epoch(), failure.what());
      }
      throw_if_stopped();
    }
  }

 private:
  // After the coordinator has heard that this worker is done: baselines take minutes for long
  // texts, and the others have ended, so that the job may end this process meanwhile.
  void end_complete() {
    options_.print_results(printed_results_);
    if (is_rank0_ && job_.settings.do_eval && !session_.stopped()) log_baselines();
  }

  std::optional<Connection> connect(Connector& connector) {
    try {
      return connector.connect(trainer_->last_checkpoint_step(), [&](rendezvous::Epoch epoch) {
        // A standalone worker has one membership epoch.
        faults_.enter(options_.worker_index, session_.is_standalone() ? 1 : epoch);
        faults_.hit("epoch.connect");
        if (const auto time = epoch_limit_.begin_epoch(trainer_->step(), monotonic_now())) {
          throw Failure(ExitCode::kPeerLost,
                        fmt::format("no step was completed in {} membership epochs, over {}: the "
                                    "warnings above say how they ended",
                                    epoch_limit_.epochs() - 1, format_duration(*time)));
        }
      });
    } catch (const Failure& failure) {
      // No epoch could form, or a signal ends the wait for one.
      if (session_.stopped()) throw_if_stopped();
      // The job continues with the process that has replaced this one, and with its state.
      if (failure.code() != ExitCode::kReplaced) save_outside_of_epochs();
      throw;
    }
  }

  void end_epoch(bool broken) {
    epoch_ended_ = monotonic_now();
    broken_ = broken;
  }

  // Other flags, which the failure advises, make another job.
  [[noreturn]] void end_diverged(const Failure& failure) {
    if (!is_rank0_ || trainer_->release_empty_output() || job_.settings.overwrite_output_dir) {
      throw failure;
    }
    throw Failure(failure.code(),
                  fmt::format("{}; with other flags use another --output_dir or "
                              "--overwrite_output_dir: {} has checkpoints of this job",
                              failure.what(), job_.settings.output_dir));
  }

  [[noreturn]] void end_stopped(ExitCode code) const {
    std::string message = "stopped by a signal";
    // With other epochs, the job starts its workers again.
    if (session_.has_single_epoch() && is_rank0_ && trainer_->last_checkpoint_step() >= 0) {
      message +=
          fmt::format("; the same command{} resumes after step {}",
                      job_.settings.overwrite_output_dir ? " without --overwrite_output_dir" : "",
                      trainer_->last_checkpoint_step());
    }
    throw Failure(code, message);
  }

  void throw_if_stopped() {
    const std::optional<ExitCode> code = session_.stopped();
    if (!code) return;
    // Before other workers take the output over.
    if (!state_is_kept_) trainer_->finish_checkpoint_of_epoch();
    session_.leave("stopped by a signal");
    save_outside_of_epochs();
    end_stopped(*code);
  }

  // Waits for the checkpoint that is being written. Whether what has been trained would be lost
  // with this process.
  bool has_unsaved_step() {
    trainer_->finish_checkpoint(kCheckpointTimeout);
    return job_.settings.do_train && !job_.settings.output_dir.empty() && !output_is_complete_ &&
           trainer_->can_save() && trainer_->step() > 0 &&
           trainer_->step() > trainer_->last_checkpoint_step();
  }

  void save_checkpoint_or_warn(std::uint64_t membership_epoch) {
    try {
      trainer_->save_checkpoint(membership_epoch);
    } catch (const Failure& failure) {
      log_.warn("checkpoint of step {} not written: {}", trainer_->step(), failure.what());
    }
  }

  // Before a batch of an evaluation, which can take longer than a process has to stop. A worker
  // that leaves has left its state with rank 0, which writes it if it must stop too.
  void end_evaluation_if_stopped(const collectives::Mesh& mesh) {
    if (session_.epoch_ended()) throw Failure(ExitCode::kPeerLost, session_.reason());
    const std::optional<ExitCode> code = session_.stopped();
    const bool is_rank0 = mesh.rank() == 0;
    // Without another epoch the others could not complete the evaluation.
    if (!code || (session_.has_single_epoch() && !is_rank0)) return;
    if (is_rank0 && has_unsaved_step()) save_checkpoint_or_warn(mesh.epoch());
    state_is_kept_ = !is_rank0;
    end_stopped(*code);
  }

  // Before this process ends outside of a membership epoch: perhaps no other worker has the state.
  // Other workers may do the same; the first one writes. If no other epoch can follow, rank 0
  // writes. Tries again while the storage is unavailable, but not for long: the process must end.
  void save_outside_of_epochs() {
    const bool has_single_epoch = session_.has_single_epoch();
    if (state_is_kept_ || (has_single_epoch && !is_rank0_) || !has_unsaved_step()) return;
    // A later epoch, if there is one, has its own rank 0 with this state.
    const std::uint64_t epoch = has_single_epoch ? epoch_ : epoch_ + 1;
    const checkpoint::OutputRequest request{job_.uid, epoch, job_.settings.overwrite_output_dir};
    const auto may_succeed_later = [&] {
      const std::int64_t failed = trainer_->failed_checkpoints();
      try {
        if (!has_single_epoch) {
          trainer_->set_output(checkpoint::acquire_output_dir(job_.settings.output_dir, request));
        }
        trainer_->save_checkpoint(epoch);
      } catch (const Failure& failure) {
        log_.warn("checkpoint of step {} not written: {}", trainer_->step(), failure.what());
        return failure.code() == ExitCode::kOutputUnavailable;
      }
      return trainer_->failed_checkpoints() > failed;
    };
    for (Duration delay = kFirstOutputRetry; may_succeed_later() && delay <= kLongestStopRetry;
         delay *= 2) {
      std::this_thread::sleep_for(delay);
    }
  }

  // Makes the trainer that computes with `isa`, unless it exists.
  void use_isa(runtime::Isa isa) {
    if (trainer_ != nullptr && isa == isa_) return;
    isa_ = isa;
    job_.set_instruction_set(isa);
    // Only a training that is not exact does this with a state: see run().
    std::optional<SavedState> state;
    if (trainer_ != nullptr && trainer_->position().complete()) state = trainer_->save_state();
    trainer_.reset();  // frees its memory first
    trainer_ = make_trainer(job_, isa, *pool_, faults_, log_);
    if (state) trainer_->load_state(*state);
    peak_.emplace(isa, job_.settings.precision(), *pool_);
    start_logged_ = false;
  }

  // False: the workers stopped before the last step to form the next membership epoch.
  bool run_epoch(const Connection& connection, Connector& connector) {
    collectives::Mesh& mesh = *connection.mesh;
    faults_.hit("epoch.begin");
    const MonotonicTime connected = monotonic_now();
    // A rank 0 that stays rank 0 continues to write, and the others do not wait for it.
    const bool keeps_output = mesh.rank() == 0 && trainer_->keeps_output();
    if (!keeps_output) trainer_->finish_checkpoint_of_epoch();
    const elastic::StateAgreement agreement =
        agree_on_state(mesh, job_,
                       {.settings = {},
                        .position = trainer_->position(),
                        .checkpoint_step = trainer_->last_checkpoint_step()},
                       connection.resume_step);
    // It may be the newest one.
    if (agreement.source == elastic::StateSource::kStorage) {
      trainer_->finish_checkpoint(kCheckpointTimeout);
    }
    if (options_.output_dir_of_one || session_.has_uid_of_agent()) adopt_output(mesh, agreement);
    trainer_->begin_epoch(mesh);
    if (trainer_->trains_without_receivers(mesh, agreement)) connector.add_background(mesh);
    check_memory_across_ranks(*trainer_, mesh, new_worker_);
    new_worker_ = false;
    const bool is_rank0 = mesh.rank() == 0;
    if (is_rank0 && !start_logged_) log_start(mesh.world());
    const MonotonicTime agreed = monotonic_now();
    faults_.hit("state.agreed");
    const std::int64_t lost_before = trainer_->recovery_counts().steps_lost;
    RestoreFrom from{false, connection.resume_step, agreement, broken_};
    Restored restored;
    if (job_.settings.do_train && !job_.settings.output_dir.empty()) {
      restored = restore_and_acquire_output_dir(mesh, from, keeps_output);
    } else {  // results are added to a directory that may be that of a training
      from.required_step = -1;
      restored = trainer_->restore(mesh, from);
    }
    if (restored.from_memory && mesh.rank() == agreement.senders.front()) {
      log_continuation(connection, connected, agreed, restored,
                       trainer_->recovery_counts().steps_lost - lost_before);
    }
    members_ = connection.members;
    ProgressPrinter printer(log_, {.terminal = options_.terminal,
                                   .schedule = &job_.schedule,
                                   .logging_strategy = job_.settings.logging_strategy,
                                   .logging_first_step = job_.settings.logging_first_step});
    ProgressReporter reporter(job_, *trainer_, session_, exposition_.get(),
                              is_rank0 ? &printer : nullptr, *peak_, mesh.world());
    if (job_.settings.do_train) {
      const Outcome outcome = train(connection, agreement, reporter);
      printer.end_line();
      if (outcome == Outcome::kStopped) {
        hand_over_state(mesh);
        return false;
      }
      if (is_rank0) {
        log_.info("{}: {} in {}{}", log_lines::kTrained,
                  counted(static_cast<std::size_t>(trainer_->step()), "step"),
                  format_duration(std::chrono::duration<double>(trainer_->train_seconds())),
                  mesh.world() > 1 ? ", " + describe_exchange(reporter.rates()) : "");
      }
    }
    std::int64_t weights_step = trainer_->step();
    if (job_.settings.do_train && job_.settings.load_best_model_at_end) {
      weights_step = trainer_->load_best_model(mesh);
      if (is_rank0) log_best_model(weights_step);
    }
    std::vector<EvaluationResult> evaluations;
    if (job_.settings.do_eval) evaluations = evaluate(mesh, reporter);
    std::vector<EvaluationResult> predictions;
    if (job_.settings.do_predict) predictions = predict(mesh, reporter);
    if (is_rank0) {
      write_output(weights_step, evaluations, predictions, reporter);
      output_is_complete_ = true;
    }
    collectives::barrier(mesh, collective_deadline());
    output_is_complete_ = true;
    reporter.begin_phase("finished");
    return true;
  }

  // At the step boundary where all workers have stopped.
  void hand_over_state(collectives::Mesh& mesh) {
    Departure departure{.is_rank0 = mesh.rank() == 0,
                        .said_to_leave = said_to_leave_,
                        .all_said_to_leave = leaving_ == mesh.world(),
                        // Read once: a signal that comes later is not in what the others hear. A
                        // worker without a state keeps none.
                        .leaves = session_.stopped() || !trainer_->position().complete()};
    if (session_.has_single_epoch()) {
      departure.all_leave = true;
    } else {
      try {
        departure.all_leave =
            collectives::all_of_ranks(mesh, departure.leaves, collective_deadline());
      } catch (const Failure&) {
        if (!session_.epoch_ended()) throw;
      }
    }
    const HandOver decision = hand_over(departure);
    if (decision.writes && has_unsaved_step()) {
      if (departure.all_leave) {
        trainer_->save_checkpoint(mesh.epoch());
      } else {  // others may stay; then those of the next membership epoch write
        save_checkpoint_or_warn(mesh.epoch());
      }
    } else if (decision.is_kept) {
      trainer_->finish_checkpoint_of_epoch();
    }
    // Else throw_if_stopped() tries again.
    state_is_kept_ = decision.is_kept && !(decision.writes && has_unsaved_step());
  }

  // By the lowest of the ranks that had the state.
  void log_continuation(const Connection& connection, MonotonicTime connected, MonotonicTime agreed,
                        const Restored& restored, std::int64_t steps_lost) {
    if (members_.empty()) return;
    ContinuationSummary summary;
    const auto without = [](const std::vector<rendezvous::MemberId>& some,
                            const std::vector<rendezvous::MemberId>& others) {
      std::vector<rendezvous::WorkerProcess> left;
      for (const rendezvous::MemberId& one : some) {
        if (std::ranges::find(others, one) == others.end()) left.push_back(one.process);
      }
      return left;
    };
    const MonotonicTime now = monotonic_now();
    summary.lost = without(members_, connection.members);
    summary.joined = without(connection.members, members_);
    summary.after_loss = broken_;
    summary.step = trainer_->step();
    summary.steps_lost = steps_lost;
    summary.workers = connection.mesh->world();
    summary.bytes = restored.bytes;
    summary.in_background = restored.in_background;
    summary.noticed = epoch_ended_ - last_boundary_;
    summary.join = connection.assigned - epoch_ended_;
    summary.connect = connected - connection.assigned;
    summary.agree = agreed - connected;
    summary.transfer = now - agreed;
    summary.total = now - epoch_ended_;
    log_.info("{}", continuation_line(summary));
  }

  // As in Hugging Face's scripts, each launch with --overwrite_output_dir is a new job, which one
  // without it continues. `job`: the UID of the flags, data and weights, or an agent's --rdzv_id.
  std::string output_uid(const std::string& job) const {
    if (!job_.settings.overwrite_output_dir) {
      return checkpoint::uid_to_continue(job_.settings.output_dir, job);
    }
    std::string launch = session_.launch_uid();
    if (launch.empty()) {
      launch = options_.launch_time ? std::to_string(*options_.launch_time) : random_uuid();
    }
    return checkpoint::uid_of_launch(job, launch);
  }

  // The output directory and its UID are those of a worker that has trained, so that a new rank 0
  // continues to write there; without one, those of rank 0.
  void adopt_output(collectives::Mesh& mesh, const elastic::StateAgreement& agreement) {
    const int root = agreement.senders.empty() ? 0 : agreement.senders.front();
    const auto adopt = [&](const std::string& own) {
      return collectives::broadcast_string(mesh, root, own, PATH_MAX, collective_deadline());
    };
    std::string directory = adopt(job_.settings.output_dir);
    job_.adopt_output(std::move(directory), adopt(job_.uid));
  }

  // Restores the state before it writes the ownership marker, so that a refused start leaves no
  // files. `keeps_output`: rank 0 still has the right to write the output directory. A training
  // that continues from memory needs no storage before the next checkpoint, so an error of it does
  // not end this epoch.
  Restored restore_and_acquire_output_dir(collectives::Mesh& mesh, RestoreFrom from,
                                          bool keeps_output) {
    checkpoint::OutputRequest request{
        job_.uid,
        session_.has_single_epoch() ? std::nullopt : std::optional<std::uint64_t>(mesh.epoch()),
        job_.settings.overwrite_output_dir};
    const bool has_state = from.agreement.source == elastic::StateSource::kMemory;
    const std::string found = run_on_rank0(mesh, [&] {
      auto ownership = checkpoint::OutputOwnership::kNew;
      use_output(has_state, [&] {
        request.keep_checkpoints = checkpoint::is_checkpoint_of(
            job_.settings.resume_from_checkpoint, job_.settings.output_dir);
        try {
          ownership = checkpoint::check_output_dir(job_.settings.output_dir, request);
        } catch (const checkpoint::LaterEpochFailure& failure) {
          // An earlier launch had another coordinator. Those of the operator and of `up` know the
          // job's epochs: there this process is late.
          if (session_.has_uid_of_agent()) session_.raise_epoch(failure.epoch());
          throw;
        }
        if (ownership == checkpoint::OutputOwnership::kOverwritten && !request.keep_checkpoints) {
          warn_of_removed_checkpoints();
        }
      });
      return std::string(ownership == checkpoint::OutputOwnership::kResumed ? kResume : "");
    });
    from.resume = found == kResume;
    from.retry = [this](const std::function<void()>& read) { retry_output(read); };
    const Restored restored = trainer_->restore(mesh, from);
    const auto acquire = [request, directory = job_.settings.output_dir] {
      return checkpoint::acquire_output_dir(directory, request);
    };
    run_on_rank0(mesh, [&] {
      const bool acquired =
          !keeps_output && use_output(has_state, [&] { trainer_->set_output(acquire()); });
      if (!acquired) trainer_->set_output_later(acquire);
      return std::string();
    });
    return restored;
  }

  void warn_of_removed_checkpoints() {
    std::vector<std::string> names;
    for (const std::filesystem::path& path :
         checkpoint::list_checkpoints(job_.settings.output_dir)) {
      names.push_back(path.filename().string());
    }
    if (names.empty()) return;
    log_.warn("{}: --overwrite_output_dir removes {}", job_.settings.output_dir,
              checkpoint::abbreviated_list(names));
  }

  // Without a state as retry_output(). With one tries once: false if the storage is unavailable.
  bool use_output(bool has_state, const std::function<void()>& use) {
    if (!has_state) {
      retry_output(use);
      return true;
    }
    try {
      use();
    } catch (const Failure& failure) {
      if (failure.code() != ExitCode::kOutputUnavailable) throw;
      log_.warn("{}; the training continues", failure.what());
      return false;
    }
    return true;
  }

  void retry_output(const std::function<void()>& use) {
    const auto wait = [&](Duration delay) {
      if (session_.sleep(delay)) return true;
      // The next epoch writes again, so it must not end this process.
      if (session_.epoch_ended() && !session_.stopped()) {
        throw Failure(ExitCode::kPeerLost, session_.reason());
      }
      return false;
    };
    retry_while_unavailable(
        use, {.wait = wait, .warn = [&](const std::string& message) { log_.warn("{}", message); }});
  }

  void log_start(int world) {
    start_logged_ = true;
    log_.info("{}", machine_line({.cpu_model = options_.cpu_model,
                                  .workers = world,
                                  .threads = pool_->size(),
                                  .isa = isa_,
                                  .bf16 = job_.settings.bf16,
                                  .peak_gflops = peak_->gflops()}));
    std::string kernels;
    for (const auto& [operations, names] : trainer_->kernel_names()) {
      kernels += fmt::format("{}{} {}", kernels.empty() ? "" : ", ", operations, names);
    }
    log_.info("kernels: {}", kernels);
    if (const std::string note = arguments_.note(); !note.empty()) log_.info("{}", note);
    if (const std::string type = describe_data_type(arguments_, job_.settings, isa_);
        !type.empty()) {
      log_.info("{}", type);
    }
    if (const std::string line = max_seq_length_line(max_seq_length_, job_); !line.empty()) {
      log_.warn("{}", line);
    }
    log_.info("{}", data_line(job_));
    if (const std::string line = columns_line(job_); !line.empty()) log_.info("{}", line);
    for (const std::string& warning : job_.task->layout_warnings()) log_.warn("{}", warning);
    for (const std::string& warning : job_.train_data.warnings) log_.warn("{}", warning);
    for (const EvaluationSet& set : job_.evaluation_sets) {
      for (const std::string& warning : set.data.warnings) log_.warn("{}", warning);
    }
    log_.info("{}", model_line(job_));
    if (job_.settings.do_train) log_.info("{}", training_line(job_));
  }

  Outcome train(const Connection& connection, const elastic::StateAgreement& agreement,
                ProgressReporter& reporter) {
    collectives::Mesh& mesh = *connection.mesh;
    reporter.begin_phase(training_report::kTrainingPhase);
    TrainerHooks hooks;
    hooks.stop_requested = [&] {
      said_to_leave_ = session_.stopped().has_value();
      if (said_to_leave_) return StopRequest::kLeave;
      return session_.stop_requested() ? StopRequest::kStop : StopRequest::kNone;
    };
    last_boundary_ = monotonic_now();
    hooks.on_step = [&](const StepReport& report, const Rates& rates) {
      last_boundary_ = monotonic_now();
      leaving_ = report.leaving;
      reporter.add_step(report, rates);
    };
    RankSpeeds speeds;
    hooks.on_speeds = [&](const RankSpeeds& now) {
      reporter.set_speeds(now, connection.members, mesh.rank());
      if (mesh.rank() == 0 && !now.speeds.empty()) {
        reporter.end_line();
        for (const std::string& line :
             speed_lines(speeds, now, rank_names(connection), job_.settings.exact)) {
          log_.info("{}", line);
        }
      }
      speeds = now;
    };
    hooks.on_state_sent = [&, first_step = trainer_->step() + 1] {
      if (mesh.rank() != agreement.senders.front()) return;
      reporter.end_line();
      log_.info("{}", state_sent_line(rank_names(connection), agreement.receivers, first_step,
                                      trainer_->step()));
    };
    hooks.before_evaluation = [&] { reporter.begin_phase(training_report::kEvaluatingPhase); };
    hooks.before_evaluation_batch = [&] { end_evaluation_if_stopped(mesh); };
    hooks.on_evaluation = [&](const EvaluationResult& evaluation) {
      reporter.add_evaluation(evaluation);
      reporter.begin_phase(training_report::kTrainingPhase);
      if (mesh.rank() != 0) return;
      reporter.end_line();
      log_.info("{}", evaluation_line(evaluation, trainer_->step()));
    };
    return trainer_->train(mesh, hooks);
  }

  std::vector<EvaluationResult> evaluate(collectives::Mesh& mesh, ProgressReporter& reporter) {
    reporter.begin_phase(training_report::kEvaluatingPhase);
    std::vector<EvaluationResult> evaluations;
    for (const EvaluationSet& set : job_.evaluation_sets) {
      evaluations.push_back(
          trainer_->evaluate(mesh, set, [&] { end_evaluation_if_stopped(mesh); }));
      reporter.add_evaluation(evaluations.back());
      if (mesh.rank() == 0) log_.info("{}", results_line(evaluations.back()));
    }
    return evaluations;
  }

  // The training rows are read for nothing else, perhaps for the first time; some may be missing or
  // wrong.
  void log_baselines() {
    const std::int64_t limit = job_.settings.max_eval_samples;
    try {
      const auto baselines = job_.task->baselines(job_.settings.data_dir,
                                                  limit > 0 ? static_cast<std::size_t>(limit) : 0);
      if (!baselines.empty()) log_.info("{}", baselines_line(baselines));
    } catch (const Failure& failure) {
      log_.warn("no baselines: {}", failure.what());
    }
  }

  std::vector<EvaluationResult> predict(collectives::Mesh& mesh, ProgressReporter& reporter) {
    reporter.begin_phase("predicting");
    std::vector<EvaluationResult> predictions;
    for (const EvaluationSet& set : job_.prediction_sets) {
      predictions.push_back(
          trainer_->evaluate(mesh, set, [&] { end_evaluation_if_stopped(mesh); }));
    }
    return predictions;
  }

  void log_best_model(std::int64_t step) {
    const std::optional<double>& metric = trainer_->state().best_metric;
    if (!metric) {
      const bool evaluated =
          std::ranges::any_of(trainer_->state().log_history,
                              [](const auto& entry) { return entry.contains("eval_loss"); });
      log_.warn("{}; the model is that of the last step",
                evaluated ? fmt::format("no evaluation had a number for {}",
                                        job_.settings.metric_for_best_model)
                          : fmt::format("no evaluation was due in {} (--eval_strategy {})",
                                        counted(static_cast<std::size_t>(trainer_->step()), "step"),
                                        job_.settings.eval_strategy));
      return;
    }
    if (step != trainer_->state().best_global_step) return;  // its checkpoint is missing
    log_.info("the best model is that of step {}: {} {:.4f}", step,
              job_.settings.metric_for_best_model, *metric);
  }

  // Rank 0 only. `weights_step` as for make_results().
  void write_output(std::int64_t weights_step, std::span<const EvaluationResult> evaluations,
                    std::span<const EvaluationResult> predictions, ProgressReporter& reporter) {
    const Results results =
        make_results(job_, *trainer_, weights_step, isa_, evaluations, predictions);
    if (job_.settings.output_dir.empty()) {
      printed_results_ = results.files.at(training_report::kAllResultsFile);
      return;
    }
    printed_results_ = metrics_blocks(results);
    if (!job_.settings.do_train) {
      reporter.begin_phase("writing the results");
      retry_output([&] { write_result_files(job_.settings.output_dir, results.files); });
      log_.info("{}: {}", log_lines::kOutput, job_.settings.output_dir);
      return;
    }
    reporter.begin_phase("writing the model");
    std::string digest;
    retry_output([&] { digest = trainer_->write_model(results.files); });
    log_.info("{}: {}", log_lines::kOutput, job_.settings.output_dir);
    log_.info("{}: SHA-256 {}", log_lines::kOutput, digest);
  }

  const RunOptions& options_;
  elastic::Session& session_;
  Logger& log_;
  const TrainingArguments& arguments_;
  Faults faults_;
  std::unique_ptr<metrics::Exposition> exposition_;  // null: /metrics is not served
  std::int64_t max_seq_length_ = 0;                  // of the flags; see max_seq_length_line()
  Job job_;
  std::optional<runtime::ThreadPool> pool_;
  runtime::Isa isa_ = runtime::Isa::kRef;
  std::unique_ptr<Trainer> trainer_;
  std::optional<kernels::PeakMeter> peak_;  // of this worker's CPUs
  bool new_worker_ = true;                  // until the first check of the memory of all processes
  bool start_logged_ = false;
  EpochLimit epoch_limit_;
  std::uint64_t epoch_ = 0;                    // the last membership epoch; 0: none
  bool is_rank0_ = false;                      // whether this process is rank 0 of epoch_
  std::vector<rendezvous::MemberId> members_;  // of the last membership epoch that began
  bool broken_ = false;                        // the last membership epoch ended with a failure
  bool state_is_kept_ = false;                 // by other workers or in a checkpoint
  bool output_is_complete_ = false;            // as far as this process knows
  MonotonicTime epoch_ended_;
  // Said in the last step: that this worker leaves, and how many leave.
  bool said_to_leave_ = false;
  int leaving_ = 0;
  MonotonicTime last_boundary_;  // the end of the last step, or the beginning of the training
  std::string printed_results_;  // on standard output at the end
};

}  // namespace

hub::HubOptions hub_options(const TrainingArguments& arguments, const RunOptions& options,
                            Logger& log) {
  const TrainingSettings& settings = arguments.settings();
  hub::HubOptions hub =
      hub::options_from_environment(options.variable, settings.cache_dir, settings.token);
  hub.progress = [&log](const std::string& line) { log.info("{}", line); };
  hub.cancel = options.cancel;
  return hub;
}

void run_training(const TrainingArguments& arguments, const RunOptions& options,
                  elastic::Session& session, Logger& log) {
  TrainingRun(arguments, options, session, log).run();
}

}  // namespace tilewright::train
