// Writes safetensors files: the same tensors always give the same bytes, those of the format's own
// library (wider types first, then by name; no time stamps).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/checkpoint/hashed_file.h"
#include "worker/checkpoint/safetensors.h"

namespace tilewright::checkpoint {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

NamedTensor float_tensor(std::string name, Shape shape, const float* data);
NamedTensor int32_tensor(std::string name, Shape shape, const std::int32_t* data);
NamedTensor int64_tensor(std::string name, Shape shape, const std::int64_t* data);

// Creates `path` (which may not exist yet) and streams the tensors into it, hashing on the way;
// syncing is left to AtomicDirectory. Metadata is {"format": "pt"}, without which transformers
// refuses a file. Failures carry kOutput; a half-written file is removed.
FileDigest write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors);

}  // namespace tilewright::checkpoint
