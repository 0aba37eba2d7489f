#include "worker/hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/base/clock.h"
#include "common/base/file_descriptor.h"
#include "common/base/files.h"
#include "common/base/random.h"
#include "worker/hub/blob_digest.h"
#include "worker/hub/download_lock.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;

std::string format_size(std::uint64_t bytes) {
  if (bytes < 100'000) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// Reports the progress of one file at most once per interval.
class Progress {
 public:
  Progress(const HubOptions& options, std::string name, std::uint64_t size)
      : options_(options), name_(std::move(name)), size_(size) {}

  void begin(std::uint64_t resumed) {
    begin_ = next_ = monotonic_now();
    next_ += options_.limits.progress_interval;
    first_ = resumed;
    options_.report(
        fmt::format("downloading {} ({}{})", name_, format_size(size_),
                    resumed > 0 ? fmt::format(", {} are there", format_size(resumed)) : ""));
  }

  void update(std::uint64_t received) {
    const MonotonicTime now = monotonic_now();
    if (now < next_ || size_ == 0) return;
    next_ = now + options_.limits.progress_interval;
    const double seconds = in_seconds(now - begin_);
    const double gained = static_cast<double>(received) - static_cast<double>(first_);
    options_.report(fmt::format("downloading {}: {} %, {} of {}, {:.1f} MB/s", name_,
                                received * 100 / size_, format_size(received), format_size(size_),
                                std::max(0.0, gained / seconds / 1e6)));
  }

 private:
  const HubOptions& options_;
  const std::string name_;
  const std::uint64_t size_;
  std::uint64_t first_ = 0;
  MonotonicTime begin_{}, next_{};
};

// The file that the bytes arrive in, with their checksum.
class StagingFile final : public BodySink {
 public:
  StagingFile(fs::path path, const RemoteFile& remote, Progress& progress)
      : path_(std::move(path)), digest_(remote.etag, remote.size), progress_(progress) {
    file_ = FileDescriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file_) fail("create the file");
    read_existing(remote.size);
  }

  // Keeps a part for the next run.
  ~StagingFile() override {
    if (file_ && received_ == 0) remove();
  }

  std::uint64_t received() const override { return received_; }

  void restart() override {
    if (ftruncate(file_.get(), 0) != 0 || lseek(file_.get(), 0, SEEK_SET) != 0) fail("truncate");
    received_ = 0;
    digest_.restart();
  }

  void write(std::string_view bytes) override {
    digest_.update(bytes);
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(written));
        received_ += static_cast<std::uint64_t>(written);
      } else if (errno != EINTR) {
        fail("write");
      }
    }
    progress_.update(received_);
  }

  BlobDigest& digest() { return digest_; }

  void commit(const fs::path& blob) {
    if (fsync(file_.get()) != 0) fail("sync");
    // Network file systems report a failed write when the file is closed.
    if (close(file_.release()) != 0) fail("close");
    if (rename(path_.c_str(), blob.c_str()) != 0) fail("rename into place");
    sync_path(blob.parent_path()).or_throw();
  }

  void remove() const { unlink(path_.c_str()); }

 private:
  // Continues what an earlier run left. What is longer than the file is of no use.
  void read_existing(std::uint64_t size) {
    std::array<char, 65536> block;
    ssize_t got = 0;
    while ((got = read(file_.get(), block.data(), block.size())) != 0) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read");
      received_ += static_cast<std::uint64_t>(got);
      if (received_ > size) return restart();
      digest_.update({block.data(), static_cast<std::size_t>(got)});
    }
  }

  [[noreturn]] void fail(const char* action) const {
    const int error = errno;
    throw Failure(output_error_code(error),
                  fmt::format("{}: cannot {} in the Hugging Face cache: {}", path_.string(), action,
                              std::strerror(error)));
  }

  const fs::path path_;
  FileDescriptor file_;
  BlobDigest digest_;
  Progress& progress_;
  std::uint64_t received_ = 0;
};

void check_space(const fs::path& directory, std::uint64_t missing) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error || space.available >= missing) return;
  throw Failure(
      ExitCode::kOutputUnavailable,
      fmt::format("{}: found {} of free space in the Hugging Face cache, expected {} "
                  "for a download",
                  directory.string(), format_size(space.available), format_size(missing)));
}

// Returns whether the file exists with the size that the hub describes.
bool is_complete(const fs::path& path, const RemoteFile& remote) {
  std::error_code error;
  return fs::file_size(path, error) == remote.size && !error;
}

void download_blob(const RepositoryCache& cache, const RemoteFile& remote, const std::string& file,
                   HubClient& client, const HubOptions& options, const fs::path& staging_path) {
  const Repository& repository = cache.repository();
  Progress progress(options, fmt::format("{}: {}", repository.description(), file), remote.size);
  StagingFile staging(staging_path, remote, progress);
  check_space(staging_path.parent_path(), remote.size - staging.received());
  progress.begin(staging.received());
  for (bool resumed = staging.received() > 0;; resumed = false) {
    client.download(repository, remote.commit, file, remote.size, staging);
    BlobDigest& digest = staging.digest();
    const std::string found = digest.hex();
    if (!digest.known() || found == remote.etag) break;
    if (!resumed) {
      staging.remove();
      throw Failure(repository.code(),
                    fmt::format("{}: {} of {} has the {} {}, expected {}; try again, or check the "
                                "proxy",
                                repository.description(), file, options.endpoint,
                                digest.algorithm(), found, remote.etag));
    }
    options.report(fmt::format("{}: {}: the part of an earlier download is corrupt, starting again",
                               repository.description(), file));
    staging.restart();
  }
  staging.commit(cache.blob(remote.etag));
}

}  // namespace

void download_file(const RepositoryCache& cache, const RemoteFile& remote, const std::string& file,
                   HubClient& client, const HubOptions& options) {
  cache.create_blob_directory();
  const fs::path blob = cache.blob(remote.etag);
  const fs::path incomplete = blob.string() + ".incomplete";
  const FileLock lock =
      lock_download(cache.lock_file(remote.etag), options, [&]() -> std::uintmax_t {
        std::error_code error;
        const std::uintmax_t size = fs::file_size(incomplete, error);
        return error ? 0 : size;
      });
  // Another process may have brought it meanwhile. Without symbolic links it has moved the blob
  // into the snapshot, whose files are those of this commit.
  if (is_complete(cache.file(remote.commit, file), remote)) return;
  if (!is_complete(blob, remote)) {
    if (lock.state() == FileLock::State::kLocked) {
      download_blob(cache, remote, file, client, options, incomplete);
    } else {
      const fs::path own = fmt::format("{}.{}.incomplete", blob.string(), random_hex(8));
      try {
        download_blob(cache, remote, file, client, options, own);
      } catch (...) {
        unlink(own.c_str());  // no other run would find it
        throw;
      }
    }
  }
  cache.link(remote.commit, file, remote.etag);
}

}  // namespace tilewright::hub
