// Reads ZIP archives that are built byte by byte.
#include "worker/checkpoint/zip_archive.h"

#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "tests/unit/worker/checkpoint/torch_testing.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::map<std::string, std::string> entries_of(const std::string& archive) {
  const auto bytes = exact_copy(archive);
  std::map<std::string, std::string> found;
  for (const auto& [name, data] : read_zip(bytes, "model.bin", ExitCode::kWeights)) {
    found.emplace(name, std::string(reinterpret_cast<const char*>(data.data()), data.size()));
  }
  return found;
}

void expect_archive_refused(const std::string& archive, const std::string& part) {
  expect_failure([&] { entries_of(archive); }, ExitCode::kWeights,
                 AllOf(HasSubstr("model.bin: "), HasSubstr(part)));
}

const std::vector<ZipFile> kFiles = {{"a/data.pkl", "pickle"}, {"a/data/0", ""}, {"b", "xyz"}};
const std::map<std::string, std::string> kExpected = {
    {"a/data.pkl", "pickle"}, {"a/data/0", ""}, {"b", "xyz"}};

TEST(ZipArchiveTest, ReadsStoredEntries) {
  EXPECT_EQ(entries_of(zip_archive(kFiles)), kExpected);
  EXPECT_EQ(entries_of(zip_archive(kFiles, true)), kExpected) << "ZIP64";
  EXPECT_EQ(entries_of(zip_archive(kFiles, false, std::string(70, 'c'))), kExpected) << "a comment";
  EXPECT_TRUE(entries_of(zip_archive({})).empty());
}

TEST(ZipArchiveTest, RefusesEntriesThatTorchDoesNotWrite) {
  expect_archive_refused(zip_archive({{"a", "x", 8}}), "the entry \"a\" is compressed");
  expect_archive_refused(zip_archive({{"a", "x", 0, 1}}), "the entry \"a\" is encrypted");
  expect_archive_refused(zip_archive({{"a", "x"}, {"a", "y"}}), "has the entry \"a\" twice");
}

TEST(ZipArchiveTest, RefusesTruncatedArchives) {
  for (const bool zip64 : {false, true}) {
    const std::string whole = zip_archive(kFiles, zip64);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      expect_archive_refused(whole.substr(0, length), "truncated");
    }
  }
}

TEST(ZipArchiveTest, RefusesRecordsOutsideTheArchive) {
  const std::string whole = zip_archive(kFiles);
  const std::size_t end = whole.size() - 22;
  const auto with = [&](std::size_t at, const std::string& bytes) {
    return std::string(whole).replace(at, bytes.size(), bytes);
  };
  const std::size_t directory = whole.find("PK\x01\x02");
  expect_archive_refused(with(end + 10, "\xfe\xff"), "past the end of the archive");
  expect_archive_refused(with(end + 16, std::string("\x00\xff\xff\x7f", 4)),
                         "past the end of the archive");
  expect_archive_refused(with(end + 16, "\xff\xff\xff\xff"), "has no ZIP64 record");
  expect_archive_refused(with(end + 16, "\x01"), "no entry at byte");
  expect_archive_refused(with(directory + 42, std::string("\x00\xff\xff\x7f", 4)),
                         "\"a/data.pkl\": 30 bytes at");
  expect_archive_refused(with(directory + 42, "\x01"), "has no header at byte");
  expect_archive_refused(with(directory + 20, "\x07"), "has 7 bytes, expected its size 6");
  expect_archive_refused(with(directory + 20, "\xff\xff\xff\xff"), "has no ZIP64 field");
  expect_archive_refused(with(directory + 20, std::string("\xf0\xff\xff\x7f\xf0\xff\xff\x7f")),
                         "2147483632 bytes at");
  expect_archive_refused(with(directory + 46, "A"), "has another name at byte 0");
  const std::string large = zip_archive(kFiles, true);
  const std::size_t size64 = large.find("PK\x06\x06") + 32;
  expect_archive_refused(std::string(large).replace(size64, 8, std::string(8, '\xff')),
                         "has 18446744073709551615 entries, expected at most 100000");
}

TEST(ZipArchiveTest, ReadsWithinTheArchiveForChangedBytes) {
  for (const bool zip64 : {false, true}) {
    const std::string whole = zip_archive(kFiles, zip64);
    int refused = 0;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ flip);
        try {
          entries_of(changed);
        } catch (const Failure&) {
          ++refused;
        }
      }
    }
    EXPECT_GT(refused, 100);
  }
}

}  // namespace
}  // namespace tilewright::checkpoint
