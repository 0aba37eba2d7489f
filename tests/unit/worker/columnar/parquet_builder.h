// Builds Parquet files of one column byte by byte, also invalid ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewright::columnar {

// Writes structs of Thrift's compact protocol.
class ThriftStruct {
 public:
  ThriftStruct& i32(int id, std::int64_t value) { return field(id, 5, varint(zigzag(value))); }
  ThriftStruct& i64(int id, std::int64_t value) { return field(id, 6, varint(zigzag(value))); }
  ThriftStruct& boolean(int id, bool value) { return field(id, value ? 1 : 2, ""); }
  ThriftStruct& text(int id, std::string_view value) { return field(id, 8, binary(value)); }
  ThriftStruct& structure(int id, const ThriftStruct& value) {
    return field(id, 12, value.bytes());
  }
  // Elements that are already encoded, of the type of a list header.
  ThriftStruct& list(int id, int type, std::uint64_t size, const std::string& elements) {
    return field(id, 9, static_cast<char>(0xf0 | type) + varint(size) + elements);
  }
  // A field of any type with any bytes.
  ThriftStruct& field(int id, int type, const std::string& value) {
    body_ += static_cast<char>(type);  // the long form of a field header
    body_ += varint(zigzag(id)) + value;
    return *this;
  }
  std::string bytes() const { return body_ + '\0'; }

  static std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
  }
  static std::string binary(std::string_view value) { return varint(value.size()).append(value); }

 private:
  static std::uint64_t zigzag(std::int64_t value) {
    return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  }
  std::string body_;
};

inline std::string little_endian(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// A file with the column "c". The members are what the file says; the defaults are one row group
// with the page and its number of values.
struct ParquetBuilder {
  int physical = 1;    // INT32
  int repetition = 0;  // required
  int codec = 0;
  std::int64_t rows = 2;
  std::int64_t values = 2;
  // The page, version 1.
  std::int64_t page_values = 2;
  int encoding = 0;  // PLAIN
  int page_type = 0;
  std::string page = little_endian(7) + little_endian(8);
  std::int64_t uncompressed_bytes = -1;  // -1: the size of `page`
  std::int64_t compressed_bytes = -1;
  std::string before;  // pages before this one
  // The chunk.
  std::int64_t data_page_offset = 4;
  std::int64_t chunk_bytes = -1;  // -1: the size of the pages
  int row_groups = 1;

  std::string bytes() const {
    const auto size = static_cast<std::int64_t>(page.size());
    const std::string header =
        ThriftStruct()
            .i32(1, page_type)
            .i32(2, uncompressed_bytes < 0 ? size : uncompressed_bytes)
            .i32(3, compressed_bytes < 0 ? size : compressed_bytes)
            .structure(page_type == 2 ? 7 : 5,
                       ThriftStruct().i32(1, page_values).i32(2, encoding).i32(3, 3).i32(4, 3))
            .bytes();
    const std::string pages = before + header + page;
    const auto all = static_cast<std::int64_t>(pages.size());
    const ThriftStruct column = ThriftStruct()
                                    .i32(1, physical)
                                    .list(3, 8, 1, ThriftStruct::binary("c"))
                                    .i32(4, codec)
                                    .i64(5, values)
                                    .i64(7, chunk_bytes < 0 ? all : chunk_bytes)
                                    .i64(9, data_page_offset);
    const std::string group =
        ThriftStruct()
            .list(1, 12, 1, ThriftStruct().i64(2, 4).structure(3, column).bytes())
            .i64(3, rows)
            .bytes();
    std::string groups;
    for (int i = 0; i < row_groups; ++i) groups += group;
    const std::string schema =
        ThriftStruct().text(4, "schema").i32(5, 1).bytes() +
        ThriftStruct().i32(1, physical).i32(3, repetition).text(4, "c").bytes();
    const std::string footer = ThriftStruct()
                                   .i32(1, 1)
                                   .list(2, 12, 2, schema)
                                   .i64(3, rows * row_groups)
                                   .list(4, 12, static_cast<std::uint64_t>(row_groups), groups)
                                   .bytes();
    return file(pages, footer);
  }

  static std::string file(const std::string& pages, const std::string& footer) {
    return "PAR1" + pages + footer + little_endian(static_cast<std::uint32_t>(footer.size())) +
           "PAR1";
  }
};

}  // namespace tilewright::columnar
