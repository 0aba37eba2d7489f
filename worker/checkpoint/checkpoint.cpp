#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <set>

#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/model_files.h"
#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/checksums.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr std::string_view kPrefix = "checkpoint-";
constexpr int kMaxListings = 100;  // each but the first follows a change by another process

// Views of the same memory with the names in the file.
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

// The file must contain exactly these tensors in fp32, so that the restored bits are identical.
void require_matching_tensors(const SafetensorsFile& file, const std::vector<TensorView>& views) {
  std::set<std::string> wanted;
  for (const TensorView& view : views) {
    const Tensor& tensor = file.at(view.name, view.shape);
    if (tensor.dtype != DType::kF32) {
      file.fail(fmt::format("tensor {}: found dtype {}, expected F32", quoted_excerpt(view.name),
                            dtype_name(tensor.dtype)));
    }
    wanted.insert(view.name);
  }
  for (const auto& [name, unused] : file.tensors()) {
    if (!wanted.contains(name)) {
      file.fail(
          fmt::format("found tensor {}, which this model does not have", quoted_excerpt(name)));
    }
  }
}

void read_views(const SafetensorsFile& file, const std::vector<TensorView>& views) {
  for (const TensorView& view : views) {
    file.read_floats(view.name, view.shape, {view.data, static_cast<std::size_t>(view.size())});
  }
}

// A checkpoint that could not be read must not replace one that can.
std::string bounded_state_json(const fs::path& checkpoint, const TrainerState& state) {
  std::string json = trainer_state_json(state);
  if (json.size() <= kMaxTrainerStateBytes) return json;
  throw Failure(
      ExitCode::kOutput,
      fmt::format("{}: has {} bytes, expected at most {}; the log history has {} entries, "
                  "use a larger --logging_steps",
                  (checkpoint / kStateFile).string(), json.size(), kMaxTrainerStateBytes,
                  state.log_history.size()));
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size());
  const auto step = parse_number<std::int64_t>(digits, 0);
  return step && std::to_string(*step) == digits ? step : std::nullopt;
}

[[noreturn]] void fail_missing(const fs::path& checkpoint, const char* file) {
  throw Failure(ExitCode::kCheckpoint,
                fmt::format("{}: {} is missing; expected it in every checkpoint",
                            (checkpoint / kChecksumsFile).string(), file));
}

ValidCheckpoint first_valid(const std::vector<fs::path>& checkpoints) {
  ValidCheckpoint out;
  for (const fs::path& path : checkpoints) {
    try {
      verify_content(path, read_checksums(path));
      out.path = path;
      return out;
    } catch (const Failure& failure) {
      if (failure.code() != ExitCode::kCheckpoint) throw;  // not the content: the storage
      out.warnings.push_back(fmt::format("ignoring {}: {}", path.string(), failure.what()));
    }
  }
  return out;
}

bool is_complete(const fs::path& checkpoint) {
  try {
    verify_sizes(checkpoint, read_checksums(checkpoint));
    return true;
  } catch (const Failure& failure) {
    if (failure.code() != ExitCode::kCheckpoint) throw;
    return false;
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{}", kPrefix, step); }

fs::path write_checkpoint(const OutputWriter& output, const CheckpointContent& content) {
  const std::string name = checkpoint_name(content.state.global_step);
  const std::string state = bounded_state_json(output.directory() / name, content.state);
  AtomicDirectory directory(output, name);
  Checksums checksums;
  directory.fill([&](const fs::path& staging) {
    checksums[model_files::kSafetensors] =
        write_views(staging / model_files::kSafetensors, content.tensors.weights);
    checksums[kOptimizerFile] = write_views(staging / kOptimizerFile, moments(content.tensors));
    checksums[kStateFile] = write_hashed(staging / kStateFile, state);
    for (const auto& [file, bytes] : content.extra_files) {
      checksums[file] = write_hashed(staging / file, bytes);
    }
    write_hashed(staging / kChecksumsFile, checksums_json(checksums));
  });
  if (content.before_commit) content.before_commit();
  directory.commit();
  return output.directory() / name;
}

TrainerState read_checkpoint_state(const fs::path& checkpoint) {
  const Checksums checksums = read_checksums(checkpoint);
  const auto state = checksums.find(kStateFile);
  if (state == checksums.end()) fail_missing(checkpoint, kStateFile);
  verify_content(checkpoint, {*state});
  return read_trainer_state(checkpoint / kStateFile);
}

void verify_checkpoint(const fs::path& checkpoint) {
  if (type_at(checkpoint) != fs::file_type::directory) {
    throw Failure(ExitCode::kCheckpoint,
                  fmt::format("{}: checkpoint directory not found", checkpoint.string()));
  }
  const Checksums checksums = read_checksums(checkpoint);
  for (const char* name : {model_files::kSafetensors, kOptimizerFile, kStateFile}) {
    if (!checksums.contains(name)) fail_missing(checkpoint, name);
  }
  verify_content(checkpoint, checksums);
}

TrainerState load_checkpoint(const fs::path& checkpoint, const nlohmann::json& expected_settings,
                             const TrainingTensors& into) {
  verify_checkpoint(checkpoint);
  TrainerState state = read_trainer_state(checkpoint / kStateFile);
  if (!expected_settings.is_null()) {
    require_same_settings(state, expected_settings, checkpoint / kStateFile);
  }
  const SafetensorsFile weights(checkpoint / model_files::kSafetensors, ExitCode::kCheckpoint);
  const SafetensorsFile optimizer(checkpoint / kOptimizerFile, ExitCode::kCheckpoint);
  const auto moment_views = moments(into);
  require_matching_tensors(weights, into.weights);
  require_matching_tensors(optimizer, moment_views);
  read_views(weights, into.weights);
  read_views(optimizer, moment_views);
  return state;
}

std::vector<fs::path> list_checkpoints(const fs::path& output_dir) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(output_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = step_of(entry->path().filename());
    if (step && is_present(entry->path() / kChecksumsFile)) {
      found.emplace_back(*step, entry->path());
    }
  }
  // An incomplete list would make a training start at an earlier step without a word.
  if (error && error != std::errc::no_such_file_or_directory) {
    fail_storage(output_dir, "list the checkpoints", error.value());
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

bool is_checkpoint_of(const fs::path& path, const fs::path& output_dir) {
  fs::path own = path;
  if (!own.has_filename()) own = own.parent_path();  // of a name that ends with a slash
  if (!step_of(own.filename()) || type_at(own) != fs::file_type::directory) return false;
  std::error_code error;
  const bool same = fs::equivalent(fs::absolute(own).parent_path(), output_dir, error);
  if (error && !says_absent(error.value())) fail_storage(output_dir, "stat", error.value());
  return same;
}

ValidCheckpoint latest_valid_checkpoint(const fs::path& output_dir) {
  std::vector<fs::path> listed = list_checkpoints(output_dir);
  for (int listings = 1;; ++listings) {
    ValidCheckpoint out = first_valid(listed);
    if (out.path && out.warnings.empty()) return out;
    // Perhaps another process has removed one, after it wrote a newer one.
    std::vector<fs::path> again = list_checkpoints(output_dir);
    if (again == listed || listings == kMaxListings) return out;
    listed = std::move(again);
  }
}

std::vector<fs::path> prune(const OutputWriter& output, int keep, std::int64_t best_step,
                            std::int64_t last_step) {
  std::vector<fs::path> removed;
  if (keep <= 0) return removed;
  const fs::path best = output.directory() / checkpoint_name(best_step);
  int complete = 0;
  bool best_seen = best_step == 0 || !is_complete(best);
  for (const fs::path& path : list_checkpoints(output.directory())) {
    if (step_of(path.filename()) > last_step) continue;
    if (path == best) {
      best_seen = true;
      complete += complete < keep ? 1 : 0;
      continue;
    }
    // One of the kept is the best checkpoint, which comes later in the list.
    const int allowed = best_seen ? keep : std::max(1, keep - 1);
    if (complete >= allowed) {
      removed.push_back(path);
    } else if (is_complete(path)) {
      ++complete;
    }
  }
  std::reverse(removed.begin(), removed.end());  // oldest first
  for (const fs::path& path : removed) remove_atomically(output, path.filename());
  return removed;
}

}  // namespace tilewright::checkpoint
