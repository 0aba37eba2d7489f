// Reads tables in the FlatBuffers encoding, that of Arrow's metadata, and checks every offset.
// Source: "FlatBuffer Internals" in the FlatBuffers documentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "worker/columnar/byte_reader.h"

namespace tilewright::columnar {

// Views into the bytes, which must outlive them, as must `location`. All functions throw
// Failure(kData) for an offset or a length outside the bytes.
class FlatVector;

class FlatTable {
 public:
  // The root table of a buffer.
  FlatTable(Bytes bytes, const Location& location);

  // Field number `field` of the schema; a union takes two numbers. A field that is absent has its
  // default.
  template <typename Value>
  Value scalar(unsigned field, Value absent) const {
    const std::size_t at = find(field, sizeof(Value));
    return at == 0 ? absent : load<Value>(bytes_, at);
  }
  std::optional<FlatTable> table(unsigned field) const;
  std::string_view string(unsigned field) const;  // empty if absent
  // A vector whose elements have `element_bytes` bytes; empty if absent.
  FlatVector vector(unsigned field, std::size_t element_bytes) const;
  FlatVector tables(unsigned field) const;  // a vector of tables

  const Location& location() const { return *location_; }

 private:
  friend class FlatVector;
  FlatTable(Bytes bytes, std::size_t position, const Location& location);
  static std::size_t follow(Bytes bytes, std::size_t at, const Location& location);
  // The position of a field of `size` bytes; 0 if it is absent.
  std::size_t find(unsigned field, std::size_t size) const;

  Bytes bytes_;
  std::size_t position_;
  std::size_t vtable_ = 0;
  std::uint16_t vtable_bytes_ = 0;
  std::uint16_t table_bytes_ = 0;
  const Location* location_;
};

class FlatVector {
 public:
  std::size_t size() const { return size_; }
  // The element, of the size given to vector().
  Bytes operator[](std::size_t i) const {
    return bytes_.subspan(begin_ + i * element_bytes_, element_bytes_);
  }
  FlatTable table(std::size_t i) const;

 private:
  friend class FlatTable;
  FlatVector(Bytes bytes, std::size_t begin, std::size_t size, std::size_t element_bytes,
             const Location& location)
      : bytes_(bytes),
        begin_(begin),
        size_(size),
        element_bytes_(element_bytes),
        location_(&location) {}

  Bytes bytes_;
  std::size_t begin_;
  std::size_t size_;
  std::size_t element_bytes_;
  const Location* location_;
};

}  // namespace tilewright::columnar
