#include "tests/fuzz/fuzz_input.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "common/base/check.h"
#include "common/base/printable.h"

namespace tilewright::fuzz {
namespace {

namespace fs = std::filesystem;

// Removed by the destructor of a static object: libFuzzer ends with exit(), which runs it. After a
// crash the directory stays.
class Scratch {
 public:
  Scratch() {
    std::error_code ignored;
    const fs::path parent =
        fs::is_directory("/dev/shm", ignored) ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (parent / "tilewright-fuzz-XXXXXX").string();
    TW_CHECK(mkdtemp(name.data()) != nullptr, "{}: cannot create a directory", name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && !text.starts_with('.') &&
         std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

std::uint8_t Numbers::byte() {
  if (bytes_.empty()) return 0;
  const std::uint8_t first = bytes_.front();
  bytes_ = bytes_.subspan(1);
  return first;
}

std::uint64_t Numbers::integer(int bytes) {
  std::uint64_t number = 0;
  for (int i = 0; i < bytes; ++i) number |= static_cast<std::uint64_t>(byte()) << (8 * i);
  return number;
}

std::string_view Numbers::rest() const { return as_text(bytes_.data(), bytes_.size()); }

const fs::path& scratch_directory() {
  static const Scratch scratch;
  return scratch.path();
}

fs::path write_scratch(std::string_view name, std::string_view content) {
  const fs::path path = scratch_directory() / name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  TW_CHECK(file.good(), "{}: cannot write", path.string());
  return path;
}

void clear_scratch() {
  for (const fs::directory_entry& entry : fs::directory_iterator(scratch_directory())) {
    fs::remove_all(entry.path());
  }
}

Files split_files(std::string_view input) {
  constexpr std::string_view kMark = "--- ";
  Files files;
  std::size_t at = input.starts_with(kMark) ? 0 : input.find("\n--- ");
  if (at != 0 && at != std::string_view::npos) ++at;
  while (at != std::string_view::npos && at < input.size()) {
    const std::size_t name_begin = at + kMark.size();
    const std::size_t name_end = std::min(input.find('\n', name_begin), input.size());
    const std::string_view name = input.substr(name_begin, name_end - name_begin);
    if (!is_name(name)) break;
    const std::size_t begin = std::min(name_end + 1, input.size());
    const std::size_t next = input.find("\n--- ", name_end);
    const std::size_t end = next == std::string_view::npos ? input.size() : std::max(next, begin);
    files.emplace_back(name, input.substr(begin, end - begin));
    at = next == std::string_view::npos ? next : next + 1;
  }
  return files;
}

void check_message(std::string_view message, bool lines) {
  // Paths, names and values are cut where they are shown; a list of errors has at most 101 lines.
  constexpr std::size_t kMaxBytes = 16 << 10;
  TW_CHECK(!message.empty(), "a message is empty");
  TW_CHECK(lines || message.size() <= kMaxBytes, "a message has {} bytes: {}", message.size(),
           message.substr(0, 400));
  for (const char c : printable(message, lines ? Lines::kSeveral : Lines::kOne)) {
    const auto byte = static_cast<unsigned char>(c);
    TW_CHECK((byte >= 0x20 && byte != 0x7f) || (c == '\n' && lines),
             "a message holds the control character {:#x}", byte);
  }
}

}  // namespace tilewright::fuzz
