#include "worker/train/trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <span>

#include "common/base/clock.h"
#include "common/base/strings.h"
#include "common/contract/virtual_shards.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/hosts.h"
#include "worker/collectives/reducer.h"
#include "worker/runtime/available_memory.h"
#include "worker/train/collective_limits.h"
#include "worker/train/memory_plan.h"
#include "worker/train/step.h"

namespace tilewright::train {
namespace {

// The distinct names, in order, joined by '/'.
std::string join_distinct(const std::vector<std::string>& names) {
  std::string joined;
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) continue;
    joined += (joined.empty() ? "" : "/") + *name;
  }
  return joined;
}

// Throws Failure(kPeerLost) for a string that no worker can have sent.
int decode_buffer_count(const std::string& text) {
  if (const auto count = parse_number<int>(text, 0)) return *count;
  throw Failure(ExitCode::kPeerLost, "a worker sent an invalid number of gradient buffers");
}

template <typename Activation>
class TypedTrainer final : public Trainer {
 public:
  TypedTrainer(const Job& job, runtime::Isa isa, runtime::ThreadPool& pool, Faults& faults,
               Logger& log, const Clock& clock)
      : job_(job),
        faults_(faults),
        log_(log),
        ops_(kernels::make_ops<Activation>(isa, job.settings.uses_onednn()
                                                    ? kernels::GemmBackend::kOneDnn
                                                    : kernels::GemmBackend::kNative)),
        parameter_ops_(kernels::make_parameter_ops(isa)),
        context_{pool, ops_, parameter_ops_},
        plan_(plan_memory(job)),
        memory_estimate_(checked_estimate()),
        model_(job.model.encoder, context_),
        optimizer_(model_, context_, adamw_settings(job.settings)),
        state_(job, model_, optimizer_, parameter_ops_, faults, log),
        evaluator_(job, model_),
        shards_(static_cast<int>(job.settings.virtual_shards)) {
    model_.reserve(plan_.training, shards_, plan_.evaluation);
    if (job.settings.do_train) step_.emplace(job, model_, optimizer_, pool, faults, clock, plan_);
  }

  void touch_memory() override {
    std::vector<std::span<std::byte>> buffers = model_.memory();
    const auto append = [&](const std::vector<std::span<std::byte>>& more) {
      buffers.insert(buffers.end(), more.begin(), more.end());
    };
    append(optimizer_.memory());
    if (step_) append(step_->memory());
    touch_buffers(buffers, context_.pool, [] { return runtime::available_memory(); });
  }

  void begin_epoch(const collectives::Mesh& mesh) override {
    if (mesh.rank() != 0) state_.output().give_up();
    const Settings& s = job_.settings;
    if (!s.do_train) return;
    if (s.exact && mesh.world() > shards_) {
      throw Failure(ExitCode::kUsage, fmt::format("found {} processes, expected at most {}, the "
                                                  "number of virtual shards",
                                                  mesh.world(), shards_));
    }
    const std::size_t needed =
        gradients_for(collectives::even_split(mesh.world(), shards_), mesh.rank());
    if (needed <= step_->gradient_buffers()) return;
    MemoryEstimate need = memory_estimate_;
    need.gradients = needed * step_->gradient_buffer_bytes();
    check_memory(need, runtime::available_memory() + memory_demand().held);
    reserve_gradients(needed);
  }

  void end_epoch() override { state_.abandon_transfer(); }

  bool trains_without_receivers(collectives::Mesh& mesh,
                                const elastic::StateAgreement& agreement) const override {
    if (!allows_background(agreement)) return false;
    // The numbers of planned buffers differ if --max_workers does.
    const auto split = collectives::even_split_without(agreement.receivers, mesh.world(), shards_);
    const bool has_buffers = gradients_for(split, mesh.rank()) <= step_->gradient_buffers();
    return collectives::all_of_ranks(mesh, has_buffers, collective_deadline());
  }
  elastic::TrainingPosition position() const override { return state_.position(); }
  bool can_save() const override { return state_.can_save(); }
  Restored restore(collectives::Mesh& mesh, const RestoreFrom& from) override {
    finite_step_ = -1;
    RestoreFrom with = from;
    with.in_background = mesh.background() != nullptr && allows_background(from.agreement);
    const Restored restored = state_.restore(mesh, with);
    not_asked_at_.reset();
    if (restored.in_background) agreement_ = from.agreement;
    return restored;
  }
  SavedState save_state() const override { return state_.save(); }
  void load_state(const SavedState& saved) override { state_.load(saved); }

  Outcome train(collectives::Mesh& mesh, const TrainerHooks& hooks) override {
    const MonotonicTime begin = monotonic_now();
    state_.progress().start_clock();
    const std::int64_t rows_before = model_.counters().forward;
    const std::int64_t tokens_before = step_->local_tokens();
    Outcome outcome = Outcome::kComplete;
    try {
      outcome = run_steps(mesh, hooks, begin);
    } catch (const Failure& failure) {
      end_epoch();
      state_.progress().stop_clock();
      if (failure.code() == ExitCode::kDiverged) {
        state_.invalidate();  // AdamW may have changed the weights
        wait_for_all(mesh);
      }
      throw;
    }
    state_.progress().stop_clock();
    log_.debug("computed {} rows for {} tokens of this worker's examples",
               model_.counters().forward - rows_before, step_->local_tokens() - tokens_before);
    return outcome;
  }

  EvaluationResult evaluate(collectives::Mesh& mesh, const EvaluationSet& set,
                            const std::function<void()>& before_batch) override {
    faults_.hit("evaluate.begin");
    return evaluator_.evaluate(mesh, set, [&] {
      faults_.hit("evaluate.batch");
      if (before_batch) before_batch();
    });
  }

  std::int64_t load_best_model(collectives::Mesh& mesh) override {
    return state_.load_best_model(mesh);
  }

  void set_output(checkpoint::OutputWriter output) override {
    state_.output().set(std::move(output));
  }
  void set_output_later(std::function<checkpoint::OutputWriter()> take) override {
    state_.output().set_later(std::move(take));
  }
  bool keeps_output() const override { return state_.output().is_kept(); }
  bool release_empty_output() override { return state_.output().release_empty(); }
  std::string write_model(const std::map<std::string, std::string>& results) override {
    return state_.output().write_model(results);
  }
  void save_checkpoint(std::uint64_t membership_epoch) override {
    // The step may be one after which the membership epoch ended before they were checked.
    if (!weights_are_finite()) throw Failure(ExitCode::kDiverged, "a weight is not finite");
    state_.output().save_checkpoint(membership_epoch);
  }
  void finish_checkpoint(Duration timeout) override { state_.output().finish_checkpoint(timeout); }
  void finish_checkpoint_of_epoch() override { state_.output().finish_checkpoint_of_epoch(); }

  std::int64_t step() const override { return state_.progress().step(); }
  std::int64_t last_checkpoint_step() const override {
    return state_.output().last_checkpoint_step();
  }
  std::int64_t failed_checkpoints() const override { return state_.output().failed_checkpoints(); }
  double checkpoint_wait_seconds() const override {
    return state_.output().checkpoint_wait_seconds();
  }
  const checkpoint::TrainerState& state() const override {
    return state_.progress().trainer_state();
  }
  const MemoryEstimate& memory_estimate() const override { return memory_estimate_; }
  MemoryDemand memory_demand() const override {
    return current_demand(memory_estimate_.total(),
                          runtime::anonymous_rss() + (step_ ? step_->shared_bytes() : 0));
  }
  const RecoveryCounts& recovery_counts() const override {
    return state_.progress().recovery_counts();
  }
  double train_seconds() const override { return state_.progress().train_seconds(); }
  double compute_seconds() const override { return step_ ? step_->compute_seconds() : 0; }

  std::vector<std::pair<std::string, std::string>> kernel_names() const override {
    return {
        {"linear", join_distinct({ops_.linear_forward.name, ops_.linear_backward_input.name,
                                  ops_.linear_backward_weight.name})},
        {"attention", join_distinct({ops_.attention_forward.name, ops_.attention_backward.name})},
        {"other",
         join_distinct({ops_.embed_norm_forward.name, ops_.add_norm_forward.name,
                        ops_.add_norm_backward.name, ops_.gelu_forward.name,
                        ops_.gelu_backward.name, ops_.tanh_dropout_forward.name,
                        ops_.softmax_cross_entropy.name, parameter_ops_.embedding_backward.name,
                        parameter_ops_.adamw.name, parameter_ops_.sum_of_squares.name})}};
  }

 private:
  // Releases them at the end of a membership epoch. A peer maps them as well: one that is frozen in
  // an earlier epoch must not keep those of later epochs allocated.
  struct SharedGradientsOfEpoch {
    TrainingStep<Activation>& step;
    ~SharedGradientsOfEpoch() { step.release_shared_gradients(); }
  };

  static nn::AdamWSettings adamw_settings(const Settings& s) {
    return {.beta1 = s.adam_beta1,
            .beta2 = s.adam_beta2,
            .epsilon = s.adam_epsilon,
            .weight_decay = s.weight_decay,
            .max_grad_norm = s.max_grad_norm};
  }

  MemoryEstimate checked_estimate() const {
    const MemoryEstimate estimate = estimate_memory(job_, context_, plan_);
    check_memory(estimate, runtime::available_memory());
    return estimate;
  }

  // Gradient buffers that a rank needs in a step. The last step of a data epoch may have fewer
  // examples; it never needs more. A rank without shards has one for the sum.
  std::size_t gradients_for(std::span<const collectives::Range> split, int rank) const {
    return static_cast<std::size_t>(
        std::max(1, plan_step(job_.settings, split, rank, job_.settings.global_batch).gradients()));
  }

  // Equal on all ranks. Without exact mode, sums of other shards have other bits. A single rank
  // that has the state must not train on: its loss would cost all steps since the last checkpoint.
  bool allows_background(const elastic::StateAgreement& agreement) const {
    return job_.settings.do_train && job_.settings.exact && agreement.senders.size() >= 2 &&
           !agreement.receivers.empty();
  }

  void reserve_gradients(std::size_t buffers) {
    step_->reserve_gradients(buffers);
    memory_estimate_.gradients = step_->gradient_buffers() * step_->gradient_buffer_bytes();
  }

  // The gradient buffers for which each rank has memory, by rank. Collective.
  std::vector<int> gradient_limits(collectives::Mesh& mesh) const {
    const MemoryDemand own = memory_demand();
    const std::vector<MemoryDemand> demands = gather_demands(mesh, own);
    const std::uint64_t available = runtime::available_memory() + own.held;
    const std::uint64_t spare =
        std::min(spare_memory(demands, static_cast<std::size_t>(mesh.rank())),
                 available > own.need ? available - own.need : 0);
    const std::uint64_t more =
        std::min<std::uint64_t>(spare / step_->gradient_buffer_bytes(), kMaxVirtualShards);
    std::vector<int> limits;
    for (const std::string& text :
         collectives::all_gather(mesh, std::to_string(step_->gradient_buffers() + more),
                                 kMaxCollectiveBytes, collective_deadline())) {
      limits.push_back(decode_buffer_count(text));
    }
    return limits;
  }

  // After a window of the balancer: moves shards if another split is better. Collective.
  void balance(collectives::Mesh& mesh, ShardBalancer& balancer,
               std::optional<collectives::Reducer>& reducer, const TrainerHooks& hooks) {
    using collectives::Range;
    auto split = balancer.better_split([](int, Range) { return true; });
    if (split) {
      const std::vector<int> limits = gradient_limits(mesh);
      split = balancer.better_split([&](int rank, Range own) {
        return plan_shards(job_.settings, own, job_.settings.global_batch).gradients() <=
               limits[static_cast<std::size_t>(rank)];
      });
      if (split) {
        reserve_gradients(gradients_for(*split, mesh.rank()));
        balancer.set_split(*split);
        start_reducer(mesh, *split, reducer);
      } else {
        balancer.postpone();
        if (mesh.rank() == 0) {
          log_.warn("no shards move: the faster workers lack memory for another gradient buffer");
        }
      }
    }
    if ((split || balancer.slow_ranks_changed()) && hooks.on_speeds) {
      hooks.on_speeds({balancer.speeds(), balancer.split()});
    }
  }

  // Replaces the reducer and allocates the gradients that it sums. Collective.
  void start_reducer(collectives::Mesh& mesh, std::span<const collectives::Range> split,
                     std::optional<collectives::Reducer>& reducer) {
    reducer.reset();
    step_->place_gradients(mesh, gradients_for(split, mesh.rank()));
    collectives::ReducerOptions options;
    options.mode =
        job_.settings.exact ? collectives::ReduceMode::kExact : collectives::ReduceMode::kPlain;
    options.faults.hook = [this](const char* point) { faults_.hit(point); };
    options.idle_timeout = kCollectiveTimeout;
    if (state_.receives()) options.idle_timeout = kLongestStep;
    options.ranks_per_host = hosts_.ranks_per_host;
    options.chunk_elements = hosts_.chunk_elements;
    options.memory = step_->shared_gradients();
    reducer.emplace(mesh, split, shards_, options);
  }

  // If this worker exited first, the others would report a lost peer instead of the divergence.
  void wait_for_all(collectives::Mesh& mesh) {
    try {
      collectives::barrier(mesh, collective_deadline());
    } catch (const Failure& failure) {
      log_.debug("the other workers stopped first: {}", failure.what());
    }
  }

  // Finite gradients can give infinite weights, which the loss shows only in the next step.
  bool weights_are_finite() {
    if (finite_step_ == state_.progress().step()) return true;
    constexpr std::int64_t kGrain = 1 << 16;
    const std::span<const float> weights = model_.parameters();
    std::atomic<bool> finite = true;
    context_.pool.for_ranges(
        static_cast<std::int64_t>(weights.size()), kGrain,
        [&](std::int64_t begin, std::int64_t end) {
          if (!std::isfinite(parameter_ops_.sum_of_squares(weights.data() + begin, end - begin))) {
            finite = false;
          }
        });
    if (finite) finite_step_ = state_.progress().step();
    return finite;
  }

  // What is due after the completed step. A worker that has got this state from others, or is rank
  // 0 only now, makes up for what they have not completed.
  void finish_step(collectives::Mesh& mesh, const TrainerHooks& hooks, RateMeter& meter) {
    // Before the checkpoint of this step, which has the best metric and the log history.
    if (state_.progress().evaluation_pending()) {
      if (hooks.before_evaluation) hooks.before_evaluation();
      // One set, as the Trainer of run_glue.py has: MNLI's matched examples.
      const EvaluationResult result =
          evaluate(mesh, job_.evaluation_sets.front(), hooks.before_evaluation_batch);
      state_.progress().add_evaluation(result);
      if (hooks.on_evaluation) hooks.on_evaluation(result);
      meter.restart(monotonic_now());
    }
    // A new rank 0 has no weights yet, but may have a checkpoint to make up for.
    if (!state_.position().complete()) return;
    // A failed checkpoint, which only rank 0 knows, is not tried again with infinite weights.
    TrainingOutput& output = state_.output();
    if (mesh.rank() != 0 || !output.save_due(monotonic_now()) || !weights_are_finite()) return;
    reserve_checkpoint_copy();
    if (mesh.world() > 1 && output.must_save_now()) {
      output.save_checkpoint(mesh.epoch());
    } else {
      output.start_checkpoint(mesh.epoch());
    }
  }

  // Not during a transfer, after which the ranks need more gradient buffers.
  void reserve_checkpoint_copy() {
    if (state_.transfer() != nullptr) return;
    memory_estimate_.checkpoint_copy = state_.output().reserve_checkpoint_copy();
  }

  // Throws a Failure if this worker, which has no state yet, may have been asked to leave for too
  // long.
  void leave_without_state(const TrainerHooks& hooks) {
    const MonotonicTime now = monotonic_now();
    const bool leaves = hooks.stop_requested && hooks.stop_requested() == StopRequest::kLeave;
    if (!leaves || !not_asked_at_) not_asked_at_ = now;
    if (!leaves || now - *not_asked_at_ < state_.transfer_options().leave_after) return;
    throw Failure(ExitCode::kPeerLost, "this worker leaves before it has the state");
  }

  // Whether all ranks have the state; they come to the same result.
  bool end_step_of_transfer(collectives::Mesh& mesh, const StepReport& report,
                            ShardBalancer& balancer, std::optional<collectives::Reducer>& reducer,
                            const TrainerHooks& hooks) {
    const std::vector<int>& senders = agreement_.senders;
    // A checkpoint is written by a rank that has the weights, or later.
    const bool all_use_weights =
        state_.progress().evaluation_pending() || report.step == report.total_steps;
    if (report.state_senders_done == std::ssize(senders)) {
      state_.finish_transfer();
    } else if (all_use_weights || report.stop_requested) {
      // The rest may take longer than processes have to stop.
      const auto limit =
          report.leaving > 0 ? std::optional(state_.transfer_options().leave_after) : std::nullopt;
      if (!state_.send_rest(mesh, limit)) {
        if (senders.front() == 0 && !all_use_weights) return false;  // rank 0 writes if it must
        // A rank that has the state writes after the end of the epoch.
        throw Failure(ExitCode::kPeerLost, "workers leave before all have the state");
      }
    } else {
      return false;
    }
    balancer.set_split(collectives::even_split(mesh.world(), shards_));
    start_reducer(mesh, balancer.split(), reducer);
    if (hooks.on_state_sent) hooks.on_state_sent();
    if (hooks.on_speeds) hooks.on_speeds({balancer.speeds(), balancer.split()});
    return true;
  }

  Outcome run_steps(collectives::Mesh& mesh, const TrainerHooks& hooks, MonotonicTime begin) {
    TrainingProgress& progress = state_.progress();
    hosts_ = collectives::agree_on_hosts(mesh, collective_deadline());
    if (mesh.rank() == 0 && hosts_.ranks_per_host > 1) {
      log_.info("gradients are summed on each host first: {} hosts with {} processes each",
                mesh.world() / hosts_.ranks_per_host, hosts_.ranks_per_host);
    }
    // A membership epoch begins with the even split, or with that of the ranks that have the state.
    ShardBalancer balancer(mesh.world(), shards_, job_.settings.exact);
    if (state_.transfer() != nullptr) {
      balancer.set_split(
          collectives::even_split_without(agreement_.receivers, mesh.world(), shards_));
    }
    const SharedGradientsOfEpoch gradients{*step_};
    std::optional<collectives::Reducer> reducer;
    start_reducer(mesh, balancer.split(), reducer);
    if (hooks.on_speeds) hooks.on_speeds({balancer.speeds(), balancer.split()});
    RateMeter meter;
    meter.restart(begin);
    for (bool stop = false;;) {
      finish_step(mesh, hooks, meter);
      if (progress.step() >= job_.schedule.total_steps) return Outcome::kComplete;
      if (stop) return Outcome::kStopped;
      progress.begin_step();
      if (state_.receives()) leave_without_state(hooks);
      if (state_.transfer() != nullptr) state_.open_transfer_window();
      const StepReport report = step_->run(progress.step(), mesh, *reducer, balancer.split(),
                                           hooks.stop_requested, state_.transfer());
      progress.add(report);
      stop = report.stop_requested;
      // All workers have the same weights and come to the same result.
      const bool weights_used = progress.evaluation_pending() || progress.checkpoint_due() ||
                                stop || progress.step() == job_.schedule.total_steps;
      const bool all_have_state = state_.transfer() == nullptr ||
                                  end_step_of_transfer(mesh, report, balancer, reducer, hooks);
      // Otherwise a rank that writes a checkpoint checks them.
      if (weights_used && all_have_state && !weights_are_finite()) {
        throw diverged(report, "a weight is not finite");
      }
      state_.output().poll_checkpoint();
      if (mesh.rank() == 0) reserve_checkpoint_copy();
      const Rates rates = meter.add(report, monotonic_now());
      if (hooks.on_step) hooks.on_step(report, rates);
      if (balancer.add(step_->costs())) balance(mesh, balancer, reducer, hooks);
    }
  }

  const Job& job_;
  Faults& faults_;
  Logger& log_;
  kernels::Ops<Activation> ops_;
  kernels::ParameterOps parameter_ops_;
  nn::Context<Activation> context_;
  MemoryPlan plan_;
  MemoryEstimate memory_estimate_;  // checked before the members below allocate
  nn::Model<Activation> model_;
  nn::Optimizer<Activation> optimizer_;
  TrainingState<Activation> state_;
  Evaluator<Activation> evaluator_;
  std::optional<TrainingStep<Activation>> step_;  // with do_train
  int shards_ = 1;                                // virtual shards of the global batch
  std::int64_t finite_step_ = -1;                 // the weights after this step are finite
  std::optional<MonotonicTime> not_asked_at_;     // to leave, in this epoch, as a receiver
  elastic::StateAgreement agreement_;  // of the transfer that restore() has left to the steps
  collectives::HostPlan hosts_;        // of this membership epoch
};

}  // namespace

std::unique_ptr<Trainer> make_trainer(const Job& job, runtime::Isa isa, runtime::ThreadPool& pool,
                                      Faults& faults, Logger& log, const Clock& clock) {
  check_gemm_backend(job.settings, isa);
  if (job.settings.bf16) {
    return std::make_unique<TypedTrainer<runtime::bf16>>(job, isa, pool, faults, log, clock);
  }
  return std::make_unique<TypedTrainer<float>>(job, isa, pool, faults, log, clock);
}

}  // namespace tilewright::train
