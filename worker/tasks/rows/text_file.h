// What the readers of text files share: the checked content, and the rules for a header.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::tasks {

// The bytes of a file of at most kMaxRowFileBytes. Throws Failure(kData), also for a named pipe.
std::string read_data_file(const std::filesystem::path& path);

// The content of a UTF-8 file of at most kMaxRowFileBytes without its byte-order mark. Throws
// Failure(kData) that names the file, and the line and byte of invalid UTF-8.
std::string read_text_file(const std::filesystem::path& path);

// The end of the line that begins at `begin`, before "\n", "\r\n" or "\r".
std::size_t line_end(std::string_view content, std::size_t begin);
// The beginning of the line after the one that ends at `end`.
std::size_t next_line(std::string_view content, std::size_t end);

// "has 2000000 bytes, expected at most 1048576".
std::string format_too_long(std::size_t bytes);

// Throws Failure(kData) if there are more than kMaxColumns, or two with the same name.
void check_header(const std::string& file, const std::vector<std::string>& columns);

// Throws Failure(kData): "FILE: has no rows, expected at least one".
[[noreturn]] void fail_without_rows(const std::string& file);

}  // namespace tilewright::tasks
