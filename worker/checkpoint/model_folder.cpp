#include "worker/checkpoint/model_folder.h"

#include "common/base/files.h"
#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr std::uint64_t kMaxTokenizerBytes = 256u << 20;

}  // namespace

std::map<std::string, std::string> tokenizer_files(const fs::path& model_folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {"vocab.txt", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json"}) {
    std::error_code ignored;
    if (!fs::exists(model_folder / name, ignored)) continue;
    files[name] = read_file(model_folder / name, kMaxTokenizerBytes, ExitCode::kModel).or_throw();
  }
  return files;
}

FileDigest write_model_folder(const fs::path& output_dir, const ModelFolderContent& content) {
  auto files = tokenizer_files(content.tokenizer_source);
  for (const auto& [name, bytes] : content.extra_files) files[name] = bytes;
  files["config.json"] = content.config_json;
  std::vector<NamedTensor> tensors;
  tensors.reserve(content.weights.size());
  for (const TensorView& view : content.weights) {
    tensors.push_back(float_tensor(view.name, view.shape, view.data));
  }

  std::error_code ignored;
  const bool stands = fs::is_directory(output_dir, ignored);
  AtomicDirectory folder(stands ? output_dir / "model" : output_dir);
  const FileDigest digest = write_safetensors(folder.aside() / kModelFile, std::move(tensors));
  for (const auto& [name, bytes] : files) write_hashed(folder.aside() / name, bytes);
  if (content.before_commit) content.before_commit();
  if (stands) {
    folder.commit_into(output_dir, kModelFile);
  } else {
    folder.commit();
  }
  return digest;
}

}  // namespace tilewright::checkpoint
