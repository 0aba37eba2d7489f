#include "worker/checkpoint/model_directory.h"

#include "common/base/files.h"
#include "common/contract/model_files.h"
#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/block_digest.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTokenizerBytes = 256u << 20;

}  // namespace

std::map<std::string, std::string> tokenizer_files(const fs::path& model_directory) {
  std::map<std::string, std::string> files;
  for (const char* name : model_files::kTokenizerFiles) {
    if (!is_present(model_directory / name)) continue;
    files[name] = read_regular_file(model_directory / name, kMaxTokenizerBytes, ExitCode::kModel,
                                    ExitCode::kOutputUnavailable)
                      .or_throw();
  }
  return files;
}

FileDigest write_model_directory(const OutputWriter& output, const ModelDirectoryContent& content) {
  auto files = content.extra_files;
  files[model_files::kConfig] = content.config_json;
  std::vector<NamedTensor> tensors;
  tensors.reserve(content.weights.size());
  Tensors by_name;
  for (const TensorView& view : content.weights) {
    tensors.push_back(float_tensor(view.name, view.shape, view.data));
    by_name.emplace(view.name, tensors.back().tensor);
  }
  const std::string digest_of_weights = tensors_digest(by_name, content.pool);

  AtomicDirectory directory(output, "model");
  FileDigest digest;
  directory.fill([&](const std::filesystem::path& staging) {
    digest = write_safetensors(staging / model_files::kSafetensors, std::move(tensors),
                               {{kTensorsDigest, digest_of_weights}});
    for (const auto& [name, bytes] : files) write_hashed(staging / name, bytes);
  });
  if (content.before_commit) content.before_commit();
  directory.commit_files(model_files::kSafetensors);
  return digest;
}

}  // namespace tilewright::checkpoint
