#include "controller/local/job_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <sstream>

#include "common/base/files.h"
#include "common/base/random.h"
#include "common/contract/training_checks.h"
#include "common/contract/training_flags.h"
#include "common/net/key_file.h"
#include "controller/api/command.h"
#include "controller/api/decode.h"
#include "controller/api/encode.h"
#include "controller/policy/status.h"

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxJobBytes = 8U << 20;
constexpr const char* kJobFile = "job.json";
// The jobs that --replace discarded and whose output no later job has taken over: a UID a line.
constexpr const char* kDiscardedFile = "discarded-jobs";
constexpr std::uint64_t kMaxDiscardedBytes = 4096;
constexpr std::size_t kMaxDiscarded = 16;
// Every directory of a job has this file and no other directory does: `--replace` deletes only in a
// directory that has it.
constexpr const char* kLockFile = "tilewright-up.lock";

// The suffix that Kubernetes appends to generateName: same alphabet (it forms no words) and length.
constexpr std::string_view kSuffixAlphabet = "bcdfghjklmnpqrstvwxz2456789";
constexpr int kSuffixLength = 5;

std::string random_suffix() {
  std::random_device device;
  std::uniform_int_distribution<std::size_t> any(0, kSuffixAlphabet.size() - 1);
  std::string suffix;
  for (int i = 0; i < kSuffixLength; ++i) suffix += kSuffixAlphabet[any(device)];
  return suffix;
}

Error cannot_write(const fs::path& path, const std::string& why) {
  return {ExitCode::kOutput,
          fmt::format("cannot write the state directory {}: {}", path.string(), why)};
}

// Whether `name` is the name of an entry of a directory, and not a path out of it.
bool is_path_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

// An existing directory is a job's if it has the lock, or is empty: `up` was killed before it made
// the lock.
Status check_job_dir(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return cannot_write(folder, "found no directory");
  if (fs::exists(folder / kLockFile, error) || fs::is_empty(folder, error)) return {};
  if (error) return cannot_write(folder, error.message());
  return Error{ExitCode::kUsage,
               fmt::format("{}: found files but no {}, expected the state directory of a job; "
                           "choose another name or another --state_dir",
                           folder.string(), kLockFile)};
}

Result<FileLock> lock_job_dir(const fs::path& folder, const std::string& name) {
  try {
    FileLock lock(folder / kLockFile, [] { return false; });
    if (lock.state() == FileLock::State::kGivenUp) {
      return Error{
          ExitCode::kUsage,
          fmt::format("another `tilewright up` runs job {} (state in {})", name, folder.string())};
    }
    if (lock.state() == FileLock::State::kUnsupported) {
      return Error{ExitCode::kOutput,
                   fmt::format("{}: found a file system without locks (flock), expected one with "
                               "locks; choose a --state_dir on another file system",
                               folder.string())};
    }
    return lock;
  } catch (const Failure& failure) {
    return failure.error();
  }
}

Result<std::optional<api::TrainJob>> read_job(const fs::path& file) {
  if (!fs::exists(file)) return std::optional<api::TrainJob>();
  const auto invalid = [&](const std::string& why) {
    return Error{ExitCode::kManifest,
                 fmt::format("{} is invalid: {}; remove its directory or run with --replace",
                             file.string(), why)};
  };
  const Result<std::string> text = read_file(file, kMaxJobBytes, ExitCode::kManifest);
  if (!text) return text.error();
  const nlohmann::json tree = nlohmann::json::parse(*text, nullptr, false);
  if (tree.is_discarded()) return invalid("found text that is not JSON");
  api::DecodeResult decoded = api::decode_object(tree);
  if (!decoded.ok()) return invalid(sentences(decoded.errors));
  return std::optional<api::TrainJob>(std::move(decoded.job));
}

// Empty if there is no such file.
std::vector<std::string> read_lines(const fs::path& file) {
  std::vector<std::string> lines;
  const Result<std::string> text = read_file(file, kMaxDiscardedBytes, ExitCode::kOutput);
  if (!text.ok()) return lines;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

Result<TrainingSettings> settings_of(const api::TrainJob& job) {
  const Result<TrainingArguments> arguments = api::training_arguments(job);
  if (!arguments) return arguments.error();
  TrainingSettings settings = arguments->settings();
  resolve_equivalent_values(settings);
  return settings;
}

// A training continues from its checkpoints only with the settings that they were written with.
Status check_unchanged_training(const api::TrainJob& before, const api::TrainJob& now) {
  const auto refuse = [&](std::string_view field, std::string_view found,
                          std::string_view expected) {
    return Error{
        ExitCode::kUsage,
        fmt::format("job {}: spec.trainer.{}: found {}, expected {} as before, because the "
                    "job continues; change it back, or run with --replace to start again "
                    "without its checkpoints",
                    now.metadata.name, field, found.empty() ? "nothing" : found,
                    expected.empty() ? "nothing" : expected)};
  };
  const api::Trainer& trainer = now.spec.trainer;
  const api::Trainer& old = before.spec.trainer;
  for (const auto& [flag, field, member] : api::kRenamedFlags) {
    if (member == &api::Trainer::cache || trainer.*member == old.*member) continue;
    return refuse(field, trainer.*member, old.*member);
  }
  const Result<TrainingSettings> old_settings = settings_of(before);
  if (!old_settings) return old_settings.error();
  const Result<TrainingSettings> settings = settings_of(now);
  if (!settings) return settings.error();
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.determines_weights_of(*old_settings) || !flag.in_manifest() ||
        flag.name == "task_name") {
      continue;
    }
    const std::string found = setting_value(*settings, flag);
    const std::string expected = setting_value(*old_settings, flag);
    if (found != expected) return refuse(flag.name, found, expected);
  }
  const std::int64_t found = api::global_batch(now);
  const std::int64_t expected = api::global_batch(before);
  if (found == expected) return {};
  return refuse("per_device_train_batch_size",
                fmt::format("a value with a global batch of {}", found), std::to_string(expected));
}

}  // namespace

Result<JobStore> JobStore::open(const fs::path& state_dir, api::TrainJob& job, bool replace) {
  const bool generated = job.metadata.name.empty();
  const std::string& written = generated ? job.metadata.generate_name : job.metadata.name;
  if (!is_path_component(written)) {
    return Error{ExitCode::kUsage,
                 fmt::format("found {} as the name of the job, expected the name of a directory in "
                             "{}",
                             written.empty() ? "nothing" : written, state_dir.string())};
  }
  std::error_code error;
  fs::create_directories(state_dir, error);
  if (error) return cannot_write(state_dir, error.message());
  fs::path folder;
  for (int tries = 0;; ++tries) {
    if (generated) job.metadata.name = job.metadata.generate_name + random_suffix();
    folder = state_dir / job.metadata.name;
    if (mkdir(folder.c_str(), 0755) == 0) break;
    if (errno != EEXIST) return cannot_write(folder, std::strerror(errno));
    if (!generated) {
      if (Status ours = check_job_dir(folder); !ours) return ours.error();
      break;
    }
    TW_CHECK(tries < 100, "found no free name for {}", job.metadata.generate_name);
  }
  Result<FileLock> locked = lock_job_dir(folder, job.metadata.name);
  if (!locked) return locked.error();
  JobStore store(fs::absolute(folder), std::move(locked).value());
  if (Status taken = store.load_or_create(job, replace); !taken) return taken.error();
  fs::create_directories(store.log_folder(), error);
  if (error) return cannot_write(store.log_folder(), error.message());
  if (Status made = store.ensure_key(); !made) return made.error();
  return store;
}

bool JobStore::has_discarded(std::string_view uid) const {
  return std::ranges::find(discarded_, uid) != discarded_.end();
}

// Writes the UID before it removes the job, so that it is not lost if `up` is killed in between.
Status JobStore::discard() {
  const Result<std::optional<api::TrainJob>> read = read_job(folder_ / kJobFile);
  if (read.ok() && *read && !(*read)->metadata.uid.empty()) {
    // A job whose workers have met has taken over the output of the job before it.
    std::vector<std::string> uids;
    if ((*read)->status.rendezvous_epoch == 0) uids = read_lines(folder_ / kDiscardedFile);
    uids.insert(uids.begin(), (*read)->metadata.uid);
    if (uids.size() > kMaxDiscarded) uids.resize(kMaxDiscarded);
    Status written =
        write_file_atomically(folder_ / kDiscardedFile, fmt::format("{}\n", fmt::join(uids, "\n")));
    if (!written) return written;
  }
  std::error_code error;
  fs::remove_all(log_folder(), error);
  for (const fs::path& file : {folder_ / kJobFile, key_file()}) fs::remove(file, error);
  return {};
}

Status JobStore::load_or_create(api::TrainJob& job, bool replace) {
  if (replace) {
    if (Status discarded = discard(); !discarded) return discarded;
  }
  discarded_ = read_lines(folder_ / kDiscardedFile);
  Result<std::optional<api::TrainJob>> read = read_job(folder_ / kJobFile);
  if (!read) return read.error();
  const std::optional<api::TrainJob>& before = *read;
  if (!before) {
    job.metadata.uid = random_uuid();
    job.metadata.generation = 1;
    job.metadata.creation_timestamp = std::chrono::floor<std::chrono::seconds>(wall_now());
    job.status = {};
    return {};
  }
  if (policy::is_final(before->status.phase)) {
    return Error{
        ExitCode::kUsage,
        fmt::format("job {} has already {} (state in {}); run it again with --replace, or set "
                    "metadata.generateName, which gives each run a new name",
                    job.metadata.name,
                    before->status.phase == api::Phase::kSucceeded ? "succeeded" : "failed",
                    folder_.string())};
  }
  resumed_ = true;
  job.metadata.uid = before->metadata.uid;
  job.metadata.creation_timestamp = before->metadata.creation_timestamp;
  job.metadata.generation = before->metadata.generation + (before->spec == job.spec ? 0 : 1);
  job.status = before->status;
  // Nothing has been trained before its workers have met.
  return job.status.rendezvous_epoch > 0 ? check_unchanged_training(*before, job) : Status();
}

Status JobStore::ensure_key() const {
  // A file with other content can be replaced: only this process, which holds the lock, and its
  // workers use the key.
  return net::holds_whole_key(key_file()) ? Status() : net::replace_key_file(key_file());
}

Status JobStore::save(const api::TrainJob& job) const {
  return write_file_atomically(folder_ / kJobFile, api::to_json(job).dump(2) + "\n");
}

}  // namespace tilewright::local
