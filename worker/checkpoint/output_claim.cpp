#include "worker/checkpoint/output_claim.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "common/base/files.h"
#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/hashed_file.h"
#include "worker/checkpoint/json_fields.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Failure(ExitCode::kOutput, fmt::format("{}: {}", path.string(), what));
}

// Folders made on the way to the output folder, taken back unless they are kept.
class MadeFolders {
 public:
  explicit MadeFolders(const fs::path& folder) {
    std::vector<fs::path> missing;
    std::error_code error;
    for (fs::path path = folder; !path.empty() && !fs::exists(path, error);
         path = path.parent_path()) {
      if (path.has_filename()) missing.push_back(path);
      if (path == path.parent_path()) break;
    }
    for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
      if (fs::create_directory(*path, error)) made_.push_back(*path);
      if (error) {
        take_back();
        refuse(folder, fmt::format("cannot create the output folder: {}", error.message()));
      }
    }
  }
  ~MadeFolders() { take_back(); }
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;
  void keep() { made_.clear(); }

 private:
  void take_back() {
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) rmdir(path->c_str());
    made_.clear();
  }
  std::vector<fs::path> made_;
};

// What stands there, or nothing for a folder that counts as empty: a fresh volume has a lost+found,
// a process that died leaves an aside-folder.
std::optional<std::string> foreign_entry(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name != "lost+found" && !is_aside_name(name)) return name;
  }
  if (error) refuse(folder, fmt::format("cannot list the output folder: {}", error.message()));
  return std::nullopt;
}

std::string claim_json(const std::string& job_uid) {
  return nlohmann::json{{"job_uid", job_uid}}.dump(2) + "\n";
}

// The job named by the claim file, or a Failure when it cannot be read.
std::string claimant(const fs::path& file) {
  return JsonFields(file, ExitCode::kOutput).text("job_uid");
}

// False when another process was quicker.
bool claim_new(const fs::path& folder, const std::string& job_uid) {
  const fs::path aside = folder / fmt::format("{}.tmp-{}", kClaimFile, getpid());
  std::error_code ignored;
  fs::remove(aside, ignored);
  write_hashed(aside, claim_json(job_uid));
  try {
    sync_path(aside).or_throw();
    if (rename_to_new(aside, folder / kClaimFile)) {
      sync_path(folder).or_throw();
      return true;
    }
  } catch (...) {
    fs::remove(aside, ignored);
    throw;
  }
  fs::remove(aside, ignored);
  return false;
}

void require_writable(const fs::path& folder) {
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse(folder, fmt::format("the output folder cannot be written: {}", std::strerror(errno)));
  }
}

void remove_checkpoints(const fs::path& folder) {
  for (const fs::path& checkpoint : list_checkpoints(folder)) {
    remove_directory_atomically(checkpoint);
  }
}

struct Finding {
  Claim claim;
  bool claimed = false;  // there is a claim file
};

// Of a folder that is there. Failures are all that can be told without writing.
Finding examine(const fs::path& folder, const std::string& job_uid, bool overwrite) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) refuse(folder, "is a file, expected a folder");
  require_writable(folder);
  const fs::path file = folder / kClaimFile;
  if (!fs::exists(file, error)) {
    const auto foreign = foreign_entry(folder);
    if (!foreign) return {Claim::kNew};
    if (overwrite) return {Claim::kOverwritten};
    refuse(folder,
           fmt::format("is not empty (it holds {}) and belongs to no job, expected an empty or new "
                       "folder, or --overwrite_output_dir",
                       *foreign));
  }
  std::string owner;
  try {
    owner = claimant(file);
  } catch (const Failure&) {
    if (!overwrite) throw;
  }
  if (owner == job_uid) return {Claim::kResumed, true};
  if (!overwrite) {
    refuse(folder, fmt::format("belongs to job {}, this is job {}, expected another folder, or "
                               "--overwrite_output_dir",
                               quote(owner), quote(job_uid)));
  }
  return {Claim::kOverwritten, true};
}

}  // namespace

Claim examine_output(const fs::path& output_dir, const std::string& job_uid, bool overwrite) {
  std::error_code error;
  if (!fs::exists(output_dir, error)) return Claim::kNew;
  return examine(output_dir, job_uid, overwrite).claim;
}

Claim claim_output(const fs::path& output_dir, const std::string& job_uid, bool overwrite) {
  TW_CHECK(!job_uid.empty(), "an output folder is claimed without a job UID");
  MadeFolders made(output_dir);
  Finding found = examine(output_dir, job_uid, overwrite);
  // Before the claim: whoever dies in between may not find another's checkpoints as its own.
  if (found.claim == Claim::kOverwritten) remove_checkpoints(output_dir);
  if (!found.claimed && !claim_new(output_dir, job_uid)) {
    // Another process was quicker.
    found = examine(output_dir, job_uid, overwrite);
    if (found.claim == Claim::kOverwritten) remove_checkpoints(output_dir);
  }
  if (found.claimed && found.claim == Claim::kOverwritten) {
    write_file_atomically(output_dir / kClaimFile, claim_json(job_uid)).or_throw();
  }
  made.keep();
  remove_stale_asides(output_dir);
  return found.claim;
}

}  // namespace tilewright::checkpoint
