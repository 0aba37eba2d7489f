#include "worker/train/training_output.h"

#include <limits>
#include <utility>

#include "common/contract/model_files.h"
#include "worker/checkpoint/model_directory.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/runtime/available_memory.h"

namespace tilewright::train {
namespace {

// Memory that the copy for checkpoints leaves to what allocates later.
constexpr std::uint64_t kReservedBytes = std::uint64_t{256} << 20;

}  // namespace

const checkpoint::OutputWriter& TrainingOutput::output() {
  if (take_output_) set(take_output_());
  TW_CHECK(output_.has_value(), "output() without set()");
  return *output_;
}

bool TrainingOutput::is_kept() const {
  if (!writer_.step() || !output_) return false;
  try {
    output_->check();
  } catch (const Failure&) {
    return false;
  }
  return true;
}

bool TrainingOutput::release_empty() noexcept {
  finish_checkpoint(kCheckpointTimeout);
  try {
    return output_ && checkpoint::release_empty_output_dir(*output_);
  } catch (const std::exception& error) {
    log_.warn("output directory not released: {}", error.what());
    return false;
  }
}

bool TrainingOutput::save_due(MonotonicTime now) const {
  const std::int64_t newest = newest_checkpoint_step();
  if (progress_.moments_unused() || progress_.step() <= newest) return false;
  // The worker that began it was lost, or not the writer any more.
  const bool missed = progress_.save_step() > std::max(newest, attempted_save_step_) &&
                      progress_.step() < job_.schedule.total_steps;
  return progress_.checkpoint_due() || progress_.best_checkpoint_due() || missed ||
         (retry_.due(now) && !writer_.step());
}

std::uint64_t TrainingOutput::reserve_checkpoint_copy() {
  const std::size_t elements = state_.weights.size();
  const std::uint64_t bytes = checkpoint::StateCopy::bytes(elements);
  if (copy_considered_) return writer_.has_copy() ? bytes : 0;
  if (!output_) return 0;
  copy_considered_ = true;
  if (!progress_.checkpoint_follows()) return 0;
  // After a step, so that this process and others on this machine hold the memory they need.
  const std::uint64_t available = runtime::available_memory();
  if (bytes + kReservedBytes > available) {
    log_.info(
        "checkpoints are written between steps: {} MiB more memory would allow to write them in "
        "the background",
        ((bytes + kReservedBytes - available) >> 20) + 1);
    return 0;
  }
  try {
    writer_.reserve(elements);
  } catch (const Failure& failure) {
    log_.info("checkpoints are written between steps: {}", failure.what());
    return 0;
  }
  return bytes;
}

void TrainingOutput::start_checkpoint(std::uint64_t membership_epoch) {
  const std::int64_t step = progress_.step();
  attempted_save_step_ = step;
  try {
    CheckpointRequest request = make_request(membership_epoch);
    if (writer_.has_copy()) {
      writer_.start(std::move(request));
    } else {
      handle(CheckpointWriter::write(std::move(request)));
    }
  } catch (const Failure& failure) {
    if (failure.code() == ExitCode::kSuperseded) throw;
    handle_failure(step, failure);
  }
}

void TrainingOutput::save_checkpoint(std::uint64_t membership_epoch) {
  start_checkpoint(membership_epoch);
  if (const auto outcome = writer_.wait(kCheckpointTimeout)) handle(*outcome);
  if (const auto step = writer_.step()) {
    log_.warn("the checkpoint of step {} is still being written after {} min", *step,
              kCheckpointTimeout.count());
  }
}

void TrainingOutput::poll_checkpoint() {
  if (const auto outcome = writer_.wait(Duration::zero())) handle(*outcome);
}

void TrainingOutput::finish_checkpoint(Duration timeout) noexcept {
  try {
    if (const auto outcome = writer_.wait(timeout)) handle(*outcome);
  } catch (const std::exception& error) {
    log_.warn("checkpoint not written: {}", error.what());
  }
}

void TrainingOutput::finish_checkpoint_of_epoch() noexcept {
  const bool is_best = job_.settings.needs_best_model() &&
                       writer_.step() == progress_.trainer_state().best_global_step;
  finish_checkpoint(is_best ? Duration(kCheckpointTimeout) : kEpochCheckpointTimeout);
  if (const auto step = writer_.step()) {
    log_.warn("the checkpoint of step {} is still being written; it will be written again", *step);
  }
}

CheckpointRequest TrainingOutput::make_request(std::uint64_t membership_epoch) {
  const MonotonicTime begin = monotonic_now();
  if (const auto earlier = writer_.step()) {
    const auto outcome = writer_.wait(kCheckpointTimeout);
    if (!outcome) {
      throw Failure(ExitCode::kOutputUnavailable,
                    fmt::format("that of step {} is still being written", *earlier));
    }
    checkpoint_wait_ += monotonic_now() - begin;
    handle(*outcome);
  }
  faults_.hit("checkpoint.begin");
  const Settings& s = job_.settings;
  checkpoint::CheckpointContent content;
  content.state = progress_.checkpoint_state(membership_epoch);
  if (writer_.has_copy()) {
    content.tensors = writer_.copy(state_, pool_, ops_).tensors(layout_);
  } else {
    content.tensors = checkpoint::tensors_to_write(layout_, state_);
  }
  content.extra_files = job_.tokenizer_files;
  content.extra_files[model_files::kConfig] = checkpoint::model_config_json(
      job_.model.json, job_.model.labels, job_.model.encoder, s.task_name);
  const checkpoint::TrainerState& state = progress_.trainer_state();
  const std::int64_t best_step = state.best_metric ? state.best_global_step : 0;
  return {.output = output(),
          .content = std::move(content),
          .keep = static_cast<int>(
              std::min<std::int64_t>(s.save_total_limit, std::numeric_limits<int>::max())),
          .best_step = best_step,
          .faults = faults_,
          .begin = begin};
}

void TrainingOutput::handle(const CheckpointOutcome& outcome) {
  // In another membership epoch another process may own the output by right.
  const bool is_writer = output_ && output_->writer() == outcome.writer;
  if (outcome.failure) {
    if (outcome.failure->code() != ExitCode::kSuperseded) {
      handle_failure(outcome.step, *outcome.failure);
    } else if (is_writer) {
      throw Failure(*outcome.failure);
    } else {
      attempted_save_step_ = last_checkpoint_step_;
      log_.warn("checkpoint of step {} not written: {}", outcome.step, outcome.failure->what());
    }
    return;
  }
  retry_.succeeded();
  last_checkpoint_step_ = std::max(last_checkpoint_step_, outcome.step);
  log_.info("wrote {} in {}, the training stopped for {:.0f} ms", outcome.path.string(),
            format_duration(outcome.total),
            std::chrono::duration<double, std::milli>(outcome.stall).count());
  for (const auto& removed : outcome.removed) log_.debug("deleted {}", removed.string());
  if (!outcome.prune_failure) return;
  if (is_writer && outcome.prune_failure->code() == ExitCode::kSuperseded) {
    throw Failure(*outcome.prune_failure);
  }
  log_.warn("old checkpoints not deleted: {}", outcome.prune_failure->what());
}

void TrainingOutput::handle_failure(std::int64_t step, const Failure& failure) {
  retry_.failed(monotonic_now());
  log_.warn(
      "checkpoint of step {} not written: {}; the training continues and tries again in {} s or "
      "at the next save step ({} failed so far)",
      step, failure.what(), CheckpointRetry::kDelay.count(), retry_.failures());
}

std::string TrainingOutput::write_model(const std::map<std::string, std::string>& results) {
  finish_checkpoint(kCheckpointTimeout);
  faults_.hit("output.begin");
  checkpoint::ModelDirectoryContent content;
  content.weights = checkpoint::tensors_to_write(layout_, state_).weights;
  content.config_json = checkpoint::model_config_json(job_.model.json, job_.model.labels,
                                                      job_.model.encoder, job_.settings.task_name);
  content.extra_files = results;
  content.extra_files.insert(job_.tokenizer_files.begin(), job_.tokenizer_files.end());
  content.before_commit = [this] { faults_.hit("output.before_rename"); };
  content.pool = &pool_;
  std::string digest = checkpoint::write_model_directory(output(), content).sha256;
  faults_.hit("output.done");
  return digest;
}

}  // namespace tilewright::train
