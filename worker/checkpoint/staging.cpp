#include "worker/checkpoint/staging.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "common/base/files.h"
#include "common/base/random.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInfix = ".tmp-";
constexpr int kRandomBytes = 8;
constexpr const char* kWriterFile = ".writer.json";  // in a staging directory

bool is_hex_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// The writer of a staging directory or of a staging file, which is a marker. nullopt: it names
// none, because its creation was cut short. An error that may pass is a Failure.
std::optional<Writer> writer_of(const fs::path& staging) {
  const fs::path file =
      type_at(staging) == fs::file_type::directory ? staging / kWriterFile : staging;
  try {
    return writer_from(JsonFields(file, ExitCode::kOutput, JsonFields::kMaxFileBytes,
                                  ExitCode::kOutputUnavailable));
  } catch (const Failure& failure) {
    if (failure.code() == ExitCode::kOutputUnavailable) throw;
    return std::nullopt;
  }
}

bool has_ended(const Writer& writer, const Writer& owner) {
  return writer != owner && (writer.job_uid != owner.job_uid || writer.epoch <= owner.epoch);
}

}  // namespace

std::string new_staging_name(const std::string& name) {
  return fmt::format(".{}{}{}", name, kInfix, random_hex(kRandomBytes));
}

bool is_staging_name(const std::string& name) {
  const auto infix = name.rfind(kInfix);
  if (!name.starts_with('.') || infix == std::string::npos || infix < 2) return false;
  const std::string_view digits = std::string_view(name).substr(infix + kInfix.size());
  return digits.size() == 2 * kRandomBytes && std::ranges::all_of(digits, is_hex_digit);
}

StagingDirectory::StagingDirectory(const fs::path& parent, const std::string& name,
                                   const Writer& writer)
    : path_(parent / new_staging_name(name)) {
  if (mkdir(path_.c_str(), 0755) != 0) {
    fail_storage(path_, "create the directory", errno);
  }
  if (const Status named = write_new_file(path_ / kWriterFile, to_json(writer).dump() + "\n");
      !named.ok()) {
    rmdir(path_.c_str());
    named.or_throw();
  }
}

StagingDirectory::~StagingDirectory() {
  std::error_code error;
  std::vector<fs::path> content;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename() != kWriterFile) content.push_back(entry->path());
  }
  bool empty = !error;
  for (const fs::path& path : content) {
    fs::remove_all(path, error);
    empty = empty && !error;
  }
  // A directory that remains must keep naming its writer.
  if (!empty) return;
  unlink((path_ / kWriterFile).c_str());
  rmdir(path_.c_str());
}

std::vector<std::string> remove_staging_of_ended_writers(const fs::path& parent,
                                                         const Writer& owner) {
  std::vector<std::string> ended;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!is_staging_name(name)) continue;
    const std::optional<Writer> writer = writer_of(entry->path());
    if (writer && has_ended(*writer, owner)) ended.push_back(name);
  }
  if (error) fail_storage(parent, "list the staging directories", error.value());
  if (ended.empty()) return ended;
  const StagingDirectory removed(parent, "removed", owner);
  std::erase_if(ended, [&](const std::string& name) {
    if (rename((parent / name).c_str(), (removed.path() / name).c_str()) == 0) return false;
    if (output_error_code(errno) == ExitCode::kOutputUnavailable) {
      fail_storage(parent / name, "move to the staging directory", errno);
    }
    return true;
  });
  return ended;
}

}  // namespace tilewright::checkpoint
