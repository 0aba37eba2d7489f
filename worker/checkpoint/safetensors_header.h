// Parses and validates the header of a safetensors file.
//
// Format: 8 bytes with the length of the header (little-endian), a JSON header that describes the
// tensors, then their data. Tensors are row-major and little-endian and cover the data without gaps
// or overlaps. Source: the format's description in the safetensors repository.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "common/base/result.h"
#include "worker/checkpoint/tensor.h"

namespace tilewright::checkpoint {

// Longer headers are refused. The header of BERT-large has 50 kB.
inline constexpr std::uint64_t kMaxHeaderBytes = 16u << 20;

// The key of FileTensors::sha256 in the header's __metadata__. transformers leaves it out when it
// writes a model again.
inline constexpr const char* kTensorsDigest = "tensors_sha256";

// `content` is the whole file; the result contains views into it. Throws Failure with `code`; the
// message names `path` and the tensor.
FileTensors parse_safetensors(std::span<const std::byte> content, const std::filesystem::path& path,
                              ExitCode code);

}  // namespace tilewright::checkpoint
