// Bounded reads, atomic writes (a reader sees either the old or the new content), and the home
// directory in paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/strings.h"

namespace tilewright {

// Returns the content of the file, or an Error with `code` that names the path if the file is
// missing, unreadable, larger than max_bytes or a Git LFS pointer. `transient`: the code of errors
// of the storage that may pass (see output_error_code()), if it is another one.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes,
                              ExitCode code, std::optional<ExitCode> transient = {});

// read_file() of a file that several processes read, perhaps again after a restart: another kind of
// file is an Error at once. read_file() waits for the writer of a pipe.
Result<std::string> read_regular_file(const std::filesystem::path& path, std::uint64_t max_bytes,
                                      ExitCode code, std::optional<ExitCode> transient = {});

struct Input {
  std::string name;  // in messages
  std::string text;
};
// read_file() of a file that a command line names; "-" is the rest of standard input, read from its
// descriptor: to open /dev/stdin fails for a socket and for a pipe of another user.
Result<Input> read_input(const std::filesystem::path& file, std::uint64_t max_bytes, ExitCode code);

// An Error with `code` if `content`, that of `path`, is a Git LFS pointer: a clone that was made
// without Git LFS has such a text in place of each large file. read_file() and MappedFile check it.
Status refuse_lfs_pointer(const std::filesystem::path& path, std::string_view content,
                          ExitCode code);

// Writes a temporary file with a random name beside `path`, syncs it, renames it over `path` and
// syncs the directory. Errors carry output_error_code().
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes to a path that the user named: a file is created or replaced as by
// write_file_atomically(), a symbolic link is followed and stays, and a device, a pipe or standard
// output (/dev/stdout) is written to. Waits for the reader of a pipe. Errors carry
// output_error_code().
Status write_output(const std::filesystem::path& path, std::string_view content);

// Creates a file that must not exist, writes and syncs it. After an error, which carries
// output_error_code(), there is no file.
Status write_new_file(const std::filesystem::path& path, std::string_view content);

// fsync of a file or a directory. Errors carry output_error_code().
Status sync_path(const std::filesystem::path& path);

// `path` with the home directory in place of a leading ~ or ~/: HOME or, if that is not set, that
// of the user database.
std::string expand_home(std::string path, const GetVariable& variable);

// The exit code for a write that failed with this errno: kOutputUnavailable if the same write may
// succeed later (no space left, an I/O error, a stale handle of a network file system), else
// kOutput.
ExitCode output_error_code(int error);

}  // namespace tilewright
