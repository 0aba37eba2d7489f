#include "worker/checkpoint/tensor.h"

#include <array>
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "worker/runtime/bf16.h"

namespace tilewright::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "weight files hold little-endian data");

struct DTypeRow {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<DTypeRow, 13> kDTypes = {{{"BOOL", 1},
                                               {"U8", 1},
                                               {"I8", 1},
                                               {"I16", 2},
                                               {"U16", 2},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"I32", 4},
                                               {"U32", 4},
                                               {"F32", 4},
                                               {"F64", 8},
                                               {"I64", 8},
                                               {"U64", 8}}};

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

// memcpy: data in a file may be unaligned.
template <typename Element>
Element element_at(const Tensor& tensor, std::int64_t index) {
  Element element;
  std::memcpy(&element, tensor.bytes.data() + static_cast<std::size_t>(index) * sizeof element,
              sizeof element);
  return element;
}

// Calls use(i, index) for each output element i: its index in the storage, in elements.
template <typename Use>
void for_each_index(const Tensor& tensor, std::int64_t first, std::size_t count, Use use) {
  if (tensor.strides.empty()) {
    for (std::size_t i = 0; i < count; ++i) use(i, first + static_cast<std::int64_t>(i));
    return;
  }
  const std::size_t dimensions = tensor.shape.size();
  std::vector<std::int64_t> position(dimensions);
  std::int64_t index = 0;
  for (std::size_t d = dimensions; d-- > 0;) {
    position[d] = first % tensor.shape[d];
    first /= tensor.shape[d];
    index += position[d] * tensor.strides[d];
  }
  for (std::size_t i = 0; i < count; ++i) {
    use(i, index);
    for (std::size_t d = dimensions; d-- > 0;) {
      index += tensor.strides[d];
      if (++position[d] < tensor.shape[d]) break;
      index -= tensor.shape[d] * tensor.strides[d];
      position[d] = 0;
    }
  }
}

template <typename Element, typename Convert>
void convert(const Tensor& tensor, std::int64_t first, std::span<float> out, Convert to) {
  for_each_index(tensor, first, out.size(), [&](std::size_t i, std::int64_t index) {
    out[i] = to(element_at<Element>(tensor, index));
  });
}

}  // namespace

std::string_view dtype_name(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
std::size_t dtype_size(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].size; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string to_string(const Shape& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  }
  return "[" + text + "]";
}

std::int64_t Tensor::size() const {
  std::uint64_t count = 1;  // of an empty tensor, the product of the first extents may overflow
  for (const std::int64_t extent : shape) count *= static_cast<std::uint64_t>(extent);
  return static_cast<std::int64_t>(count);
}

bool is_floating_point(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16 ||
         dtype == DType::kF64;
}

void copy_floats(const Tensor& tensor, std::int64_t first, std::span<float> out) {
  TW_CHECK(first >= 0 && static_cast<std::int64_t>(out.size()) <= tensor.size() - first,
           "elements {} to {} of a tensor of {}", first, first + std::ssize(out), tensor.size());
  if (out.empty()) return;
  using runtime::bf16;
  switch (tensor.dtype) {
    case DType::kF32:
      if (tensor.strides.empty()) {
        std::memcpy(out.data(), tensor.bytes.data() + static_cast<std::size_t>(first) * 4,
                    out.size_bytes());
        return;
      }
      return convert<float>(tensor, first, out, [](float value) { return value; });
    case DType::kF16:
      return convert<std::uint16_t>(tensor, first, out, half_to_float);
    case DType::kBf16:
      return convert<std::uint16_t>(
          tensor, first, out, [](std::uint16_t bits) { return runtime::to_float(bf16{bits}); });
    case DType::kF64:
      return convert<double>(tensor, first, out,
                             [](double value) { return static_cast<float>(value); });
    default:
      TW_CHECK(false, "copy_floats() of dtype {}", dtype_name(tensor.dtype));
  }
}

}  // namespace tilewright::checkpoint
