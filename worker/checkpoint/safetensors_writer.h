// Writes safetensors files. The same tensors always give the same bytes, equal to those of the
// safetensors library: wider types first, then by name, no timestamps.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "worker/checkpoint/hashed_file.h"
#include "worker/checkpoint/safetensors_header.h"

namespace tilewright::checkpoint {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

NamedTensor float_tensor(std::string name, Shape shape, const float* data);

// Creates `path`, which must not exist, writes the tensors and returns the file's digest. Does not
// sync; AtomicDirectory does. The header's metadata has "format": "pt", which transformers
// requires, and `metadata`. Failures have output_error_code(); an incomplete file is removed.
FileDigest write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {});

}  // namespace tilewright::checkpoint
