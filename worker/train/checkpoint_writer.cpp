#include "worker/train/checkpoint_writer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/base/check.h"

namespace tilewright::train {
namespace {

// A superseded writer can fail in many ways: the cause is the failure.
Failure cause(const Failure& failure, const checkpoint::OutputWriter& output) {
  try {
    output.throw_if_superseded();
  } catch (const Failure& superseded) {
    return superseded;
  }
  return failure;
}

}  // namespace

void CheckpointWriter::reserve(std::size_t elements) {
  TW_CHECK(!has_copy(), "the copy for checkpoints is reserved twice");
  copy_ = std::make_shared<checkpoint::StateCopy>(elements);
  try {
    task_.start([copy = copy_] { copy->touch_pages(); });
  } catch (const std::system_error&) {  // then the first checkpoint touches them
  }
}

const checkpoint::StateCopy& CheckpointWriter::copy(const checkpoint::StateVectors& from,
                                                    runtime::ThreadPool& pool,
                                                    const kernels::ParameterOps& ops) {
  TW_CHECK(has_copy() && !outcome_, "the copy for checkpoints is absent or in use");
  copy_->stop_touching();
  if (!task_.wait(kCheckpointTimeout)) {
    throw Failure(
        ExitCode::kOutputUnavailable,
        fmt::format("the memory for it is not available after {} min", kCheckpointTimeout.count()));
  }
  copy_->take(from, pool, ops);
  return *copy_;
}

void CheckpointWriter::start(CheckpointRequest request) {
  TW_CHECK(has_copy() && !outcome_, "a checkpoint begins without a copy or during another one");
  step_ = request.content.state.global_step;
  const MonotonicTime begin = request.begin;
  auto outcome = std::make_shared<CheckpointOutcome>();
  try {
    task_.start([copy = copy_, outcome, request = std::move(request)]() mutable {
      *outcome = write(std::move(request));
    });
  } catch (const std::system_error& error) {
    throw Failure(ExitCode::kOutputUnavailable,
                  fmt::format("cannot start a thread: {}", error.code().message()));
  }
  outcome_ = std::move(outcome);
  stall_ = monotonic_now() - begin;
  waited_ = {};
}

CheckpointOutcome CheckpointWriter::write(CheckpointRequest request) {
  CheckpointOutcome outcome;
  outcome.step = request.content.state.global_step;
  outcome.writer = request.output.writer();
  request.faults.hit("checkpoint.write");
  try {
    request.content.before_commit = [&] { request.faults.hit("checkpoint.before_rename"); };
    outcome.path = checkpoint::write_checkpoint(request.output, request.content);
  } catch (const Failure& failure) {
    outcome.failure = cause(failure, request.output);
  } catch (const std::exception& error) {  // no memory is left, for example
    outcome.failure = Failure(ExitCode::kOutputUnavailable, error.what());
  }
  outcome.total = outcome.stall = monotonic_now() - request.begin;
  if (outcome.failure) return outcome;
  try {
    outcome.removed =
        checkpoint::prune(request.output, request.keep, request.best_step, outcome.step);
  } catch (const Failure& failure) {
    outcome.prune_failure = failure;
  } catch (const std::exception& error) {
    outcome.prune_failure = Failure(ExitCode::kOutputUnavailable, error.what());
  }
  request.faults.hit("checkpoint.done");
  return outcome;
}

std::optional<CheckpointOutcome> CheckpointWriter::wait(Duration timeout) {
  if (!outcome_) return std::nullopt;
  const MonotonicTime begin = monotonic_now();
  const Duration left = std::max<Duration>(kCheckpointTimeout - waited_, Duration::zero());
  if (!task_.wait(std::min(timeout, left))) {
    waited_ += monotonic_now() - begin;
    return std::nullopt;
  }
  CheckpointOutcome outcome = std::move(*std::exchange(outcome_, nullptr));
  outcome.stall = stall_;
  return outcome;
}

}  // namespace tilewright::train
