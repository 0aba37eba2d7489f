// Reads structs in Thrift's compact protocol, the encoding of Parquet's metadata.
// Source: the compact protocol's specification in the Thrift repository.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "worker/columnar/byte_reader.h"

namespace tilewright::columnar {

// Types as encoded in a field or list header.
enum class ThriftType : std::uint8_t {
  kStop = 0,
  kTrue = 1,  // in a list header: boolean
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
};

struct ThriftField {
  std::int32_t id;
  ThriftType type;
};

// Memory and time are bounded by the bytes read: every element of a list takes at least one, and
// nothing is nested deeper than kMaxDepth. All functions throw Failure(kData) for malformed input.
class ThriftReader {
 public:
  // `location` must outlive the reader.
  ThriftReader(Bytes bytes, const Location& location) : bytes_(bytes, location) {}

  // The bytes read so far.
  std::size_t position() const { return bytes_.position(); }
  const Location& location() const { return bytes_.location(); }

  // Reads a struct. `field(ThriftField)` must read or skip the value of each field.
  template <typename ReadField>
  void read_struct(ReadField&& field) {
    enter();
    ThriftField header{0, ThriftType::kStop};
    while (next_field(header)) field(std::as_const(header));
    --depth_;
  }

  // Values. They refuse a field of another type.
  bool boolean(const ThriftField& field);
  std::int64_t integer(const ThriftField& field);  // a byte, i16, i32 or i64
  std::string_view binary(const ThriftField& field);
  template <typename ReadField>
  void structure(const ThriftField& field, ReadField&& read) {
    expect(field, ThriftType::kStruct);
    read_struct(read);
  }
  // Calls element() for each element, which must read it. `most` bounds their number.
  template <typename Element>
  void list(const ThriftField& field, ThriftType elements, std::uint64_t most, Element&& element) {
    expect(field, ThriftType::kList);
    for (std::uint64_t left = list_header(field, elements, most); left > 0; --left) element();
  }
  // An element of a list of binaries, or of i32.
  std::string_view binary_element();

  void skip(const ThriftField& field);

 private:
  static constexpr int kMaxDepth = 16;  // Parquet's structs nest 7 deep

  void enter();
  bool next_field(ThriftField& field);
  void expect(const ThriftField& field, ThriftType type) const;
  std::uint64_t list_header(const ThriftField& field, ThriftType elements, std::uint64_t most);
  void skip_value(ThriftType type, bool in_collection);

  ByteReader bytes_;
  int depth_ = 0;
};

}  // namespace tilewright::columnar
