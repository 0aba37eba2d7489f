// A file system with the faults of network storage, mounted for one test: refuses RENAME_NOREPLACE
// and RENAME_EXCHANGE, keeps a deleted file that is open under a name .nfsXXXX, as an NFS client
// does ("silly rename"), and fails or holds chosen operations. The program beside this header
// serves it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright::testing {

// Why no FUSE file system can be mounted here; empty: one can.
inline std::string missing_fuse() {
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) return "/dev/fuse cannot be opened: load the kernel module fuse, run as root";
  close(device);
  return geteuid() == 0 ? "" : "mounting a FUSE file system needs root";
}

class FaultyFileSystem {
 public:
  FaultyFileSystem() {
    std::filesystem::create_directory(backing());
    std::filesystem::create_directory(path());
    clear();
    server_ = std::make_unique<RunningProgram>(
        test_program("faulty_fs"),
        std::vector<std::string>{backing(), path(), folder_.path() / "faults"}, folder_.path());
    mounted_ = server_->wait_for_output("mounted\n");
  }
  ~FaultyFileSystem() {
    release();
    server_->send(SIGTERM);  // unmounts
    server_->wait();
  }
  FaultyFileSystem(const FaultyFileSystem&) = delete;
  FaultyFileSystem& operator=(const FaultyFileSystem&) = delete;

  bool mounted() const { return mounted_; }
  std::filesystem::path path() const { return folder_.path() / "mount"; }
  // The same files without the faults.
  std::filesystem::path backing() const { return folder_.path() / "backing"; }

  // From now on `operation` ("write", "rename", "open", ...) fails with this error ("ENOSPC",
  // "ESTALE", "EIO", "EPERM", "EACCES") on files whose path contains `part`. Replaces the earlier
  // fault.
  void fail(const std::string& operation, const std::string& error, const std::string& part = "") {
    std::ofstream(folder_.path() / "faults.new") << operation << ' ' << error << ' ' << part;
    std::filesystem::rename(folder_.path() / "faults.new", folder_.path() / "faults");
  }
  void clear() { fail("none", "EIO"); }

  // From now on `operation` on such files gets no answer until release(), and then succeeds; nor
  // does any later operation, because one thread serves them all.
  void hold(const std::string& operation, const std::string& part) {
    fail(operation, "HOLD", part);
  }
  // Waits for the operation. False: it has not come in time.
  bool wait_until_held() const {
    return wait_readable(held_.descriptor(), std::chrono::steady_clock::now() + kTimeout);
  }
  void release() {
    clear();
    held_.clear();
    go_.send();
  }

 private:
  // A FIFO to or from the server, which passes single bytes.
  class Fifo {
   public:
    explicit Fifo(const std::filesystem::path& path) {
      if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
      descriptor_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    }
    ~Fifo() { close(descriptor_); }
    Fifo(const Fifo&) = delete;
    Fifo& operator=(const Fifo&) = delete;
    int descriptor() const { return descriptor_; }
    void send() const { EXPECT_EQ(write(descriptor_, "x", 1), 1); }
    void clear() const {
      char byte;
      while (read(descriptor_, &byte, 1) == 1) {
      }
    }

   private:
    int descriptor_;
  };

  TemporaryDirectory folder_;
  Fifo held_{folder_.path() / "faults.held"};  // the server holds an operation
  Fifo go_{folder_.path() / "faults.go"};      // it may continue
  std::unique_ptr<RunningProgram> server_;
  bool mounted_ = false;
};

// A fixture with such a file system. Skips its tests where none can be mounted, unless all
// prerequisites are required; then they fail.
template <typename Fixture>
class WithFaultyFileSystem : public Fixture {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Fixture::SetUp());
    const std::string missing = missing_fuse();
    if (!missing.empty()) {
      if (prerequisites_required()) FAIL() << missing;
      GTEST_SKIP() << missing;
    }
    storage_.emplace();
    ASSERT_TRUE(storage_->mounted());
  }

  std::optional<FaultyFileSystem> storage_;
};

}  // namespace tilewright::testing
