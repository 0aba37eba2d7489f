#include "worker/checkpoint/checkpoint.h"

#include <set>

#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/checksums.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "trainer_state.json";

// The same memory under the name it has in a file.
std::vector<TensorView> prefixed(const std::string& prefix, const std::vector<TensorView>& views) {
  std::vector<TensorView> renamed;
  renamed.reserve(views.size());
  for (const TensorView& view : views)
    renamed.push_back({prefix + view.name, view.shape, view.data});
  return renamed;
}

std::vector<TensorView> moments(const TrainingTensors& tensors) {
  auto views = prefixed("exp_avg.", tensors.exp_avg);
  for (auto& view : prefixed("exp_avg_sq.", tensors.exp_avg_sq)) views.push_back(std::move(view));
  return views;
}

FileDigest write_views(const fs::path& path, const std::vector<TensorView>& views) {
  std::vector<NamedTensor> tensors;
  tensors.reserve(views.size());
  for (const TensorView& view : views) {
    tensors.push_back(float_tensor(view.name, view.shape, view.data));
  }
  return write_safetensors(path, std::move(tensors));
}

// The file must hold these tensors in fp32 and no other: a checkpoint restores bits.
void require_fit(const SafetensorsFile& file, const std::vector<TensorView>& views) {
  std::set<std::string> wanted;
  for (const TensorView& view : views) {
    const Tensor& tensor = file.at(view.name, view.shape);
    if (tensor.dtype != DType::kF32) {
      file.fail(fmt::format("tensor {}: found dtype {}, expected F32", quote(view.name),
                            dtype_name(tensor.dtype)));
    }
    wanted.insert(view.name);
  }
  for (const auto& [name, unused] : file.tensors()) {
    if (!wanted.contains(name)) {
      file.fail(fmt::format("holds tensor {}, which this model does not have", quote(name)));
    }
  }
}

void read_views(const SafetensorsFile& file, const std::vector<TensorView>& views) {
  for (const TensorView& view : views) {
    file.read_floats(view.name, view.shape, {view.data, static_cast<std::size_t>(view.size())});
  }
}

}  // namespace

fs::path write_checkpoint(const fs::path& output_dir, const CheckpointContent& content) {
  fs::path target = output_dir / fmt::format("checkpoint-{}", content.state.global_step);
  AtomicDirectory folder(target);
  Checksums checksums;
  checksums[kModelFile] = write_views(folder.aside() / kModelFile, content.tensors.weights);
  checksums[kOptimizerFile] =
      write_views(folder.aside() / kOptimizerFile, moments(content.tensors));
  checksums[kStateFile] =
      write_hashed(folder.aside() / kStateFile, trainer_state_json(content.state));
  for (const auto& [name, bytes] : content.extra_files) {
    checksums[name] = write_hashed(folder.aside() / name, bytes);
  }
  write_hashed(folder.aside() / kChecksumsFile, checksums_json(checksums));
  if (content.before_commit) content.before_commit();
  folder.commit();
  return target;
}

TrainerState load_checkpoint(const fs::path& checkpoint, const nlohmann::json& expected_settings,
                             const TrainingTensors& into) {
  std::error_code ignored;
  if (!fs::is_directory(checkpoint, ignored)) {
    throw Failure(ExitCode::kCheckpoint,
                  fmt::format("{}: there is no such checkpoint folder", checkpoint.string()));
  }
  const Checksums checksums = read_checksums(checkpoint);
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    if (checksums.contains(name)) continue;
    throw Failure(ExitCode::kCheckpoint,
                  fmt::format("{}: does not name {}, expected in every checkpoint",
                              (checkpoint / kChecksumsFile).string(), name));
  }
  verify_content(checkpoint, checksums);
  TrainerState state = read_trainer_state(checkpoint / kStateFile);
  if (!expected_settings.is_null()) {
    require_same_settings(state, expected_settings, checkpoint / kStateFile);
  }
  const SafetensorsFile weights(checkpoint / kModelFile, ExitCode::kCheckpoint);
  const SafetensorsFile optimizer(checkpoint / kOptimizerFile, ExitCode::kCheckpoint);
  const auto moment_views = moments(into);
  require_fit(weights, into.weights);
  require_fit(optimizer, moment_views);
  read_views(weights, into.weights);
  read_views(optimizer, moment_views);
  return state;
}

}  // namespace tilewright::checkpoint
