// The trainer's state: starting weights, checkpoints, the final model.
#include <cstddef>
#include <string>

#include "worker/checkpoint/model_folder.h"
#include "worker/collectives/exchange.h"
#include "worker/train/trainer_impl.h"

namespace tilewright::train {
namespace {

constexpr std::size_t kMaxStateBytes = std::size_t{64} << 20;

// What the other workers need of rank 0's trainer state.
std::string position_json(const checkpoint::TrainerState& state) {
  return nlohmann::json{{"global_step", state.global_step},
                        {"epoch", state.epoch},
                        {"num_input_tokens_seen", state.num_input_tokens_seen},
                        {"total_flos", state.total_flos},
                        {"examples_consumed", state.examples_consumed},
                        {"log_history", state.log_history}}
      .dump();
}

checkpoint::TrainerState position_from(const std::string& text) {
  checkpoint::TrainerState state;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    json.at("global_step").get_to(state.global_step);
    json.at("epoch").get_to(state.epoch);
    json.at("num_input_tokens_seen").get_to(state.num_input_tokens_seen);
    json.at("total_flos").get_to(state.total_flos);
    json.at("examples_consumed").get_to(state.examples_consumed);
    state.log_history = json.at("log_history");
  } catch (const nlohmann::json::exception& error) {
    throw Failure(
        ExitCode::kPeerLost,
        fmt::format("rank 0 sent a training state that does not decode: {}", error.what()));
  }
  return state;
}

std::span<std::byte> bytes_of(std::span<float> values) { return std::as_writable_bytes(values); }

}  // namespace

template <typename T>
std::vector<checkpoint::TensorView> TypedTrainer<T>::views(float* base) const {
  std::vector<checkpoint::TensorView> views;
  for (const nn::Tensor& tensor : model_.layout().tensors) {
    views.push_back({tensor.name, tensor.shape, base + tensor.offset});
  }
  return views;
}

template <typename T>
void TypedTrainer<T>::load_starting_weights() {
  const auto file = checkpoint::open_weights(job_.settings.model_dir);
  std::string initialised;
  for (const nn::Tensor& tensor : model_.layout().tensors) {
    float* const values = model_.parameters().data() + tensor.offset;
    if (may_be_missing(tensor.name) && !checkpoint::find_parameter(*file, tensor.name)) {
      nn::initialise_tensor(tensor, job_.settings.init_seed, job_.model.bert.initializer_range,
                            values);
      initialised += (initialised.empty() ? "" : ", ") + tensor.name;
    } else {
      checkpoint::read_parameter(*file, {tensor.name, tensor.shape, values});
    }
  }
  if (!initialised.empty())
    log_.info("{} has no {}: drawn anew", file->path().string(), initialised);
  std::fill(optimizer_.exp_avg().begin(), optimizer_.exp_avg().end(), 0.0f);
  std::fill(optimizer_.exp_avg_sq().begin(), optimizer_.exp_avg_sq().end(), 0.0f);
  state_ = {};
}

template <typename T>
void TypedTrainer<T>::restore(collectives::Mesh& mesh, bool resume) {
  const Settings& s = job_.settings;
  const MonotonicTime deadline = monotonic_now() + kPatience;
  loss_sum_ = 0;
  loss_count_ = 0;
  bool loaded = false;
  if (mesh.rank() == 0 && s.do_train) {
    std::optional<std::filesystem::path> from;
    if (resume) {
      const checkpoint::ValidCheckpoint valid = checkpoint::latest_valid_checkpoint(s.output_dir);
      for (const std::string& warning : valid.warnings) log_.warn("{}", warning);
      from = valid.path;
    }
    if (!from && !s.resume_from_checkpoint.empty()) from = s.resume_from_checkpoint;
    if (from) {
      state_ = checkpoint::load_checkpoint(
          *from, job_.fingerprint,
          {views(model_.parameters().data()), views(optimizer_.exp_avg().data()),
           views(optimizer_.exp_avg_sq().data())});
      loaded = true;
      log_.info("resuming from {} (step {} of {})", from->string(), state_.global_step,
                job_.schedule.total_steps);
    }
  }
  const std::string state = collectives::broadcast_text(
      mesh, 0, loaded ? position_json(state_) : std::string(), kMaxStateBytes, deadline);
  if (state.empty()) {
    load_starting_weights();
  } else {
    if (mesh.rank() != 0) state_ = position_from(state);
    collectives::broadcast(mesh, 0, bytes_of(model_.parameters()), deadline);
    collectives::broadcast(mesh, 0, bytes_of(optimizer_.exp_avg()), deadline);
    collectives::broadcast(mesh, 0, bytes_of(optimizer_.exp_avg_sq()), deadline);
  }
  last_checkpoint_step_ = state.empty() ? -1 : state_.global_step;
  model_.pack_weights();
  state_.job_uid = job_.uid;
  state_.settings = job_.fingerprint;
  state_.max_steps = job_.schedule.total_steps;
  state_.num_train_epochs = static_cast<std::int64_t>(s.schedule.num_train_epochs + 0.999);
  state_.train_batch_size = s.per_device_train_batch_size;
  state_.logging_steps = s.logging_steps;
  state_.save_steps = s.save_steps;
}

template <typename T>
void TypedTrainer<T>::write_checkpoint(std::uint64_t membership_epoch) {
  faults_.hit("checkpoint.begin");
  const MonotonicTime begin = monotonic_now();
  state_.membership_epoch = static_cast<std::int64_t>(membership_epoch);
  checkpoint::CheckpointContent content;
  content.state = state_;
  content.tensors = {views(model_.parameters().data()), views(optimizer_.exp_avg().data()),
                     views(optimizer_.exp_avg_sq().data())};
  content.extra_files = checkpoint::tokenizer_files(job_.settings.model_dir);
  content.extra_files["config.json"] =
      checkpoint::classifier_config_json(job_.model.json, job_.model.labels);
  content.before_commit = [this] { faults_.hit("checkpoint.before_rename"); };
  const std::filesystem::path path =
      checkpoint::write_checkpoint(job_.settings.output_dir, content);
  for (const auto& gone :
       checkpoint::prune(job_.settings.output_dir, job_.settings.save_total_limit)) {
    log_.debug("removed {}", gone.string());
  }
  last_checkpoint_step_ = state_.global_step;
  log_.info("checkpoint {} written in {}", path.string(), to_words(monotonic_now() - begin));
  faults_.hit("checkpoint.done");
}

template <typename T>
std::string TypedTrainer<T>::write_model(std::map<std::string, std::string> results) {
  faults_.hit("output.begin");
  checkpoint::ModelFolderContent content;
  content.weights = views(model_.parameters().data());
  content.config_json = checkpoint::classifier_config_json(job_.model.json, job_.model.labels);
  content.tokenizer_source = job_.settings.model_dir;
  content.extra_files = std::move(results);
  content.before_commit = [this] { faults_.hit("output.before_rename"); };
  std::string digest = checkpoint::write_model_folder(job_.settings.output_dir, content).sha256;
  faults_.hit("output.done");
  return digest;
}

template class TypedTrainer<float>;
template class TypedTrainer<runtime::bf16>;

}  // namespace tilewright::train
