#include "worker/columnar/rle.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::columnar {

RleDecoder::RleDecoder(Bytes bytes, unsigned bit_width, const Location& location)
    : bytes_(bytes, location), bit_width_(bit_width) {
  TW_CHECK(bit_width <= 32, "bit width {}", bit_width);
}

void RleDecoder::read(std::span<std::uint32_t> out) {
  if (bit_width_ == 0) {
    std::fill(out.begin(), out.end(), 0);
    return;
  }
  while (!out.empty()) {
    if (repeats_ == 0 && packed_ == 0) begin_run();
    const std::size_t count = std::min<std::uint64_t>(out.size(), std::max(repeats_, packed_));
    if (repeats_ > 0) {
      std::fill_n(out.begin(), count, value_);
      repeats_ -= count;
    } else {
      unpack(out.first(count));
      packed_ -= count;
    }
    out = out.subspan(count);
  }
}

void RleDecoder::begin_run() {
  const std::uint64_t header = bytes_.varint("the header of a run");
  const std::uint64_t length = header >> 1;
  if (length == 0) bytes_.location().fail("a run has no values");
  if ((header & 1) == 0) {
    const Bytes value = bytes_.take((bit_width_ + 7) / 8, "the value of a run");
    value_ = 0;
    std::memcpy(&value_, value.data(), value.size());
    if (bit_width_ < 32 && value_ >> bit_width_ != 0) {
      bytes_.location().fail(
          fmt::format("a run has the value {}, expected one of {} bits", value_, bit_width_));
    }
    repeats_ = length;
    return;
  }
  // A group has 8 values and so bit_width bytes. Some writers omit the unused bytes of the last
  // group.
  if (length > bytes_.left() / bit_width_ + 1) {
    bytes_.location().fail(
        fmt::format("a run of {} groups of 8 values is past the end of the page", length));
  }
  packed_bytes_ =
      bytes_.take(std::min<std::uint64_t>(length * bit_width_, bytes_.left()), "bit-packed values");
  packed_bit_ = 0;
  packed_ = std::min<std::uint64_t>(length * 8, packed_bytes_.size() * 8 / bit_width_);
  if (packed_ == 0) bytes_.location().fail("a bit-packed run has no values");
}

void RleDecoder::unpack(std::span<std::uint32_t> out) {
  const std::uint64_t mask = (std::uint64_t{1} << bit_width_) - 1;
  for (std::uint32_t& value : out) {
    // A value of at most 32 bits spans at most 5 bytes.
    const std::size_t byte = packed_bit_ / 8;
    const std::size_t size = std::min<std::size_t>(8, packed_bytes_.size() - byte);
    std::uint64_t bits = 0;
    std::memcpy(&bits, packed_bytes_.data() + byte, size);
    value = static_cast<std::uint32_t>(bits >> (packed_bit_ % 8) & mask);
    packed_bit_ += bit_width_;
  }
}

}  // namespace tilewright::columnar
