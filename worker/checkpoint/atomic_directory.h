// A directory that is complete or absent: built aside in the same parent, synced, renamed into
// place. Whoever dies on the way leaves an aside-folder ".NAME.tmp-PID" that no reader looks at.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace tilewright::checkpoint {

// All Failures carry kOutput. One object a target and process at a time.
class AtomicDirectory {
 public:
  // Makes the aside-folder. The parent must exist.
  explicit AtomicDirectory(const std::filesystem::path& target);
  // Without a commit, removes the aside-folder and all it holds.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  // Where the files are to be written.
  const std::filesystem::path& aside() const { return aside_; }

  // Syncs every file and puts the folder in the target's place, which it takes over in one step
  // when something stands there.
  void commit();

  // For a folder that must stay (it is a mount point, or holds other things): moves the files into
  // `folder`, on the same file system, instead. `last` (one of them) is removed first and comes
  // last, so that at any instant the new files are all there, or `last` is not.
  void commit_into(const std::filesystem::path& folder, const std::string& last);

 private:
  void sync() const;

  std::filesystem::path target_;
  std::filesystem::path aside_;
  int lock_ = -1;  // held as long as the aside-folder is in use
  bool committed_ = false;
};

// Renames aside, then removes: a reader never sees half of it. Failures carry kOutput.
void remove_directory_atomically(const std::filesystem::path& directory);

// Renames `from` to `to` unless something stands there: false then.
bool rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

// Whether a name is that of something left aside: ".NAME.tmp-PID".
bool is_aside_name(const std::string& name);

// Removes what dead processes left aside in `parent`; gives their names. What a living process
// holds (by its lock, or by its id where the file system has no locks) stays.
std::vector<std::string> remove_stale_asides(const std::filesystem::path& parent);

}  // namespace tilewright::checkpoint
