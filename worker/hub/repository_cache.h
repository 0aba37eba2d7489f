// A repository in the cache of huggingface_hub:
//
//   CACHE/models--ORG--NAME/refs/main                 the commit of a branch or tag
//                          /snapshots/COMMIT/FILE     symbolic links to blobs
//                          /blobs/ETAG                contents; ETAG.incomplete: a partial download
//                          /.no_exist/COMMIT/FILE     empty: the commit has no such file
//                          /.incomplete/COMMIT/PART   the files, a line each, of a download that
//                                                     has begun
//   CACHE/.locks/models--ORG--NAME/ETAG.lock
//
// Reading writes nothing, so the cache may be read-only. Writes fail with output_error_code().
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "worker/hub/repository.h"

namespace tilewright::hub {

enum class Presence { kPresent, kAbsent, kUnknown };

class RepositoryCache {
 public:
  RepositoryCache(const std::filesystem::path& cache_dir, const Repository& repository);

  const Repository& repository() const { return repository_; }
  const std::filesystem::path& folder() const { return folder_; }

  // The commit of a revision: the revision itself if it is a commit, else the content of its ref.
  std::optional<std::string> commit_of(const std::string& revision) const;
  // The commits with a snapshot, the latest first.
  std::vector<std::string> commits() const;
  // The files of a snapshot as paths relative to it, sorted.
  std::vector<std::string> files(const std::string& commit) const;
  // kAbsent if the hub has said that the commit has no such file.
  Presence find(const std::string& commit, const std::string& file) const;

  std::filesystem::path snapshot(const std::string& commit) const;
  std::filesystem::path file(const std::string& commit, const std::string& name) const;
  std::filesystem::path blob(const std::string& etag) const;

  // Creates the directory of the locks.
  std::filesystem::path lock_file(const std::string& etag) const;
  // Creates the directory of the blobs.
  void create_blob_directory() const;
  // Makes a blob the file of a snapshot; replaces a link to another or a missing blob. Where the
  // file system has no symbolic links, it moves the blob, as huggingface_hub does.
  void link(const std::string& commit, const std::string& file, const std::string& etag) const;
  // Ignores errors: a missing marker only costs a request.
  void mark_absent(const std::string& commit, const std::string& file) const;
  // Around the download of several files of a commit, which have the name `part`, such as a
  // configuration. is_partial(): it has begun and not ended, and one of the files is missing, which
  // another program may have downloaded.
  void begin(const std::string& commit, const std::string& part,
             const std::vector<std::string>& files) const;
  // Ignores errors: a marker that stays only costs the reading of it.
  void finish(const std::string& commit, const std::string& part) const;
  bool is_partial(const std::string& commit, const std::string& part) const;
  // Does nothing if the ref has this content or the revision is the commit.
  void set_commit(const std::string& revision, const std::string& commit) const;

 private:
  std::filesystem::path partial_marker(const std::string& commit, const std::string& part) const;

  Repository repository_;
  std::filesystem::path cache_dir_, folder_;
};

}  // namespace tilewright::hub
