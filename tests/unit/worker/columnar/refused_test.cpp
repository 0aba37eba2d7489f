// Files that are well-formed but use what is not supported are refused by its name.
#include "tests/unit/worker/columnar/columnar_testing.h"

namespace tilewright::columnar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  const char* file;
  const char* column;  // selected; nullptr: all
  const char* message;
};

class Refused : public ::testing::TestWithParam<Case> {};

TEST_P(Refused, NamesWhatItFound) {
  const std::filesystem::path path = data_file(GetParam().file);
  std::vector<std::string> columns;
  if (GetParam().column != nullptr) columns.emplace_back(GetParam().column);
  EXPECT_THAT(failure_of([&] { read_table(path, columns); }),
              AllOf(StartsWith(path.string() + ": "), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Parquet, Refused,
    ::testing::Values(
        Case{"refused_brotli.parquet", nullptr,
             "found the codec BROTLI, expected UNCOMPRESSED, SNAPPY, GZIP or ZSTD"},
        Case{"refused_lz4.parquet", nullptr, "found the codec LZ4_RAW, expected"},
        Case{"refused_delta_binary_packed.parquet", nullptr,
             "column \"label\": page at byte 41: found the encoding DELTA_BINARY_PACKED, expected "
             "PLAIN"},
        Case{"refused_delta_length_byte_array.parquet", "text",
             "the encoding DELTA_LENGTH_BYTE_ARRAY"},
        Case{"refused_delta_byte_array.parquet", "text", "the encoding DELTA_BYTE_ARRAY"},
        Case{"refused_byte_stream_split.parquet", "label", "the encoding BYTE_STREAM_SPLIT"},
        Case{"refused_encrypted.parquet", nullptr,
             "is an encrypted Parquet file, expected no encryption"},
        Case{"refused_encrypted_column.parquet", nullptr,
             "is an encrypted Parquet file, expected no encryption"},
        Case{"refused_types.parquet", "nested", "column \"nested\": found a list within a list"},
        Case{"refused_types.parquet", "map", "found a map"},
        Case{"refused_types.parquet", "timestamp", "INT64 with the logical type TIMESTAMP"},
        Case{"refused_types.parquet", "date", "INT32 with the logical type DATE"},
        Case{"refused_types.parquet", "decimal",
             "FIXED_LEN_BYTE_ARRAY with the logical type DECIMAL"},
        Case{"refused_types.parquet", "binary", "found BYTE_ARRAY, expected"},
        Case{"refused_types.parquet", "fixed", "found FIXED_LEN_BYTE_ARRAY, expected"},
        Case{"refused_types.parquet", "uint64", "INT64 with the logical type UINT_64"},
        Case{"refused_types.parquet", "half", "the logical type FLOAT16"},
        Case{"refused_types.parquet", "nulls", "INT32 with the logical type NULL"},
        Case{"refused_types.parquet", "list_with_null", "row 1 is a list that contains a null"},
        Case{"refused_utf8.parquet", nullptr, "byte 1 of string \"\\xc3(\" is not valid UTF-8"}));

INSTANTIATE_TEST_SUITE_P(
    Arrow, Refused,
    ::testing::Values(
        Case{"refused_lz4.arrow", nullptr,
             "a record batch is compressed with LZ4_FRAME, expected no compression"},
        Case{"refused_zstd.arrow", nullptr, "compressed with ZSTD"},
        Case{"refused_file.arrow", nullptr,
             "is an Arrow file in the random-access format, expected an Arrow stream"},
        Case{"refused_view.arrow", "text", "found a string view"},
        Case{"refused_view.arrow", "label", "column \"text\" is a string view"},
        Case{"refused_types.arrow", "nested", "column \"nested\": found a list within a list"},
        Case{"refused_types.arrow", "map", "found a map"},
        Case{"refused_types.arrow", "timestamp", "found a timestamp"},
        Case{"refused_types.arrow", "date", "found a date"},
        Case{"refused_types.arrow", "decimal", "found a decimal"},
        Case{"refused_types.arrow", "binary", "found binary"},
        Case{"refused_types.arrow", "fixed", "found fixed-size binary"},
        Case{"refused_types.arrow", "fixed_list", "found a fixed-size list"},
        Case{"refused_types.arrow", "uint64", "found uint64"},
        Case{"refused_types.arrow", "half", "found a half-precision number"},
        Case{"refused_types.arrow", "nulls", "found the null type"},
        Case{"refused_types.arrow", "dictionary", "found a dictionary"},
        Case{"refused_types.arrow", "list_with_null", "row 1 is a list that contains a null"},
        Case{"refused_utf8.arrow", nullptr, "byte 1 of string \"\\xc3(\" is not valid UTF-8"}));

TEST(Refused, FilesOfTheOtherFormat) {
  EXPECT_THAT(failure_of([] { read_arrow_stream(data_file("glue.parquet")); }),
              HasSubstr("found 0x31524150, expected the 0xffffffff"));
  EXPECT_THAT(failure_of([] { read_parquet(data_file("glue.arrow")); }),
              HasSubstr("expected the \"PAR1\" of a Parquet file"));
}

}  // namespace
}  // namespace tilewright::columnar
