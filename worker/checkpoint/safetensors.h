// Reads safetensors files: a JSON header that names tensors, then their bytes. The file is mapped,
// every claim of its header is checked before a byte is used, and nothing is copied until asked
// for. Format: 8 bytes little-endian header length, the header, the data; tensors are row-major,
// little-endian, and fill the data without gap or overlap.
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

// In the order in which the format's own library lays tensors out (last first): wider types start
// at multiples of their size.
enum class DType { kBool, kU8, kI8, kI16, kU16, kF16, kBf16, kI32, kU32, kF32, kF64, kI64, kU64 };

std::string_view dtype_name(DType dtype);  // as in the header: "F32", "BF16"
std::size_t dtype_size(DType dtype);       // bytes of one element

using Shape = std::vector<std::int64_t>;
// "[30522, 384]"
std::string to_string(const Shape& shape);

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;                         // empty for a scalar
  std::span<const std::byte> bytes{};  // not aligned; lives as long as the file's object
  std::int64_t size() const;           // elements
};

// The tensors and the free text pairs of a header.
struct SafetensorsHeader {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// A header longer than this is refused: BERT-large's takes 50 kB.
inline constexpr std::uint64_t kMaxHeaderBytes = 16u << 20;

// `content` is the whole file; the spans of the result point into it. Failures carry `code` and
// name `path` and the tensor.
SafetensorsHeader parse_safetensors(std::span<const std::byte> content,
                                    const std::filesystem::path& path, ExitCode code);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path, ExitCode code = ExitCode::kWeights);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, Tensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  std::span<const std::byte> content() const { return content_; }
  // nullptr when there is none of this name.
  const Tensor* find(const std::string& name) const;
  // The tensor of exactly this shape, or a Failure.
  const Tensor& at(const std::string& name, const Shape& shape) const;

  // A Failure unless there is such a tensor, of a type that read_floats converts.
  void check_floats(const std::string& name, const Shape& shape) const;
  // Converts F32, F16 or BF16 to fp32; a Failure for another dtype or shape.
  void read_floats(const std::string& name, const Shape& shape, std::span<float> out) const;
  std::vector<float> read_floats(const std::string& name, const Shape& shape) const;
  // I32 or I64 tensors of any shape, flat; a Failure for another dtype.
  std::vector<std::int64_t> read_integers(const std::string& name) const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::filesystem::path path_;
  ExitCode code_;
  std::span<const std::byte> content_{};
  SafetensorsHeader header_;
};

// A name from a file as it may stand in a message: quoted, control characters escaped, cut.
std::string quote(std::string_view name);

}  // namespace tilewright::checkpoint
