// A tensor as it lies in a weight file, and the conversion of its elements to fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::checkpoint {

// In the reverse of the safetensors library's order: the library writes wider types first,
// so that every tensor begins at a multiple of its element size.
enum class DType { kBool, kU8, kI8, kI16, kU16, kF16, kBf16, kI32, kU32, kF32, kF64, kI64, kU64 };

std::string_view dtype_name(DType dtype);  // as in a safetensors header: "F32", "BF16"
std::optional<DType> parse_dtype(std::string_view name);
std::size_t dtype_size(DType dtype);  // bytes per element

using Shape = std::vector<std::int64_t>;
// "[30522, 384]"
std::string to_string(const Shape& shape);

// More dimensions than any tensor has.
inline constexpr std::size_t kMaxDimensions = 16;

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape{};                       // empty for a scalar
  std::span<const std::byte> bytes{};  // little-endian; a view into the file; not aligned
  // Distances between neighbours in each dimension, in elements. Empty: row-major, without gaps.
  std::vector<std::int64_t> strides{};

  std::int64_t size() const;  // elements
};

using Tensors = std::map<std::string, Tensor>;  // by name

// What a weight file contains.
struct FileTensors {
  Tensors tensors;
  std::string sha256 = {};  // tensors_digest() at the time of the write; empty: not in the file
};

// Whether copy_floats() can convert it: F32, F16, BF16 or F64.
bool is_floating_point(DType dtype);

// Converts the elements [first, first + out.size()) in row-major order to fp32. F64 is rounded to
// nearest and becomes infinite outside the range of fp32.
void copy_floats(const Tensor& tensor, std::int64_t first, std::span<float> out);

}  // namespace tilewright::checkpoint
