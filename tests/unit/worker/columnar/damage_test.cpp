// Truncated files and files with changed bytes give an error of one line that names the file.
#include "tests/unit/worker/columnar/columnar_testing.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::columnar {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Damage : public ::testing::TestWithParam<const char*> {
 protected:
  static void expect_one_line(const std::string& message) {
    EXPECT_THAT(message, StartsWith(std::string(GetParam()) + ": "));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 1000u) << message;
  }

  const std::string content_ = tilewright::testing::read_text(data_file(GetParam()));
};

TEST_P(Damage, EveryShorterFileIsRefused) {
  ASSERT_FALSE(content_.empty());
  for (std::size_t size = 0; size < content_.size(); ++size) {
    SCOPED_TRACE(size);
    const std::string message =
        failure_of([&] { parse_table(content_.substr(0, size), GetParam()); });
    ASSERT_FALSE(message.empty());
    expect_one_line(message);
  }
}

// A changed byte of a string or a number is not always detected: only pages with a CRC are
// checked. The sanitizers find reads outside the file.
TEST_P(Damage, EveryChangedByteIsReadOrRefused) {
  std::size_t refused = 0;
  for (std::size_t at = 0; at < content_.size(); ++at) {
    for (const unsigned change : {0x01u, 0x10u, 0x80u, 0xffu}) {
      SCOPED_TRACE(::testing::Message() << "byte " << at << " xor " << change);
      std::string damaged = content_;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ change);
      const std::string message = failure_of([&] { parse_table(damaged, GetParam()); });
      if (message.empty()) continue;
      ++refused;
      expect_one_line(message);
    }
  }
  EXPECT_GT(refused, content_.size());  // of 4 for each byte
}

// Two changes at a time, and runs of equal bytes, which make lengths and offsets extreme.
TEST_P(Damage, RandomChangesAreReadOrRefused) {
  runtime::SplitMix64 numbers(12345);
  const auto random = [&](std::size_t below) { return numbers.next() % below; };
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    std::string damaged = content_;
    for (int change = 0; change < 2; ++change) {
      const std::size_t at = random(damaged.size());
      const std::size_t size = std::min<std::size_t>(1 + random(8), damaged.size() - at);
      const char byte = static_cast<char>("\x00\xff\x7f\x80\x01\x0f"[random(6)]);
      damaged.replace(at, size, size, byte);
    }
    const std::string message = failure_of([&] { parse_table(damaged, GetParam()); });
    if (!message.empty()) expect_one_line(message);
  }
}

INSTANTIATE_TEST_SUITE_P(Columnar, Damage,
                         ::testing::Values("tiny_snappy.parquet", "tiny_zstd_v2.parquet",
                                           "tiny_gzip_plain.parquet", "tiny_uncompressed.parquet",
                                           "tiny.arrow"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(DamagedPage, IsFoundByItsCrc) {
  for (const char* name : {"squad_uncompressed_crc.parquet", "squad_old_lists.parquet"}) {
    std::string content = tilewright::testing::read_text(data_file(name));
    const std::size_t at = content.find("Pangramm");
    ASSERT_NE(at, std::string::npos);
    content[at] = 'p';
    EXPECT_THAT(failure_of([&] { parse_table(content, name); }), HasSubstr("has the CRC "));
  }
}

TEST(DamagedStream, MustEndWithItsMarker) {
  const std::string content = tilewright::testing::read_text(data_file("tiny.arrow"));
  const std::string marker("\xff\xff\xff\xff\0\0\0\0", 8);
  ASSERT_TRUE(content.ends_with(marker));
  EXPECT_THAT(failure_of([&] {
                parse_table(content.substr(0, content.size() - marker.size()), "tiny.arrow");
              }),
              HasSubstr("is the file cut off?"));
  EXPECT_THAT(failure_of([&] { parse_table(content + "x", "tiny.arrow"); }),
              HasSubstr("has 1 bytes after the end of the stream"));
}

}  // namespace
}  // namespace tilewright::columnar
