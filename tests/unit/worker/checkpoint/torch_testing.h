// Helpers for the tests of torch files: pickles and ZIP archives built byte by byte, and the files
// that torch wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/paths.h"
#include "worker/checkpoint/tensor.h"

namespace tilewright::checkpoint {

// tests/golden/weights.
inline std::filesystem::path golden_weights() {
  return tilewright::testing::source_dir() / "tests/golden/weights";
}

// A copy that ends where its memory ends, so that the address sanitizer sees each read behind it.
inline std::vector<std::byte> exact_copy(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Reads elements of all tensors: all of a small one, the first and the last of a large one.
inline void touch(const Tensors& tensors) {
  constexpr std::int64_t kSmall = 1 << 12;
  for (const auto& [name, tensor] : tensors) {
    if (!is_floating_point(tensor.dtype) || tensor.size() == 0) continue;
    std::vector<float> out(static_cast<std::size_t>(std::min(tensor.size(), kSmall)));
    copy_floats(tensor, 0, out);
    copy_floats(tensor, tensor.size() - std::ssize(out), out);
  }
}

// Little-endian.
inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 0xff);
  return text;
}

// Expressions of a pickle: bytes that push one value.
namespace pickled {

inline std::string text(const std::string& value) { return "X" + little(value.size(), 4) + value; }
inline std::string integer(std::int64_t value) {
  return "\x8a\x08" + little(static_cast<std::uint64_t>(value), 8);
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::vector<std::string>& values) {
  std::string out = "(";
  for (const std::string& value : values) out += value;
  return out + "t";
}
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> out;
  out.reserve(values.size());
  for (const std::int64_t value : values) out.push_back(integer(value));
  return tuple(out);
}
inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}
inline std::string storage(const std::string& type, const std::string& key, std::int64_t size) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(size)}) +
         "Q";
}
inline std::string tensor(const std::string& in_storage, std::int64_t offset,
                          const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {in_storage, integer(offset), integers(shape), integers(strides), "\x89",
               call(global("collections", "OrderedDict"), {})});
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u";
}

}  // namespace pickled

// A file in the format before torch 1.6. `state` is an expression; `storages` has key, number of
// elements and data.
struct LegacyStorage {
  std::string key;
  std::int64_t size;
  std::string data;
};
inline std::string legacy_file(const std::string& state,
                               const std::vector<LegacyStorage>& storages) {
  std::string keys = "](";
  std::string data;
  for (const LegacyStorage& storage : storages) {
    keys += pickled::text(storage.key);
    data += little(static_cast<std::uint64_t>(storage.size), 8) + storage.data;
  }
  const std::string magic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  return "\x80\x02" + magic + "\x80\x02M\xe9\x03." + "\x80\x02" +
         pickled::dict({{"little_endian", "\x88"}}) + "." + "\x80\x02" + state + "." + "\x80\x02" +
         keys + "e." + data;
}

struct ZipFile {
  std::string name;
  std::string data;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
};

// A ZIP archive. zip64: sizes, offsets and the number of entries stand in ZIP64 fields.
inline std::string zip_archive(const std::vector<ZipFile>& files, bool zip64 = false,
                               const std::string& comment = "") {
  const auto saturated = [&](std::uint64_t value) { return little(zip64 ? ~0ull : value, 4); };
  std::string out;
  std::string directory;
  for (const ZipFile& file : files) {
    const std::uint64_t local = out.size();
    // torch pads the extra field, so that data begins at a multiple of 64 bytes.
    const std::string padding = "FB" + little(5, 2) + "ZZZZZ";
    const std::string common = little(0, 2) + little(file.flags, 2) + little(file.method, 2) +
                               little(0, 8) /* time, date, CRC-32 */ + saturated(file.data.size()) +
                               saturated(file.data.size()) + little(file.name.size(), 2);
    for (const std::string& part : {std::string("PK\x03\x04"), common, little(padding.size(), 2),
                                    file.name, padding, file.data}) {
      out += part;
    }
    // An unknown field stands before the ZIP64 field.
    const std::string extra = zip64 ? little(0x9999, 2) + little(3, 2) + "abc" + little(1, 2) +
                                          little(24, 2) + little(file.data.size(), 8) +
                                          little(file.data.size(), 8) + little(local, 8)
                                    : "";
    for (const std::string& part :
         {std::string("PK\x01\x02"), little(0, 2), common, little(extra.size(), 2),
          little(7, 2) /* comment */, little(0, 8), saturated(local), file.name, extra,
          std::string("comment")}) {
      directory += part;
    }
  }
  const std::uint64_t offset = out.size();
  out += directory;
  if (zip64) {
    const std::uint64_t end64 = out.size();
    out += "PK\x06\x06" + little(44, 8) + little(0, 12) + little(files.size(), 8) +
           little(files.size(), 8) + little(directory.size(), 8) + little(offset, 8);
    out += "PK\x06\x07" + little(0, 4) + little(end64, 8) + little(1, 4);
  }
  const std::uint64_t count = zip64 ? 0xffff : files.size();
  return out + "PK\x05\x06" + little(0, 4) + little(count, 2) + little(count, 2) +
         saturated(directory.size()) + saturated(offset) + little(comment.size(), 2) + comment;
}

}  // namespace tilewright::checkpoint
