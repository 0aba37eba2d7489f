// Parses and validates the header of a safetensors file.
//
// Format: 8 bytes with the length of the header (little-endian), a JSON header that describes the
// tensors, then their data. Tensors are row-major and little-endian and cover the data without gaps
// or overlaps. Source: the format's description in the safetensors repository.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace tilewright::checkpoint {

// In the reverse of the safetensors library's order: the library writes wider types first,
// so that every tensor begins at a multiple of its element size.
enum class DType { kBool, kU8, kI8, kI16, kU16, kF16, kBf16, kI32, kU32, kF32, kF64, kI64, kU64 };

std::string_view dtype_name(DType dtype);  // as in the header: "F32", "BF16"
std::size_t dtype_size(DType dtype);       // bytes per element

using Shape = std::vector<std::int64_t>;
// "[30522, 384]"
std::string to_string(const Shape& shape);

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;                         // empty for a scalar
  std::span<const std::byte> bytes{};  // a view into the file; not aligned
  std::int64_t size() const;           // elements
};

using Tensors = std::map<std::string, Tensor>;  // by name

// Longer headers are refused. The header of BERT-large has 50 kB.
inline constexpr std::uint64_t kMaxHeaderBytes = 16u << 20;

// `content` is the whole file; the result contains views into it. Throws Failure with `code`; the
// message names `path` and the tensor.
Tensors parse_safetensors(std::span<const std::byte> content, const std::filesystem::path& path,
                          ExitCode code);

// Quotes a name from a file for a message: escapes control characters and truncates it.
std::string quote(std::string_view name);

}  // namespace tilewright::checkpoint
