#include "worker/train/training_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <optional>

#include "worker/checkpoint/checksums.h"
#include "worker/checkpoint/storage.h"
#include "worker/collectives/exchange.h"
#include "worker/train/collective_limits.h"

namespace tilewright::train {
namespace {

// MessagePack is shorter than the JSON of a checkpoint.
constexpr std::size_t kMaxStateBytes = checkpoint::kMaxTrainerStateBytes;

// resume_from_checkpoint, which is set, must name a checkpoint. Its content is checked later.
void check_is_checkpoint(const Settings& settings) {
  const std::filesystem::path path = settings.resume_from_checkpoint;
  if (checkpoint::is_present(path / checkpoint::kChecksumsFile)) return;
  throw Failure(
      ExitCode::kCheckpoint,
      fmt::format("--resume_from_checkpoint: {}: {}, expected a checkpoint of "
                  "tilewright-worker such as {}",
                  path.string(),
                  checkpoint::is_present(path)
                      ? fmt::format("has no {}", checkpoint::kChecksumsFile)
                      : "no such directory",
                  (std::filesystem::path(settings.output_dir) / checkpoint::checkpoint_name(500))
                      .string()));
}

// Says that `resumed`, a checkpoint of this job, is not the one that resume_from_checkpoint names;
// empty if it is. Never an error, not even if the named one cannot be read any more: a process that
// starts again has the same command line, and the job may have begun from that checkpoint.
std::string describe_unused_checkpoint(const Settings& settings,
                                       const std::filesystem::path& resumed) {
  const std::filesystem::path named = settings.resume_from_checkpoint;
  std::error_code ignored;
  if (named.empty() || std::filesystem::equivalent(named, resumed, ignored)) return "";
  return fmt::format(
      "--resume_from_checkpoint {}: {}: {} has checkpoints of this job", named.string(),
      std::filesystem::exists(named, ignored) ? "not used" : "not found", settings.output_dir);
}

// A job that has progressed must not start again at an earlier step without a word.
void require_step(std::int64_t required, std::int64_t found, const std::string& output_dir) {
  if (found >= required) return;
  throw Failure(ExitCode::kCheckpointMissing,
                fmt::format("{}: found {}, expected {}, which this job has written, or a later one",
                            output_dir,
                            found < 0 ? "no valid checkpoint" : checkpoint::checkpoint_name(found),
                            checkpoint::checkpoint_name(required)));
}

std::span<std::byte> bytes_of(std::span<float> values) { return std::as_writable_bytes(values); }

// From rank 0 to all, in pieces; see kPieceElements. Collective.
void broadcast_values(collectives::Mesh& mesh, std::span<float> values) {
  for (std::size_t begin = 0; begin < values.size(); begin += kPieceElements) {
    const auto piece = values.subspan(begin, std::min(kPieceElements, values.size() - begin));
    collectives::broadcast(mesh, 0, bytes_of(piece), collective_deadline());
  }
}

}  // namespace

template <typename Activation>
checkpoint::TrainingTensors TrainingState<Activation>::tensors() const {
  return checkpoint::training_tensors(model_.layout(), model_.parameters().data(),
                                      optimizer_.exp_avg().data(), optimizer_.exp_avg_sq().data());
}

template <typename Activation>
void TrainingState<Activation>::load_initial_weights(bool log_differences) {
  check_weights_unchanged(job_, &model_.pool());
  const std::vector<std::string>& missing = job_.weight_differences.missing;
  std::vector<checkpoint::TensorView> found;
  for (const nn::Tensor& tensor : model_.layout().tensors) {
    float* const values = model_.parameters().data() + tensor.offset;
    if (std::find(missing.begin(), missing.end(), tensor.name) != missing.end()) {
      nn::initialise_tensor(tensor, static_cast<std::uint64_t>(job_.settings.init_seed),
                            job_.model.encoder.initializer_range, values);
    } else {
      found.push_back({tensor.name, tensor.shape, values});
    }
  }
  checkpoint::read_parameters(*job_.weights, found, &model_.pool());
  if (log_differences && !differences_logged_) {
    log_weight_differences();
    differences_logged_ = true;
  }
  optimizer_.clear();
  progress_.clear();
}

template <typename Activation>
void TrainingState<Activation>::log_weight_differences() {
  const auto& [missing, unexpected] = job_.weight_differences;
  if (!missing.empty()) {
    log_.info("not in the model's weights{}, initialised at random: {} (seed {})",
              job_.settings.ignore_mismatched_sizes ? " with this shape" : "",
              fmt::join(missing, ", "), job_.settings.init_seed);
  }
  if (!unexpected.empty()) {
    log_.info("in the model's weights, not used: {} ({} in all)",
              checkpoint::abbreviated_list(unexpected), unexpected.size());
  }
}

template <typename Activation>
std::optional<std::filesystem::path> TrainingState<Activation>::find_checkpoint(
    const RestoreFrom& from) const {
  const Settings& s = job_.settings;
  if (from.resume) {
    const checkpoint::ValidCheckpoint valid = checkpoint::latest_valid_checkpoint(s.output_dir);
    for (const std::string& warning : valid.warnings) log_.warn("{}", warning);
    if (valid.path) return valid.path;
  }
  if (s.resume_from_checkpoint.empty()) return std::nullopt;
  check_is_checkpoint(s);
  return s.resume_from_checkpoint;
}

template <typename Activation>
bool TrainingState<Activation>::load_checkpoint(const RestoreFrom& from) {
  auto path = find_checkpoint(from);
  std::optional<checkpoint::TrainerState> found;
  while (path && !found) {
    try {
      found = checkpoint::load_checkpoint(*path, job_.fingerprint, tensors());
    } catch (const Failure& failure) {
      if (failure.code() != ExitCode::kCheckpoint || checkpoint::is_present(*path)) throw;
      // Perhaps the job's previous process, which is being stopped, has replaced it.
      auto next = find_checkpoint(from);
      if (next == path) throw;
      path = std::move(next);
    }
  }
  require_step(from.required_step, found ? found->global_step : -1, job_.settings.output_dir);
  if (!found) return false;
  progress_.resume_from(*std::move(found));
  if (const std::string unused = describe_unused_checkpoint(job_.settings, *path);
      !unused.empty()) {
    log_.warn("{}", unused);
  }
  log_.info("resuming from {} (step {} of {})", path->string(), progress_.step(),
            job_.schedule.total_steps);
  return true;
}

template <typename Activation>
bool TrainingState<Activation>::load_newer_checkpoint(const RestoreFrom& from) {
  try {
    const auto path = find_checkpoint(from);
    if (!path ||
        checkpoint::read_checkpoint_state(*path).global_step <= from.agreement.position.step) {
      return false;
    }
    return load_checkpoint({from.resume, -1, {}, false});
  } catch (const Failure& failure) {
    log_.warn("continuing from memory, because a newer checkpoint cannot be read: {}",
              failure.what());
    return false;
  }
}

template <typename Activation>
elastic::TrainingPosition TrainingState<Activation>::position() const {
  return complete_ ? progress_.position() : elastic::TrainingPosition{};
}

template <typename Activation>
Restored TrainingState<Activation>::restore(collectives::Mesh& mesh, const RestoreFrom& from) {
  Restored restored;
  if (from.agreement.source == elastic::StateSource::kMemory || !restore_from_storage(mesh, from)) {
    restored.from_memory = true;
    try {
      restore_from_memory(mesh, from, restored);
    } catch (const Failure&) {
      abandon_transfer();
      throw;
    }
  }
  progress_.begin_epoch(mesh.epoch());
  complete_ = !(transfer_ && receives_);
  faults_.hit("state.restored");
  return restored;
}

template <typename Activation>
bool TrainingState<Activation>::restore_from_storage(collectives::Mesh& mesh,
                                                     const RestoreFrom& from) {
  const bool has_memory = from.agreement.source == elastic::StateSource::kCheckpoint;
  const bool is_rank0 = mesh.rank() == 0;
  // A checkpoint is verified before it changes anything, so what is in memory stays complete.
  if (!has_memory) complete_ = false;
  bool loaded = false;
  if (is_rank0 && job_.settings.do_train) {
    from.retry([&] { loaded = has_memory ? load_newer_checkpoint(from) : load_checkpoint(from); });
  }
  if (loaded) {
    complete_ = false;  // until the others have it too and the weights are packed
    if (from.after_loss) progress_.count_lost_steps();
  }
  const std::string text = collectives::broadcast_string(
      mesh, 0, loaded ? progress_.encode() : std::string(), kMaxStateBytes, collective_deadline());
  if (text.empty() && has_memory) return false;
  complete_ = false;
  if (text.empty()) {
    load_initial_weights(is_rank0);
    output_.set_last_checkpoint_step(-1);
  } else {
    if (!is_rank0) progress_.decode(text);
    broadcast_values(mesh, model_.parameters());
    broadcast_values(mesh, optimizer_.exp_avg());
    broadcast_values(mesh, optimizer_.exp_avg_sq());
    output_.set_last_checkpoint_step(progress_.step());
  }
  model_.pack_weights();
  return true;
}

template <typename Activation>
void TrainingState<Activation>::restore_from_memory(collectives::Mesh& mesh,
                                                    const RestoreFrom& from, Restored& restored) {
  const elastic::StateAgreement& agreement = from.agreement;
  // A checkpoint that could not be read is written again.
  output_.set_last_checkpoint_step(std::min(agreement.checkpoint_step, agreement.position.step));
  receives_ = std::ranges::find(agreement.receivers, mesh.rank()) != agreement.receivers.end();
  TW_CHECK(receives_ || position() == agreement.position,
           "rank {} has step {}, the agreement is step {}", mesh.rank(), position().step,
           agreement.position.step);
  if (!receives_ && from.after_loss) progress_.count_recovery();
  if (agreement.receivers.empty()) return;
  // A loss during the transfer leaves the receivers without a state.
  if (receives_) complete_ = false;
  const std::string text = collectives::broadcast_string(
      mesh, agreement.senders.front(), receives_ ? std::string() : progress_.encode(),
      kMaxStateBytes, collective_deadline());
  if (receives_) progress_.decode(text);
  // An evaluation that is due needs all weights. A checkpoint does not, because a new rank 0 makes
  // up for it, unless it is that of the best model. --save_strategy may differ between ranks.
  const bool may_be_best =
      progress_.step() > 0 && progress_.trainer_state().best_global_step == progress_.step();
  const bool in_background = from.in_background && !progress_.evaluation_pending() &&
                             !may_be_best && progress_.step() < job_.schedule.total_steps;
  const bool complete = start_transfer(mesh, from, in_background);
  restored.bytes = transfer_->bytes();
  restored.in_background = !complete;
  if (complete) finish_transfer();
}

template <typename Activation>
bool TrainingState<Activation>::start_transfer(collectives::Mesh& mesh, const RestoreFrom& from,
                                               bool in_background) {
  transfer_.emplace(mesh.background() != nullptr ? *mesh.background() : mesh,
                    from.agreement.senders, from.agreement.receivers,
                    std::vector{bytes_of(model_.parameters()), bytes_of(optimizer_.exp_avg()),
                                bytes_of(optimizer_.exp_avg_sq())},
                    kCollectiveTimeout, from.transfer.piece_bytes);
  share_ = 0;
  transfer_options_ = from.transfer;
  std::optional<MonotonicTime> limit;
  if (in_background) limit = monotonic_now() + from.transfer.stall;
  constexpr int kWindows = 3;
  for (int window = 1; window <= kWindows; ++window) {
    if (!limit || monotonic_now() < *limit) {
      transfer_->open_window(static_cast<double>(window) / kWindows);
      transfer_->wait_until_sent(limit);
    }
    transfer_->close_window();
    faults_.hit("state.transfer");
  }
  return !limit || collectives::all_of_ranks(mesh, transfer_->complete(), collective_deadline());
}

template <typename Activation>
void TrainingState<Activation>::open_transfer_window() {
  share_ += transfer_options_.share_per_step;
  transfer_->open_window(std::min(share_, 1.0));
}

template <typename Activation>
void TrainingState<Activation>::finish_transfer() {
  TW_CHECK(transfer_->complete(), "a transfer of {} bytes is not complete", transfer_->bytes());
  transfer_.reset();
  if (!receives_) return;
  optimizer_.moments_may_change();
  model_.pack_weights();
  complete_ = true;
}

template <typename Activation>
bool TrainingState<Activation>::send_rest(collectives::Mesh& mesh, std::optional<Duration> limit) {
  if (!limit || *limit > Duration::zero()) {
    transfer_->open_window();
    transfer_->wait_until_sent(limit ? std::optional(monotonic_now() + *limit) : std::nullopt);
  }
  transfer_->close_window();
  if (limit && !collectives::all_of_ranks(mesh, transfer_->complete(), collective_deadline())) {
    abandon_transfer();
    return false;
  }
  finish_transfer();
  return true;
}

template <typename Activation>
SavedState TrainingState<Activation>::save() const {
  const auto copy = [](std::span<const float> values) {
    return std::vector<float>(values.begin(), values.end());
  };
  return {copy(model_.parameters()), copy(optimizer_.exp_avg()), copy(optimizer_.exp_avg_sq()),
          progress_.encode()};
}

template <typename Activation>
void TrainingState<Activation>::load(const SavedState& saved) {
  std::ranges::copy(saved.parameters, model_.parameters().begin());
  std::ranges::copy(saved.exp_avg, optimizer_.exp_avg().begin());
  std::ranges::copy(saved.exp_avg_sq, optimizer_.exp_avg_sq().begin());
  progress_.decode(saved.progress);
  model_.pack_weights();
  complete_ = true;
}

// nullopt: it was not written, for example because the storage was full, or was removed.
template <typename Activation>
std::optional<std::filesystem::path> TrainingState<Activation>::best_checkpoint() const {
  const checkpoint::TrainerState& state = progress_.trainer_state();
  const std::filesystem::path own = std::filesystem::path(job_.settings.output_dir) /
                                    checkpoint::checkpoint_name(state.best_global_step);
  for (const std::filesystem::path& path :
       {own, std::filesystem::path(state.best_model_checkpoint)}) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
    if (error) {
      throw Failure(ExitCode::kOutputUnavailable,
                    fmt::format("{}: {}", path.string(), error.message()));
    }
  }
  return std::nullopt;
}

template <typename Activation>
std::int64_t TrainingState<Activation>::load_best_model(collectives::Mesh& mesh) {
  const std::int64_t step = progress_.trainer_state().best_global_step;
  // The last weights are the best, or no evaluation had a number for the metric.
  if (step == progress_.step() || step == 0) return progress_.step();
  if (progress_.best_model_loaded()) return step;
  std::optional<std::filesystem::path> path;
  if (mesh.rank() == 0) {
    // Of the last step, perhaps of the best model.
    output_.finish_checkpoint(kCheckpointTimeout);
    path = best_checkpoint();
    if (!path) {
      log_.warn(
          "the checkpoint of the best model, of step {}, is missing; the model is that of the last "
          "step",
          step);
    } else {
      try {
        // While the others have the moments, so that a checkpoint can still be written.
        checkpoint::verify_checkpoint(*path);
      } catch (const Failure& failure) {
        if (failure.code() != ExitCode::kCheckpoint) throw;
        log_.warn("{}; the model is that of the last step, not of step {}, the best one",
                  failure.what(), step);
        path.reset();
      }
    }
  }
  const std::string found = collectives::broadcast_string(mesh, 0, path ? path->string() : "",
                                                          PATH_MAX, collective_deadline());
  if (found.empty()) return progress_.step();
  progress_.begin_best_model();
  if (mesh.rank() == 0) {
    checkpoint::load_checkpoint(*path, job_.fingerprint, tensors());
    model_.pack_weights();
    // Before a peer can be lost: the others still have other weights.
    progress_.set_best_model_loaded();
    faults_.hit("best_model.loaded");
  }
  // The weights stay complete until all have arrived.
  const std::span<float> received = mesh.rank() == 0 ? model_.parameters() : optimizer_.exp_avg();
  broadcast_values(mesh, received);
  if (mesh.rank() == 0) return step;
  std::ranges::copy(received, model_.parameters().begin());
  model_.pack_weights();
  progress_.set_best_model_loaded();
  return step;
}

template class TrainingState<float>;
template class TrainingState<runtime::bf16>;

}  // namespace tilewright::train
