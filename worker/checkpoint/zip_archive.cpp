#include "worker/checkpoint/zip_archive.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/printable.h"

namespace tilewright::checkpoint {
namespace {

// Signatures of the records, little-endian.
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;

// Lengths of their fixed parts, in bytes.
constexpr std::uint64_t kLocalHeaderBytes = 30;
constexpr std::uint64_t kCentralHeaderBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kEnd64LocatorBytes = 20;

// A field with this value is in the ZIP64 record instead.
constexpr std::uint64_t kIn64 = 0xffffffff;
constexpr std::uint64_t kCountIn64 = 0xffff;

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> content, const std::filesystem::path& path, ExitCode code)
      : content_(content), path_(path), code_(code) {}

  ZipEntries read() {
    Directory directory = find_directory();
    if (directory.entries > kMaxZipEntries) {
      fail(fmt::format("the archive has {} entries, expected at most {}", directory.entries,
                       kMaxZipEntries));
    }
    ZipEntries entries;
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
      const auto [name, data] = read_entry(directory.offset);
      if (!entries.emplace(name, data).second) {
        fail(fmt::format("the archive has the entry {} twice", quoted_excerpt(name)));
      }
    }
    return entries;
  }

 private:
  struct Directory {
    std::uint64_t entries = 0;
    std::uint64_t offset = 0;  // of the first header, then of the next
  };
  struct Entry {
    std::string_view name;
    std::span<const std::byte> data;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
  }

  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t count,
                                   std::string_view what) const {
    if (offset > content_.size() || count > content_.size() - offset) {
      fail(
          fmt::format("{}: {} bytes at {} are past the end of the archive of {} bytes (is the "
                      "file truncated?)",
                      what, count, offset, content_.size()));
    }
    return content_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
  }

  // Little-endian, from a record that is long enough.
  static std::uint64_t integer(std::span<const std::byte> record, std::size_t at,
                               std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t i = count; i-- > 0;) {
      value = value << 8 | std::to_integer<std::uint64_t>(record[at + i]);
    }
    return value;
  }
  static std::string_view text(std::span<const std::byte> record) {
    return {reinterpret_cast<const char*>(record.data()), record.size()};
  }

  // The last record ends the file. It may have a comment of up to 64 KiB.
  std::uint64_t find_end() const {
    const std::uint64_t size = content_.size();
    for (std::uint64_t comment = 0; comment <= 0xffff && kEndBytes + comment <= size; ++comment) {
      const std::uint64_t at = size - kEndBytes - comment;
      const auto record = content_.subspan(static_cast<std::size_t>(at), kEndBytes);
      if (integer(record, 0, 4) == kEnd && integer(record, 20, 2) == comment) return at;
    }
    fail("the archive has no central directory at its end (is the file truncated?)");
  }

  Directory find_directory() const {
    const std::uint64_t end = find_end();
    const auto record = bytes(end, kEndBytes, "the central directory");
    Directory directory{integer(record, 10, 2), integer(record, 16, 4)};
    if (directory.entries != kCountIn64 && directory.offset != kIn64) return directory;
    if (end < kEnd64LocatorBytes) fail("the archive has no ZIP64 record, expected one");
    const auto locator = bytes(end - kEnd64LocatorBytes, kEnd64LocatorBytes, "the ZIP64 record");
    if (integer(locator, 0, 4) != kEnd64Locator) {
      fail("the archive has no ZIP64 record, expected one");
    }
    const auto record64 = bytes(integer(locator, 8, 8), kEnd64Bytes, "the ZIP64 record");
    if (integer(record64, 0, 4) != kEnd64) fail("the archive has no ZIP64 record, expected one");
    return {integer(record64, 32, 8), integer(record64, 48, 8)};
  }

  // The entry whose header is at `offset`, which moves to the next header.
  Entry read_entry(std::uint64_t& offset) const {
    const auto header = bytes(offset, kCentralHeaderBytes, "the central directory");
    if (integer(header, 0, 4) != kCentralHeader) {
      fail(fmt::format("the central directory has no entry at byte {}, expected one", offset));
    }
    const std::uint64_t name_bytes = integer(header, 28, 2);
    const std::uint64_t extra_bytes = integer(header, 30, 2);
    const std::uint64_t comment_bytes = integer(header, 32, 2);
    offset += kCentralHeaderBytes;
    const std::string_view name = text(bytes(offset, name_bytes, "the central directory"));
    const std::string entry = fmt::format("the entry {}", quoted_excerpt(name));
    const auto extra = bytes(offset + name_bytes, extra_bytes, entry);
    offset += name_bytes + extra_bytes + comment_bytes;

    if ((integer(header, 8, 2) & 1) != 0) fail(fmt::format("{} is encrypted", entry));
    if (integer(header, 10, 2) != 0) {
      fail(fmt::format("{} is compressed, expected stored data, as torch.save writes it", entry));
    }
    std::uint64_t stored = integer(header, 20, 4);
    std::uint64_t size = integer(header, 24, 4);
    std::uint64_t local = integer(header, 42, 4);
    read_zip64(extra, entry, {&size, &stored, &local});
    if (stored != size) {
      fail(fmt::format("{} has {} bytes, expected its size {}", entry, stored, size));
    }
    return {name, local_data(local, name, size, entry)};
  }

  // Replaces the fields that are in the ZIP64 part of the extra data, in this order.
  void read_zip64(std::span<const std::byte> extra, const std::string& entry,
                  std::initializer_list<std::uint64_t*> fields) const {
    if (std::none_of(fields.begin(), fields.end(), [](auto* field) { return *field == kIn64; })) {
      return;
    }
    while (extra.size() >= 4) {
      const std::uint64_t id = integer(extra, 0, 2);
      const auto count = std::min<std::size_t>(integer(extra, 2, 2), extra.size() - 4);
      auto part = extra.subspan(4, count);
      extra = extra.subspan(4 + count);
      if (id != 1) continue;
      for (std::uint64_t* field : fields) {
        if (*field != kIn64) continue;
        if (part.size() < 8) fail(fmt::format("{} has a truncated ZIP64 field", entry));
        *field = integer(part, 0, 8);
        part = part.subspan(8);
      }
      return;
    }
    fail(fmt::format("{} has no ZIP64 field, expected one", entry));
  }

  std::span<const std::byte> local_data(std::uint64_t local, std::string_view name,
                                        std::uint64_t size, const std::string& entry) const {
    const auto header = bytes(local, kLocalHeaderBytes, entry);
    if (integer(header, 0, 4) != kLocalHeader) {
      fail(fmt::format("{} has no header at byte {}, expected one", entry, local));
    }
    const std::uint64_t name_bytes = integer(header, 26, 2);
    if (text(bytes(local + kLocalHeaderBytes, name_bytes, entry)) != name) {
      fail(fmt::format("{} has another name at byte {}", entry, local));
    }
    return bytes(local + kLocalHeaderBytes + name_bytes + integer(header, 28, 2), size, entry);
  }

  std::span<const std::byte> content_;
  const std::filesystem::path& path_;
  ExitCode code_;
};

}  // namespace

ZipEntries read_zip(std::span<const std::byte> content, const std::filesystem::path& path,
                    ExitCode code) {
  return ZipReader(content, path, code).read();
}

}  // namespace tilewright::checkpoint
