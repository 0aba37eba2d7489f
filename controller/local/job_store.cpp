#include "controller/local/job_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>

#include "common/base/files.h"
#include "common/contract/ports.h"
#include "controller/api/decode.h"
#include "controller/api/encode.h"

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxJobBytes = 8U << 20;
constexpr const char* kJobFile = "job.json";

// What generateName is followed by: Kubernetes' alphabet, which spells no words, and its length.
constexpr std::string_view kSuffixAlphabet = "bcdfghjklmnpqrstvwxz2456789";
constexpr int kSuffixLength = 5;

// Bytes of the system's generator.
std::string random_hex(int bytes) {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", device() & 0xFFU);
  return hex;
}

std::string random_suffix() {
  std::random_device device;
  std::uniform_int_distribution<std::size_t> any(0, kSuffixAlphabet.size() - 1);
  std::string suffix;
  for (int i = 0; i < kSuffixLength; ++i) suffix += kSuffixAlphabet[any(device)];
  return suffix;
}

Error cannot_write(const fs::path& path, const std::string& why) {
  return {ExitCode::kOutput,
          fmt::format("the job's state folder {} cannot be written: {}", path.string(), why)};
}

// The lock is held as long as the descriptor is open, so it cannot be left behind.
Result<FileDescriptor> lock(const fs::path& folder, const std::string& name) {
  const fs::path file = folder / "lock";
  FileDescriptor descriptor(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!descriptor) return cannot_write(file, std::strerror(errno));
  if (flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ExitCode::kUsage,
                 fmt::format("job {} is being run by another `tilewright up` (state in {})", name,
                             folder.string())};
  }
  return descriptor;
}

Result<std::optional<api::TrainJob>> read_job(const fs::path& file) {
  if (!fs::exists(file)) return std::optional<api::TrainJob>();
  const auto damaged = [&](const std::string& why) {
    return Error{ExitCode::kManifest,
                 fmt::format("{} is damaged: {}; remove the folder, or run with --replace",
                             file.string(), why)};
  };
  const Result<std::string> text = read_file(file, kMaxJobBytes, ExitCode::kManifest);
  if (!text) return text.error();
  const nlohmann::json tree = nlohmann::json::parse(*text, nullptr, false);
  if (tree.is_discarded()) return damaged("no JSON");
  api::Decoded decoded = api::decode_object(tree);
  if (!decoded.ok()) return damaged(api::sentences(decoded.errors));
  return std::optional<api::TrainJob>(std::move(decoded.job));
}

bool is_finished(const api::TrainJob& job) {
  return job.status.phase == api::Phase::kSucceeded || job.status.phase == api::Phase::kFailed;
}

}  // namespace

std::string random_uid() {
  std::string hex = random_hex(16);
  hex[12] = '4';
  hex[16] = "89ab"[static_cast<unsigned char>(hex[16]) & 3U];
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20));
}

Result<JobStore> JobStore::open(const fs::path& state_dir, api::TrainJob& job, bool replace) {
  std::error_code error;
  fs::create_directories(state_dir, error);
  if (error) return cannot_write(state_dir, error.message());
  const bool generated = job.metadata.name.empty();
  fs::path folder;
  for (int tries = 0;; ++tries) {
    if (generated) job.metadata.name = job.metadata.generate_name + random_suffix();
    folder = state_dir / job.metadata.name;
    if (mkdir(folder.c_str(), 0755) == 0) break;
    if (errno != EEXIST) return cannot_write(folder, std::strerror(errno));
    if (!generated) break;
    TW_CHECK(tries < 100, "no free name for {}", job.metadata.generate_name);
  }
  Result<FileDescriptor> locked = lock(folder, job.metadata.name);
  if (!locked) return locked.error();
  JobStore store(fs::absolute(folder), std::move(locked).value());
  if (Status taken = store.take_up(job, replace); !taken) return taken.error();
  fs::create_directories(store.log_folder(), error);
  if (error) return cannot_write(store.log_folder(), error.message());
  if (Status made = store.make_key(); !made) return made.error();
  if (Status saved = store.save(job); !saved) return saved.error();
  return store;
}

Status JobStore::take_up(api::TrainJob& job, bool replace) {
  if (replace) {
    std::error_code error;
    fs::remove_all(log_folder(), error);
    for (const fs::path& file : {folder_ / kJobFile, key_file()}) fs::remove(file, error);
  }
  Result<std::optional<api::TrainJob>> read = read_job(folder_ / kJobFile);
  if (!read) return read.error();
  const std::optional<api::TrainJob>& before = *read;
  if (!before) {
    job.metadata.uid = random_uid();
    job.metadata.generation = 1;
    job.metadata.creation_timestamp = std::chrono::floor<std::chrono::seconds>(wall_now());
    job.status = {};
    return {};
  }
  if (is_finished(*before)) {
    return Error{
        ExitCode::kUsage,
        fmt::format("job {} has already {} (state in {}): run it anew with --replace, or "
                    "let metadata.generateName give each run a name of its own",
                    job.metadata.name,
                    before->status.phase == api::Phase::kSucceeded ? "succeeded" : "failed",
                    folder_.string())};
  }
  resumed_ = true;
  job.metadata.uid = before->metadata.uid;
  job.metadata.creation_timestamp = before->metadata.creation_timestamp;
  job.metadata.generation = before->metadata.generation + (before->spec == job.spec ? 0 : 1);
  job.status = before->status;
  return {};
}

Status JobStore::make_key() const {
  if (fs::exists(key_file())) return {};
  // Others on this machine may not read it, not even for a moment.
  FileDescriptor file(::open(key_file().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return cannot_write(key_file(), std::strerror(errno));
  const std::string key = random_hex(kJobKeyBytes);
  if (write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
    return cannot_write(key_file(), std::strerror(errno));
  }
  return {};
}

Status JobStore::save(const api::TrainJob& job) const {
  return write_file_atomically(folder_ / kJobFile, api::to_json(job).dump(2) + "\n");
}

}  // namespace tilewright::local
