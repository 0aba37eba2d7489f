// Asks an output directory what it contains. An error of the file system is a Failure: it does not
// say that a file is absent.
#pragma once

#include <filesystem>
#include <string_view>

namespace tilewright::checkpoint {

// Whether an errno says that the file is absent: ENOENT, or ENOTDIR for a parent that is a file.
bool says_absent(int error);

// "PATH: cannot ACTION: ERROR", with output_error_code().
[[noreturn]] void fail_storage(const std::filesystem::path& path, std::string_view action,
                               int error);

// The type of the file, after links; not_found if it is absent. Other errors are Failures with
// output_error_code().
std::filesystem::file_type type_at(const std::filesystem::path& path);
bool is_present(const std::filesystem::path& path);

// False: there is no file. A Failure with output_error_code() if there is one that cannot be
// opened.
bool has_readable_file(const std::filesystem::path& path);

}  // namespace tilewright::checkpoint
