// A file system with the faults of network storage, mounted for one test: refuses RENAME_NOREPLACE
// and RENAME_EXCHANGE, keeps a deleted file that is open under a name .nfsXXXX, as an NFS client
// does ("silly rename"), and fails chosen operations. The program beside this header serves it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
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
  // "ESTALE", "EIO", "EPERM") on files whose path contains `part`. Replaces the earlier fault.
  void fail(const std::string& operation, const std::string& error, const std::string& part = "") {
    std::ofstream(folder_.path() / "faults.new") << operation << ' ' << error << ' ' << part;
    std::filesystem::rename(folder_.path() / "faults.new", folder_.path() / "faults");
  }
  void clear() { fail("none", "EIO"); }

 private:
  TemporaryDirectory folder_;
  std::unique_ptr<RunningProgram> server_;
  bool mounted_ = false;
};

}  // namespace tilewright::testing
