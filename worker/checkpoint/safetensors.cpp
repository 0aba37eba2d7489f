#include "worker/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "worker/runtime/bf16.h"

namespace tilewright::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files hold little-endian data");

// IEEE 754 binary16 to binary32, exact for every value.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1fu;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal
  return sign != 0 ? -magnitude : magnitude;
}

// Converts elements of two bytes. memcpy: data in a file may be unaligned.
template <typename Convert>
void convert(std::span<const std::byte> bytes, std::span<float> out, Convert to) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    out[i] = to(bits);
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path, ExitCode code)
    : path_(std::move(path)), code_(code) {
  file_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_) fail(fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) fail("is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_.get(), 0);
    if (mapped == MAP_FAILED) fail(fmt::format("cannot map: {}", std::strerror(errno)));
    content_ = {static_cast<const std::byte*>(mapped), size};
  }
  try {
    tensors_ = parse_safetensors(content_, path_, code_);
  } catch (...) {
    if (size > 0) munmap(const_cast<std::byte*>(content_.data()), size);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (!content_.empty()) munmap(const_cast<std::byte*>(content_.data()), content_.size());
}

const Tensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const Tensor& SafetensorsFile::at(const std::string& name, const Shape& shape) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) {
    fail(fmt::format("has no tensor {}, expected one of shape {}", quote(name), to_string(shape)));
  }
  if (tensor->shape != shape) {
    fail(fmt::format("tensor {}: found shape {}, expected {}", quote(name),
                     to_string(tensor->shape), to_string(shape)));
  }
  return *tensor;
}

void SafetensorsFile::check_floats(const std::string& name, const Shape& shape) const {
  const DType dtype = at(name, shape).dtype;
  if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16) return;
  fail(fmt::format("tensor {}: found dtype {}, expected F32, F16 or BF16", quote(name),
                   dtype_name(dtype)));
}

void SafetensorsFile::read_floats(const std::string& name, const Shape& shape,
                                  std::span<float> out) const {
  check_floats(name, shape);
  const Tensor& tensor = at(name, shape);
  TW_CHECK(static_cast<std::int64_t>(out.size()) == tensor.size(),
           "{} elements of {} read into a buffer of {}", tensor.size(), name, out.size());
  using runtime::bf16;
  switch (tensor.dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
      return;
    case DType::kF16:
      return convert(tensor.bytes, out, half_to_float);
    case DType::kBf16:
      return convert(tensor.bytes, out,
                     [](std::uint16_t bits) { return runtime::to_float(bf16{bits}); });
    default:
      TW_CHECK(false, "{} has a dtype that check_floats() refuses", name);
  }
}

std::vector<float> SafetensorsFile::read_floats(const std::string& name, const Shape& shape) const {
  std::vector<float> out(static_cast<std::size_t>(at(name, shape).size()));
  read_floats(name, shape, out);
  return out;
}

void SafetensorsFile::check_size() const {
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  if (static_cast<std::size_t>(status.st_size) < content_.size()) {
    fail(fmt::format("has been truncated: found {} bytes, expected {}", status.st_size,
                     content_.size()));
  }
}

void SafetensorsFile::fail(const std::string& what) const {
  throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
}

}  // namespace tilewright::checkpoint
