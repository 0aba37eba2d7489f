// Reads little-endian values from bytes of a file. Every read checks what is left.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "worker/columnar/location.h"

namespace tilewright::columnar {

static_assert(std::endian::native == std::endian::little,
              "Parquet and Arrow files hold little-endian data");

using Bytes = std::span<const std::byte>;

inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The value at `offset`, which need not be aligned. The caller has checked the bounds.
template <typename Value>
Value load(Bytes bytes, std::size_t offset) {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

class ByteReader {
 public:
  // `location` must outlive the reader.
  ByteReader(Bytes bytes, const Location& location) : bytes_(bytes), location_(&location) {}

  std::size_t left() const { return bytes_.size() - position_; }
  std::size_t position() const { return position_; }
  const Location& location() const { return *location_; }

  // The next `size` bytes. Throws Failure(kData) that names `what` if fewer are left.
  Bytes take(std::uint64_t size, std::string_view what) {
    if (size > left()) [[unlikely]]
      fail_short(size, what);
    const Bytes taken = bytes_.subspan(position_, static_cast<std::size_t>(size));
    position_ += taken.size();
    return taken;
  }

  template <typename Value>
  Value read(std::string_view what) {
    return load<Value>(take(sizeof(Value), what), 0);
  }

  // An unsigned LEB128 integer of at most 64 bits, as in Thrift's compact protocol.
  std::uint64_t varint(std::string_view what);

 private:
  [[noreturn]] void fail_short(std::uint64_t size, std::string_view what) const;

  Bytes bytes_;
  std::size_t position_ = 0;
  const Location* location_;
};

}  // namespace tilewright::columnar
