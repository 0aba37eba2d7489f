// Input of the harnesses: bytes as text, as numbers and as files; checks of messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::fuzz {

// Of waits for another thread. Longer than the timeouts of the programs, so that only a fault
// reaches it, also on a busy machine.
inline constexpr std::chrono::seconds kTimeout{60};

std::string_view as_text(const std::uint8_t* data, std::size_t size);

// Takes numbers from the front of the input. Returns 0 at the end.
class Numbers {
 public:
  Numbers(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte();
  int below(int bound) { return byte() % bound; }
  bool one_in(int bound) { return below(bound) == 0; }
  std::uint64_t integer(int bytes);
  std::string_view rest() const;

 private:
  std::span<const std::uint8_t> bytes_;
};

// A directory of this process in memory (/dev/shm), removed at the exit of the process.
const std::filesystem::path& scratch_directory();

// Writes a file of the scratch directory, without syncing it.
std::filesystem::path write_scratch(std::string_view name, std::string_view content);
// Removes all files of the scratch directory.
void clear_scratch();

// Several files in one input. Each begins with the line "--- NAME"; text before the first such line
// is dropped. Names are those of the file system; a name with other characters than letters,
// digits, '_', '-' and '.' ends the list.
using Files = std::vector<std::pair<std::string, std::string_view>>;
Files split_files(std::string_view input);

// Aborts if a message that a program prints is empty or very long, or could be mistaken for several
// or alter a terminal once it is printed. `lines`: the message has one sentence per line.
void check_message(std::string_view message, bool lines = false);

}  // namespace tilewright::fuzz
