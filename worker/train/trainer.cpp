#include "worker/train/trainer.h"

#include <algorithm>
#include <numeric>

#include "worker/collectives/exchange.h"
#include "worker/nn/flops.h"
#include "worker/train/evaluation.h"
#include "worker/train/trainer_impl.h"

namespace tilewright::train {
namespace {

// About 4 MiB of gradient: long enough for the connection, short enough to overlap with backward.
constexpr std::int64_t kBucket = std::int64_t{1} << 20;

// Rows of the `count` longest examples.
std::int64_t most_rows(const tasks::Dataset& data, std::int64_t count, const nn::Padding& padding) {
  std::vector<std::int64_t> lengths(data.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = std::max(static_cast<std::int64_t>(data.length(i)), padding.length);
  }
  std::sort(lengths.rbegin(), lengths.rend());
  lengths.resize(std::min(lengths.size(), static_cast<std::size_t>(count)));
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

}  // namespace

template <typename T>
TypedTrainer<T>::TypedTrainer(const Job& job, runtime::Isa isa, runtime::ThreadPool& pool,
                              Faults& faults, Logger& log)
    : job_(job),
      faults_(faults),
      log_(log),
      pool_(pool),
      ops_(kernels::make_ops<T>(isa, job.settings.onednn ? kernels::GemmBackend::kOneDnn
                                                         : kernels::GemmBackend::kNative)),
      parameter_ops_(kernels::make_parameter_ops(isa)),
      context_{pool, ops_, parameter_ops_},
      need_(checked_need(job, context_, sizes_of(job))),
      model_(job.model.bert, context_),
      optimizer_(model_, context_, job.settings.adamw),
      touched_(job.model.bert.vocab_size),
      shards_(static_cast<int>(job.settings.virtual_shards)) {
  const Sizes sizes = sizes_of(job);
  model_.reserve(sizes.tokens, sizes.examples, sizes.seqlen, shards_);
  if (job.settings.do_train) {
    order_.emplace(static_cast<std::int64_t>(job.train_data.size()), job.settings.global_batch,
                   job.settings.seed);
    for (int i = 0; i < sizes.gradients; ++i) {
      gradients_.emplace_back(static_cast<std::size_t>(sizes.gradient));
    }
  }
}

template <typename T>
typename TypedTrainer<T>::Sizes TypedTrainer<T>::sizes_of(const Job& job) {
  const Settings& s = job.settings;
  const int shards = static_cast<int>(s.virtual_shards);
  Sizes sizes;
  if (s.do_train) {
    sizes.examples = most_examples_of_a_pass(shards, s.global_batch, s.per_device_train_batch_size);
    sizes.tokens = most_rows(job.train_data, sizes.examples, job.padding);
    sizes.seqlen = most_rows(job.train_data, 1, job.padding);
    const nn::ParameterLayout layout(job.model.bert);
    // Each token may be another word; one more row for [PAD].
    const std::int64_t rows =
        std::min(job.model.bert.vocab_size, most_rows(job.train_data, s.global_batch, {}) + 1);
    // Two more: the loss and the wish to leave.
    sizes.gradient = layout.word_embeddings + rows * job.model.bert.hidden_size + 2;
    // For any number of workers this job is to have: the parts that a step holds at once. Should
    // there be more one day, begin_epoch() takes the rest.
    for (std::int64_t world = 1; world <= s.max_workers; ++world) {
      for (int rank = 0; rank < world; ++rank) {
        const PassPlan plan = plan_of(s, rank, static_cast<int>(world), s.global_batch);
        sizes.gradients = std::max(sizes.gradients, plan.gradients());
      }
    }
  }
  if (s.do_eval) {
    sizes.examples = std::max(sizes.examples, s.per_device_eval_batch_size);
    const std::int64_t tokens = most_rows(job.dev_data, s.per_device_eval_batch_size, job.padding);
    sizes.evaluation = tokens > sizes.tokens;
    sizes.tokens = std::max(sizes.tokens, tokens);
    sizes.seqlen = std::max(sizes.seqlen, most_rows(job.dev_data, 1, job.padding));
  }
  return sizes;
}

template <typename T>
PassPlan TypedTrainer<T>::plan_of(const Settings& s, int rank, int world, std::int64_t examples) {
  const int shards = static_cast<int>(s.virtual_shards);
  return s.exact ? plan_passes(collectives::shards_of(rank, world, shards), shards, examples,
                               s.per_device_train_batch_size)
                 : plan_plain_passes(rank, world, examples, s.per_device_train_batch_size);
}

template <typename T>
void TypedTrainer<T>::begin_epoch(const collectives::Mesh& mesh) {
  const Settings& s = job_.settings;
  if (!s.do_train) return;
  if (s.exact && mesh.world() > shards_) {
    throw Failure(
        ExitCode::kUsage,
        fmt::format("found {} processes, expected at most {}, the number of virtual shards",
                    mesh.world(), shards_));
  }
  // A last batch that is shorter makes fewer passes, never more gradients.
  const auto needed =
      static_cast<std::size_t>(plan_of(s, mesh.rank(), mesh.world(), s.global_batch).gradients());
  if (needed <= gradients_.size()) return;
  const std::size_t size = gradients_.front().size();
  MemoryNeed need = need_;
  need.gradients = needed * size * sizeof(float);
  check_memory(need, runtime::available_memory() + std::min(need_.total(), runtime::held_memory()));
  need_ = need;
  while (gradients_.size() < needed) gradients_.emplace_back(size);
}

template <typename T>
MemoryNeed TypedTrainer<T>::checked_need(const Job& job, const nn::Context<T>& context,
                                         const Sizes& sizes) {
  const auto parameters = static_cast<std::uint64_t>(nn::ParameterLayout(job.model.bert).count);
  MemoryNeed need;
  need.weights = 3 * parameters * sizeof(float);
  need.packed = nn::BertClassifier<T>::packed_bytes(job.model.bert, context);
  need.activations =
      nn::BertClassifier<T>::activation_bytes(job.model.bert, context, sizes.tokens, sizes.examples,
                                              sizes.seqlen, job.settings.virtual_shards);
  need.gradients = static_cast<std::uint64_t>(sizes.gradient) *
                   static_cast<std::uint64_t>(sizes.gradients) * sizeof(float);
  need.tokens = sizes.tokens;
  need.batch_flag = sizes.evaluation ? "per_device_eval_batch_size" : "per_device_train_batch_size";
  check_memory(need, runtime::available_memory());
  return need;
}

template <typename T>
void TypedTrainer<T>::fill_batch(std::span<const std::int32_t> examples,
                                 const std::vector<Group>& groups) {
  batch_.clear();
  for (const Group& group : groups) {
    batch_.open_group(group.subtree.begin);
    for (const Range& shard : group.shards) {
      for (std::int64_t place = shard.begin; place < shard.end; ++place) {
        const auto example = static_cast<std::size_t>(examples[static_cast<std::size_t>(place)]);
        batch_.add(job_.train_data.ids_of(example), job_.train_data.types_of(example),
                   job_.train_data.labels[example], static_cast<std::int32_t>(place), job_.padding);
        own_tokens_ += batch_.lengths.back();
      }
      batch_.close_shard();
    }
  }
}

template <typename T>
StepReport TypedTrainer<T>::run_step(collectives::Mesh& mesh, collectives::Reducer& reducer,
                                     bool leave) {
  const std::int64_t step = state_.global_step;
  faults_.at_step(step);
  faults_.hit("step.begin");
  const std::span<const std::int32_t> examples = order_->batch(step);
  const auto n = static_cast<std::int64_t>(examples.size());
  StepReport report;
  touched_.clear();
  for (const std::int32_t example : examples) {
    touched_.mark(job_.train_data.ids_of(static_cast<std::size_t>(example)));
    report.tokens +=
        static_cast<std::int64_t>(job_.train_data.length(static_cast<std::size_t>(example)));
    report.flops +=
        3 * nn::example_flops(job_.model.bert,
                              job_.train_data.length(static_cast<std::size_t>(example)));
  }
  if (job_.padding.length > 0) touched_.mark(std::span(&job_.padding.id, 1));
  touched_.finish();
  // Behind the gradient rides the wish to leave: all workers see the same sum, so all stop after
  // the same step.
  const std::int64_t wish = model_.gradient_count(touched_.R());
  const std::int64_t count = wish + 1;
  const Settings& s = job_.settings;
  const PassPlan plan = plan_of(s, mesh.rank(), mesh.world(), n);
  TW_CHECK(!plan.passes.empty() && plan.gradients() <= static_cast<int>(gradients_.size()),
           "rank {} of {}: {} passes with {} gradients, room for {}", mesh.rank(), mesh.world(),
           plan.passes.size(), plan.gradients(), gradients_.size());

  buckets_.clear();
  for (std::int64_t at = 0; at < count; at += kBucket) {
    buckets_.push_back({at, std::min(count, at + kBucket)});
  }
  std::size_t started = 0;
  const auto final_up_to = [&](std::int64_t end) {
    while (started < buckets_.size() && buckets_[started].end <= end) {
      reducer.start(static_cast<int>(started++));
    }
  };

  // One pass: its groups are the parts. Several: siblings merge as passes end.
  collectives::GradientParts parts;
  std::optional<collectives::TreeAccumulator> accumulator;
  if (plan.passes.size() > 1) {
    std::vector<float*> buffers;
    const int needed = plan.gradients();
    buffers.reserve(static_cast<std::size_t>(needed));
    for (int i = 0; i < needed; ++i) {
      buffers.push_back(gradients_[static_cast<std::size_t>(i)].data());
    }
    accumulator.emplace(plan.subtrees(), count, std::move(buffers));
    accumulator->begin_step();
  } else {
    parts.count = count;
    parts.parts.reserve(plan.passes[0].size());
    for (std::size_t g = 0; g < plan.passes[0].size(); ++g) {
      parts.parts.push_back({plan.passes[0][g].subtree, gradients_[g].data()});
    }
    parts.sum = gradients_[0].data();
    reducer.begin_step(parts, buckets_);
  }
  const nn::DropoutKey key{s.seed, static_cast<std::uint32_t>(step)};
  for (std::size_t pass = 0; pass < plan.passes.size(); ++pass) {
    fill_batch(examples, plan.passes[pass]);
    nn::GradientSink sink;
    const bool last = pass + 1 == plan.passes.size();
    if (accumulator) {
      sink.groups = {accumulator->begin_pass().data()};
      if (last) {
        parts = accumulator->parts();
        reducer.begin_step(parts, buckets_);
      }
      sink.on_gradient_ready = [&](std::int64_t begin, std::int64_t end) {
        accumulator->finish({begin, end});
        if (last) final_up_to(end);
      };
    } else {
      for (const collectives::GradientPart& part : parts.parts) sink.groups.push_back(part.data);
      sink.on_gradient_ready = [&](std::int64_t, std::int64_t end) { final_up_to(end); };
    }
    model_.forward(batch_, key, true);
    for (float* group : sink.groups) group[wish] = leave ? 1.0f : 0.0f;
    model_.backward(batch_, key, 1.0f / static_cast<float>(n), touched_, sink);
    sink.ready(wish, count);
    if (accumulator) accumulator->end_pass();
  }
  faults_.hit("step.after_backward");
  reducer.wait(monotonic_now() + kPatience);
  faults_.hit("step.after_exchange");

  const std::span<const float> gradient(parts.sum, static_cast<std::size_t>(wish));
  report.loss = gradient.back();
  report.leave = parts.sum[wish] > 0;
  report.learning_rate = job_.schedule.learning_rate(step);
  report.grad_norm =
      optimizer_.step(step + 1, static_cast<float>(report.learning_rate), gradient, touched_);
  state_.global_step = step + 1;
  state_.examples_consumed += n;
  state_.num_input_tokens_seen += report.tokens;
  state_.total_flos += report.flops;
  state_.epoch = static_cast<double>(step + 1) / static_cast<double>(job_.schedule.steps_per_epoch);
  report.step = step + 1;
  report.total_steps = job_.schedule.total_steps;
  report.epoch = state_.epoch;
  report.examples = n;
  faults_.hit("step.after_update");
  return report;
}

template <typename T>
void TypedTrainer<T>::record(const StepReport& report, bool close_window) {
  loss_sum_ += report.loss;
  loss_count_ += 1;
  const Settings& s = job_.settings;
  const bool due = report.step % s.logging_steps == 0 || report.step == report.total_steps ||
                   (report.step == 1 && s.logging_first_step);
  if (!due && !close_window) return;
  state_.log_history.push_back({{"epoch", report.epoch},
                                {"grad_norm", report.grad_norm},
                                {"learning_rate", report.learning_rate},
                                {"loss", loss_sum_ / static_cast<double>(loss_count_)},
                                {"step", report.step}});
  loss_sum_ = 0;
  loss_count_ = 0;
}

template <typename T>
bool TypedTrainer<T>::checkpoint_due() const {
  const Settings& s = job_.settings;
  const std::int64_t step = state_.global_step;
  if (s.save_strategy == SaveStrategy::kNo) return false;
  const std::int64_t every =
      s.save_strategy == SaveStrategy::kEpoch ? job_.schedule.steps_per_epoch : s.save_steps;
  return step % every == 0 && step < job_.schedule.total_steps;
}

template <typename T>
Outcome TypedTrainer<T>::train(collectives::Mesh& mesh, const TrainerHooks& hooks) {
  const MonotonicTime begin = monotonic_now();
  const auto account = [&] {
    train_seconds_ += std::chrono::duration<double>(monotonic_now() - begin).count();
  };
  collectives::ReducerOptions options;
  options.mode =
      job_.settings.exact ? collectives::ReduceMode::kExact : collectives::ReduceMode::kPlain;
  options.faults.hook = [this](const char* point) { faults_.hit(point); };
  options.idle_deadline = kPatience;
  const std::vector<Range> split = collectives::even_split(mesh.world(), shards_);
  RateMeter meter;
  meter.restart(begin);
  Outcome outcome = Outcome::kComplete;
  const std::int64_t rows_before = model_.counters().forward;
  const std::int64_t tokens_before = own_tokens_;
  try {
    collectives::Reducer reducer(mesh, split, shards_, options);
    while (state_.global_step < job_.schedule.total_steps) {
      const StepReport report = run_step(mesh, reducer, hooks.should_leave && hooks.should_leave());
      record(report, checkpoint_due());
      const Rates rates = meter.add(report, monotonic_now());
      if (hooks.on_step) hooks.on_step(report, rates);
      if (checkpoint_due()) {
        if (mesh.rank() == 0) write_checkpoint(mesh.epoch());
        last_checkpoint_step_ = state_.global_step;
      }
      if (report.leave && state_.global_step < job_.schedule.total_steps) {
        outcome = Outcome::kLeft;
        break;
      }
    }
  } catch (...) {
    account();
    throw;
  }
  account();
  log_.info("the layers computed {} rows for {} tokens of this worker's examples",
            model_.counters().forward - rows_before, own_tokens_ - tokens_before);
  return outcome;
}

template <typename T>
EvaluationResult TypedTrainer<T>::evaluate(collectives::Mesh& mesh) {
  faults_.hit("evaluate.begin");
  const MonotonicTime begin = monotonic_now();
  const tasks::Dataset& data = job_.dev_data;
  const Range own = share_of(mesh.rank(), mesh.world(), static_cast<std::int64_t>(data.size()));
  std::vector<float> logits;
  for (std::int64_t at = own.begin; at < own.end;) {
    const std::int64_t end = std::min(own.end, at + job_.settings.per_device_eval_batch_size);
    batch_.clear();
    for (; at < end; ++at) {
      const auto example = static_cast<std::size_t>(at);
      batch_.add(data.ids_of(example), data.types_of(example), data.labels[example],
                 static_cast<std::int32_t>(at), job_.padding);
    }
    for (const T logit : model_.forward(batch_, {}, false)) {
      logits.push_back(runtime::to_float(logit));
    }
  }
  EvaluationResult result =
      score(*job_.task, data, gather_logits(mesh, logits, monotonic_now() + kPatience));
  result.seconds = std::chrono::duration<double>(monotonic_now() - begin).count();
  return result;
}

template <typename T>
std::vector<std::pair<std::string, std::string>> TypedTrainer<T>::kernel_names() const {
  return {{"linear forward", ops_.linear_forward.name},
          {"linear backward input", ops_.linear_backward_input.name},
          {"linear backward weight", ops_.linear_backward_weight.name},
          {"attention forward", ops_.attention_forward.name},
          {"attention backward", ops_.attention_backward.name},
          {"embedding and norm", ops_.embed_norm_forward.name},
          {"residual and norm forward", ops_.add_norm_forward.name},
          {"residual and norm backward", ops_.add_norm_backward.name},
          {"norm parameters", ops_.norm_backward_parameters.name},
          {"gelu forward", ops_.gelu_forward.name},
          {"gelu backward", ops_.gelu_backward.name},
          {"pooler", ops_.tanh_dropout_forward.name},
          {"cross entropy", ops_.softmax_cross_entropy.name},
          {"embedding backward", parameter_ops_.embedding_backward.name},
          {"adamw", parameter_ops_.adamw.name},
          {"gradient norm", parameter_ops_.sum_of_squares.name}};
}

template class TypedTrainer<float>;
template class TypedTrainer<runtime::bf16>;

std::unique_ptr<Trainer> make_trainer(const Job& job, runtime::Isa isa, runtime::ThreadPool& pool,
                                      Faults& faults, Logger& log) {
  check_gemm_backend(job.settings, isa);
  if (job.settings.bf16) {
    return std::make_unique<TypedTrainer<runtime::bf16>>(job, isa, pool, faults, log);
  }
  return std::make_unique<TypedTrainer<float>>(job, isa, pool, faults, log);
}

}  // namespace tilewright::train
