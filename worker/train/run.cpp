#include "worker/train/run.h"

#include "common/contract/reported.h"
#include "worker/checkpoint/output_claim.h"
#include "worker/collectives/exchange.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/train/results.h"
#include "worker/train/trainer.h"

namespace tilewright::train {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;

// Workers of one epoch are there already when it begins.
constexpr std::chrono::seconds kConnectLimit{30};

// Meets the other workers, epoch after epoch, through one listening socket.
class Connector {
 public:
  Connector(elastic::Session& session, Logger& log) : session_(session), log_(log) {
    if (session.alone()) return;
    listener_.emplace(net::Listener::bind(session.address()).or_throw());
    session.listen_at(listener_->local_address());
  }
  std::unique_ptr<collectives::Mesh> connect(std::int64_t last_checkpoint_step);

 private:
  elastic::Session& session_;
  Logger& log_;
  std::optional<net::Listener> listener_;
};

// While it lives, the end of the epoch ends the waits of the mesh.
class AbortWithEpoch {
 public:
  AbortWithEpoch(elastic::Session& session, collectives::Mesh& mesh) : session_(session) {
    session.on_epoch_end([&mesh](const std::string& reason) { mesh.abort(reason); });
  }
  ~AbortWithEpoch() { session_.on_epoch_end({}); }
  AbortWithEpoch(const AbortWithEpoch&) = delete;
  AbortWithEpoch& operator=(const AbortWithEpoch&) = delete;

 private:
  elastic::Session& session_;
};

std::string in_words(const tasks::Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

// What rank 0 finds in the output folder: whether this job has been there before. All fail with its
// sentence when the folder cannot be had.
template <typename Find>
bool on_first(collectives::Mesh& mesh, const Find& find) {
  std::string outcome;
  if (mesh.rank() == 0) {
    try {
      outcome = find() == checkpoint::Claim::kResumed ? "resume" : "new";
    } catch (const Failure& failure) {
      outcome = "E" + std::string(failure.what());
    }
  }
  outcome =
      collectives::broadcast_text(mesh, 0, outcome, kMaxTextBytes, monotonic_now() + kPatience);
  if (outcome.starts_with("E")) throw Failure(ExitCode::kOutput, outcome.substr(1));
  return outcome == "resume";
}

// The state to train from, then the claim: a start that is refused leaves nothing behind.
void restore_and_claim(const Job& job, Trainer& trainer, collectives::Mesh& mesh) {
  const Settings& s = job.settings;
  const bool resume = on_first(mesh, [&] {
    return checkpoint::examine_output(s.output_dir, job.uid, s.overwrite_output_dir);
  });
  trainer.restore(mesh, resume);
  on_first(mesh,
           [&] { return checkpoint::claim_output(s.output_dir, job.uid, s.overwrite_output_dir); });
}

// Workers that read other data or flags would compute another sum; better to stop.
void check_alike(const Job& job, collectives::Mesh& mesh) {
  const std::string own = job.fingerprint.dump();
  const auto all = collectives::all_gather(mesh, own, kMaxTextBytes, monotonic_now() + kPatience);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto first = nlohmann::json::parse(all[0], nullptr, false);
    const auto other = nlohmann::json::parse(all[rank], nullptr, false);
    for (const auto& [name, value] : first.items()) {
      if (!other.contains(name) || other[name] != value) {
        throw Failure(
            ExitCode::kUsage,
            fmt::format("rank {} has {} = {}, rank 0 has {}: all workers of a job need the "
                        "same flags, model and data",
                        rank, name, other.contains(name) ? other[name].dump() : "nothing",
                        value.dump()));
      }
    }
    throw Failure(ExitCode::kUsage, fmt::format("rank {} has other settings than rank 0", rank));
  }
}

// Processes that fit singly need not fit together. Those that were in an epoch before hold what
// they need and are only counted: whoever comes anew has to find room beside them.
void check_memory_together(const Trainer& trainer, collectives::Mesh& mesh, bool newcomer) {
  if (mesh.world() == 1) return;
  std::vector<MemoryDemand> demands;
  for (const std::string& text :
       collectives::all_gather(mesh, encode(demand_now(trainer.memory_need().total())),
                               kMaxTextBytes, monotonic_now() + kPatience)) {
    demands.push_back(decode_demand(text));
  }
  if (!newcomer) return;
  check_shared_memory(trainer.memory_need(), demands, static_cast<std::size_t>(mesh.rank()));
}

void stop_if_told(elastic::Session& session) {
  const std::optional<ExitCode> code = session.stopped();
  if (!code) return;
  session.leave("stopped by a signal");
  throw Failure(*code, "stopped by a signal");
}

// Waits for the next epoch and connects its workers; null: the job is finished.
std::unique_ptr<collectives::Mesh> Connector::connect(std::int64_t last_checkpoint_step) {
  for (;;) {
    const std::optional<rendezvous::Assignment> assignment = session_.join(last_checkpoint_step);
    if (!assignment) return nullptr;
    if (session_.alone()) return collectives::Mesh::alone();
    log_.info("membership epoch {}: rank {} of {}", assignment->epoch, assignment->rank,
              assignment->world);
    collectives::MeshConfig config;
    config.job_uid = session_.job_uid();
    config.epoch = assignment->epoch;
    config.rank = assignment->rank;
    config.tls = session_.tls();
    for (const rendezvous::Peer& peer : assignment->peers) {
      config.peers.push_back(net::parse_address(peer.address).or_throw());
    }
    try {
      return collectives::build_mesh(*listener_, config, session_.key(),
                                     monotonic_now() + kConnectLimit, &session_.epoch_bell());
    } catch (const Failure& failure) {
      stop_if_told(session_);
      if (failure.code() != ExitCode::kPeerLost) throw;
      log_.warn("membership epoch {} ended before it began: {}", config.epoch, failure.what());
    }
  }
}

// Everything of one membership epoch. False: the epoch was left for the next one. `newcomer` until
// the memory of all has been checked once.
bool run_epoch(const Job& job, Trainer& trainer, collectives::Mesh& mesh, double peak_gflops,
               const RunOptions& options, elastic::Session& session,
               metrics::Exposition* exposition, bool& newcomer, Logger& log) {
  check_alike(job, mesh);
  trainer.begin_epoch(mesh);
  check_memory_together(trainer, mesh, newcomer);
  newcomer = false;
  restore_and_claim(job, trainer, mesh);
  const bool first = mesh.rank() == 0;
  rendezvous::Progress progress;
  progress.total_steps = job.schedule.total_steps;
  progress.last_checkpoint_step = trainer.last_checkpoint_step();
  ProgressPrinter printer(log, options.terminal, peak_gflops * mesh.world());
  const auto report_progress = [&] {
    session.report(progress);
    if (exposition != nullptr) exposition->set(progress);
  };
  const auto phase = [&](const char* name) {
    progress.phase = name;
    report_progress();
  };
  if (job.settings.do_train) {
    phase(reported::kTrainingPhase);
    TrainerHooks hooks;
    hooks.should_leave = [&] { return session.should_leave(); };
    hooks.on_step = [&](const StepReport& report, const Rates& rates) {
      progress.step = report.step;
      progress.epoch_of_data = report.epoch;
      progress.loss = report.loss;
      progress.learning_rate = report.learning_rate;
      progress.examples_per_second = rates.examples_per_second;
      progress.tokens_per_second = rates.tokens_per_second;
      progress.last_checkpoint_step = trainer.last_checkpoint_step();
      progress.metrics = {{reported::kGflops, rates.gflops},
                          {reported::kPeakGflops, peak_gflops * mesh.world()},
                          {reported::kEtaSeconds, rates.eta_seconds},
                          {reported::kGradNorm, report.grad_norm}};
      report_progress();
      if (first) printer.show(report, rates, monotonic_now());
    };
    const Outcome outcome = trainer.train(mesh, hooks);
    printer.release();
    if (outcome == Outcome::kLeft) {
      // What was trained since the last checkpoint is not to be trained again.
      if (first && trainer.step() > trainer.last_checkpoint_step()) {
        trainer.write_checkpoint(mesh.epoch());
      }
      return false;
    }
    if (first) {
      log.info("trained {} steps in {}", trainer.step(),
               to_words(std::chrono::duration<double>(trainer.train_seconds())));
    }
  }
  std::optional<EvaluationResult> evaluation;
  if (job.settings.do_eval) {
    phase("evaluating");
    evaluation = trainer.evaluate(mesh);
    for (const auto& [name, value] : evaluation->metrics) {
      progress.metrics[fmt::format("{}{}", reported::kEvaluationPrefix, name)] = value;
    }
    if (first) {
      log.info("evaluation on {} examples: {}, loss {:.4f}", evaluation->examples,
               in_words(evaluation->metrics), evaluation->loss);
      for (const tasks::Baseline& baseline : job.task->baselines(job.settings.data_dir)) {
        log.info("baseline {}: {}", baseline.name, in_words(baseline.metrics));
      }
    }
  }
  if (first) {
    phase("writing the model");
    const std::string digest = trainer.write_model(result_files(job, trainer, evaluation));
    log.info("model written to {} (SHA-256 of model.safetensors {})",
             job.settings.output_dir.string(), digest);
  }
  collectives::barrier(mesh, monotonic_now() + kPatience);
  phase("finished");
  return true;
}

}  // namespace

void run_training(const TrainingArguments& arguments, const RunOptions& options,
                  elastic::Session& session, Logger& log) {
  const Settings settings = make_settings(arguments, options.world_at_start);
  Faults faults = Faults::parse(options.fault).or_throw();
  std::unique_ptr<metrics::Exposition> exposition;
  if (options.metrics_address) {
    exposition = metrics::Exposition::serve(*options.metrics_address, options.identity).or_throw();
  }
  const Job job = load_job(settings, session.job_uid(), log);
  runtime::ThreadPool pool(settings.threads > 0 ? settings.threads : options.threads);
  const std::unique_ptr<Trainer> trainer = make_trainer(job, options.isa, pool, faults, log);
  const double peak = kernels::measure_peak_gflops(options.isa, settings.bf16, pool);
  log.info("{}, {} threads, {} ({}), ceiling {:.0f} GFLOP/s", options.cpu_model, pool.size(),
           runtime::name(options.isa), settings.bf16 ? "bf16" : "fp32", peak);
  for (const auto& [operation, kernel] : trainer->kernel_names()) {
    log.info("kernel of {}: {}", operation, kernel);
  }
  if (settings.do_train) {
    log.info("{} steps of {} examples in {} shards, {}", job.schedule.total_steps,
             settings.global_batch, settings.virtual_shards,
             settings.exact ? "exact" : "exact mode off");
  }
  Connector connector(session, log);
  bool newcomer = true;
  for (;;) {
    const std::unique_ptr<collectives::Mesh> mesh =
        connector.connect(trainer->last_checkpoint_step());
    if (mesh == nullptr) return;
    if (exposition) exposition->begin_epoch({mesh->epoch(), mesh->rank(), mesh->world()});
    // A worker that is alone has one epoch.
    faults.enter(options.worker_index, session.alone() ? 1 : mesh->epoch());
    try {
      bool done = false;
      {
        const AbortWithEpoch abort(session, *mesh);
        done = run_epoch(job, *trainer, *mesh, peak, options, session, exposition.get(), newcomer,
                         log);
      }
      if (done && session.finish()) return;
    } catch (const Failure& failure) {
      stop_if_told(session);
      if (failure.code() != ExitCode::kPeerLost || session.alone()) throw;
      log.warn("membership epoch {} ended: {}", mesh->epoch(), failure.what());
    }
    stop_if_told(session);
  }
}

}  // namespace tilewright::train
