// Parquet files that are built byte by byte: lengths, offsets and counts that cannot be right, and
// files that declare far more than they contain.
#include "worker/columnar/parquet.h"

#include <zstd.h>

#include "tests/unit/worker/columnar/columnar_testing.h"
#include "tests/unit/worker/columnar/parquet_builder.h"

namespace tilewright::columnar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Table parse(const std::string& bytes) { return parse_table(bytes, "FILE.parquet"); }

std::string refusal(const std::string& bytes) {
  return failure_of([&] { parse(bytes); });
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

TEST(Parquet, ReadsTheFileThatTheOtherTestsChange) {
  const ParquetBuilder file;
  EXPECT_THAT(parse(file.bytes()).integers("c"), ElementsAre(7, 8));
}

TEST(Parquet, RefusesAFooterThatIsTooLong) {
  EXPECT_THAT(refusal("PAR1" + little_endian(1) + "PAR1"),
              HasSubstr("has a footer of 1 bytes, expected at most 0"));
  EXPECT_THAT(refusal("PAR1" + little_endian(0xffffffff) + "PAR1"),
              HasSubstr("has a footer of 4294967295 bytes"));
  EXPECT_THAT(refusal("PAR1PAR1"), HasSubstr("is the file cut off?"));
}

TEST(Parquet, RefusesAFooterWithoutASchema) {
  EXPECT_THAT(refusal(ParquetBuilder::file("", std::string(1, '\0'))),
              HasSubstr("lacks the number of rows"));
  EXPECT_THAT(refusal(ParquetBuilder::file("", ThriftStruct().i64(3, 0).bytes())),
              HasSubstr("has no columns"));
  EXPECT_THAT(refusal(ParquetBuilder::file("", ThriftStruct().list(2, 12, 0, "").bytes())),
              HasSubstr("the schema is empty"));
}

TEST(Parquet, RefusesASchemaTreeThatDoesNotFitItsElements) {
  const auto schema = [](int children) {
    const std::string elements = ThriftStruct().text(4, "root").i32(5, children).bytes() +
                                 ThriftStruct().i32(1, 1).text(4, "c").bytes();
    return refusal(ParquetBuilder::file("", ThriftStruct().list(2, 12, 2, elements).bytes()));
  };
  EXPECT_THAT(schema(0), HasSubstr("the schema has 1 elements, expected 0 below its root"));
  EXPECT_THAT(schema(2), HasSubstr("the schema has 2 elements, expected more below its groups"));
}

TEST(Parquet, RefusesASchemaThatIsTooDeepOrTooLarge) {
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += ThriftStruct().text(4, "g").i32(5, 1).bytes();
  EXPECT_THAT(refusal(ParquetBuilder::file("", ThriftStruct().list(2, 12, 40, deep).bytes())),
              HasSubstr("nests deeper than 16"));
  const std::string many(5000, '\0');  // empty structs
  EXPECT_THAT(refusal(ParquetBuilder::file("", ThriftStruct().list(2, 12, 5000, many).bytes())),
              HasSubstr("is a list of 5000 elements, expected at most 4096"));
  const std::string named = ThriftStruct().text(4, "root").i32(5, 1).bytes() +
                            ThriftStruct().i32(1, 1).text(4, std::string(2000, 'x')).bytes();
  EXPECT_THAT(refusal(ParquetBuilder::file("", ThriftStruct().list(2, 12, 2, named).bytes())),
              HasSubstr("a column name of more than 1024 bytes"));
}

TEST(Parquet, RefusesNestedMetadataThatIsSkipped) {
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "\x1c";  // field 1 of each struct is a struct
  EXPECT_THAT(refusal(ParquetBuilder::file("", ThriftStruct().field(99, 12, deep).bytes())),
              HasSubstr("nests deeper than 16 levels"));
}

TEST(Parquet, RefusesPagesOutsideTheFile) {
  for (const std::int64_t offset : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3},
                                    std::int64_t{1} << 40, INT64_MAX, INT64_MIN}) {
    ParquetBuilder file;
    file.data_page_offset = offset;
    EXPECT_THAT(refusal(file.bytes()), HasSubstr("column \"c\": its ")) << offset;
  }
  ParquetBuilder file;
  file.chunk_bytes = INT64_MAX;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("are not between byte 4 and the footer"));
  file.chunk_bytes = 10;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("column \"c\": page at byte 4: "));
}

TEST(Parquet, RefusesPageSizesThatDoNotFit) {
  ParquetBuilder file;
  file.compressed_bytes = 9;
  EXPECT_THAT(refusal(file.bytes()),
              HasSubstr("has 9 bytes, expected at most the 8 that are left"));
  file.compressed_bytes = 1 << 30;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("has 1073741824 bytes"));
  file.compressed_bytes = 8;
  file.uncompressed_bytes = 9;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("found 8 uncompressed bytes, expected 9"));
}

TEST(Parquet, RefusesCountsThatDoNotFit) {
  ParquetBuilder file;
  file.rows = 3;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("found 2 rows in a row group, expected 3"));
  file.rows = -1;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("a row group has -1 rows"));
  file = ParquetBuilder();
  file.values = 1;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("has 2 values, expected at most the 1"));
  file.values = 3;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("bytes for the metadata"));
  file.values = -1;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("a row group has -1 values"));
  file = ParquetBuilder();
  file.page_values = file.values = file.rows = 3;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("found 8 bytes, expected 12 bytes for values"));
  file.page_values = -3;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("incomplete or has negative sizes"));
}

TEST(Parquet, RefusesPagesOfAnotherKind) {
  ParquetBuilder file;
  file.page_type = 9;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("page at byte 4: has type 9, expected 0 to 3"));
  file = ParquetBuilder();
  file.encoding = 8;
  file.page = std::string("\x01\x03\x02", 3);
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("the dictionary is missing"));
  file.encoding = 77;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("found the encoding number 77"));
  file = ParquetBuilder();
  file.codec = 99;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("found the codec number 99"));
}

// A dictionary page with the values 5 and 6.
std::string dictionary_page(const ThriftStruct& details = ThriftStruct().i32(1, 2).i32(2, 0)) {
  const std::string values = little_endian(5) + little_endian(6);
  return ThriftStruct().i32(1, 2).i32(2, 8).i32(3, 8).structure(7, details).bytes() + values;
}

TEST(Parquet, ChecksIndicesIntoTheDictionary) {
  ParquetBuilder file;
  file.before = dictionary_page();
  file.encoding = 8;
  file.page = std::string("\x02\x03\x01\x00", 4);  // 2 bits: 1, 0
  EXPECT_THAT(parse(file.bytes()).integers("c"), ElementsAre(6, 5));
  file.page = std::string("\x02\x03\x02\x00", 4);
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("found index 2 into a dictionary of 2 values"));
  file.page = "";
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("the indices are missing"));
  file.page = "\x21";
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("indices have 33 bits, expected at most 32"));
  // Times the size of a value it is 0 in 64 bits.
  file.before = dictionary_page(ThriftStruct().i64(1, std::int64_t{1} << 62).i32(2, 0));
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("has 4611686018427387904 values in 8 bytes"));
  file.before = dictionary_page() + dictionary_page();
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("is a second dictionary of the column"));
}

TEST(Parquet, RefusesRunsThatDeclareTooManyRows) {
  // Without a bit each, two billion indices take no bytes.
  constexpr std::int64_t kMany = 2'000'000'000;
  ParquetBuilder file;
  file.before = dictionary_page();
  file.encoding = 8;
  file.page = std::string(1, '\0');
  file.rows = file.values = file.page_values = kMany;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("the table would exceed 16"));
  // Nulls take a run of definition levels.
  file = ParquetBuilder();
  file.repetition = 1;
  const std::string run = ThriftStruct::varint(std::uint64_t{kMany} << 1) + '\0';
  file.page = little_endian(static_cast<std::uint32_t>(run.size())) + run;
  file.rows = file.values = file.page_values = kMany;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("the table would exceed 16"));
}

TEST(Parquet, RefusesPagesThatDeclareTooManyBytes) {
  ParquetBuilder file;
  for (const int codec : {1, 2, 6}) {
    file.codec = codec;
    file.uncompressed_bytes = INT32_MAX;
    EXPECT_THAT(refusal(file.bytes()), HasSubstr("the page has 2147483647 bytes")) << codec;
    file.uncompressed_bytes = 200 << 20;
    EXPECT_THAT(refusal(file.bytes()), HasSubstr("decompressed data would exceed 16")) << codec;
    file.uncompressed_bytes = 8;
    EXPECT_THAT(refusal(file.bytes()), HasSubstr("data is corrupt, expected 8 bytes")) << codec;
  }
}

TEST(Parquet, RefusesCompressedPagesOfAnotherSize) {
  const std::string content = little_endian(7) + little_endian(8);
  ParquetBuilder file;
  file.codec = 6;
  file.page = zstd(content);
  file.uncompressed_bytes = 8;
  EXPECT_THAT(parse(file.bytes()).integers("c"), ElementsAre(7, 8));
  for (const std::int64_t size : {0, 4, 7, 9, 100}) {
    file.uncompressed_bytes = size;
    EXPECT_NE(refusal(file.bytes()), "") << size;
  }
}

// Row groups may share their pages, so a small file can cause much work.
TEST(Parquet, BoundsTheDecompressedDataOfAllRowGroups) {
  ParquetBuilder file;
  file.codec = 6;
  const std::string content = little_endian(7) + little_endian(8) + std::string(4 << 20, '\0');
  file.page = zstd(content);
  file.uncompressed_bytes = static_cast<std::int64_t>(content.size());
  file.row_groups = 3;
  EXPECT_EQ(parse(file.bytes()).rows(), 6u);
  file.row_groups = 100;
  EXPECT_THAT(refusal(file.bytes()), HasSubstr("decompressed data would exceed"));
}

}  // namespace
}  // namespace tilewright::columnar
