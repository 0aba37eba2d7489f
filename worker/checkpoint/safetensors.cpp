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

static_assert(std::endian::native == std::endian::little, "safetensors are read in place");

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

// The file's bytes need not be aligned, hence memcpy.
template <typename T, typename Convert, typename Out>
void convert(std::span<const std::byte> bytes, std::span<Out> out, Convert to) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = to(value);
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::int64_t Tensor::size() const {
  return static_cast<std::int64_t>(bytes.size() / dtype_size(dtype));
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path, ExitCode code)
    : path_(std::move(path)), code_(code) {
  const Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail(fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) fail("is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) fail(fmt::format("cannot map: {}", std::strerror(errno)));
    content_ = {static_cast<const std::byte*>(mapped), size};
  }
  try {
    header_ = parse_safetensors(content_, path_, code_);
  } catch (...) {
    if (size > 0) munmap(const_cast<std::byte*>(content_.data()), size);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (!content_.empty()) munmap(const_cast<std::byte*>(content_.data()), content_.size());
}

const Tensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  return found == header_.tensors.end() ? nullptr : &found->second;
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
           "{} numbers of {} read into room for {}", tensor.size(), name, out.size());
  using runtime::bf16;
  switch (tensor.dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
      return;
    case DType::kF16:
      return convert<std::uint16_t>(tensor.bytes, out, half_to_float);
    case DType::kBf16:
      return convert<std::uint16_t>(
          tensor.bytes, out, [](std::uint16_t bits) { return runtime::to_float(bf16{bits}); });
    default:
      TW_CHECK(false, "{} of a type that check_floats refuses", name);
  }
}

std::vector<float> SafetensorsFile::read_floats(const std::string& name, const Shape& shape) const {
  std::vector<float> out(static_cast<std::size_t>(at(name, shape).size()));
  read_floats(name, shape, out);
  return out;
}

std::vector<std::int64_t> SafetensorsFile::read_integers(const std::string& name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) fail(fmt::format("has no tensor {}", quote(name)));
  std::vector<std::int64_t> out(static_cast<std::size_t>(tensor->size()));
  const auto same = [](auto value) { return static_cast<std::int64_t>(value); };
  if (tensor->dtype == DType::kI32) {
    convert<std::int32_t>(tensor->bytes, std::span(out), same);
  } else if (tensor->dtype == DType::kI64) {
    convert<std::int64_t>(tensor->bytes, std::span(out), same);
  } else {
    fail(fmt::format("tensor {}: found dtype {}, expected I32 or I64", quote(name),
                     dtype_name(tensor->dtype)));
  }
  return out;
}

void SafetensorsFile::fail(const std::string& what) const {
  throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
}

}  // namespace tilewright::checkpoint
