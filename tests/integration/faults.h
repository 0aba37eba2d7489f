// TILEWRIGHT_FAULT (worker/train/faults.h) of the programs that a test starts.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/base/file_descriptor.h"
#include "common/contract/environment.h"
#include "tests/support/scoped_variable.h"

namespace tilewright::testing {

// Sets TILEWRIGHT_FAULT for processes started during its lifetime.
class ScopedFault : ScopedVariable {
 public:
  explicit ScopedFault(const std::string& text) : ScopedVariable(env::kFault, text) {}
};

// The fault in any membership epoch: on a busy machine a worker may join after the first step. It
// removes `file`, which this creates.
inline std::string fault_once(const std::string& fault, const std::filesystem::path& file) {
  std::ofstream(file).put('\n');
  return fmt::format("{},once={}", fault, file.string());
}

// Holds each process that reaches a point of worker/train/faults.h until release(), so that a test
// can act in between, however busy the machine is.
class HeldPoint {
 public:
  // `pipe`: the path of the named pipe that this creates. Throws std::runtime_error if it cannot.
  explicit HeldPoint(std::filesystem::path pipe) : pipe_(std::move(pipe)) {
    if (mkfifo(pipe_.c_str(), 0600) != 0) throw std::runtime_error("mkfifo " + pipe_.string());
  }
  ~HeldPoint() { release(); }
  HeldPoint(const HeldPoint&) = delete;
  HeldPoint& operator=(const HeldPoint&) = delete;

  // The fault that holds at `point`, such as "step.begin@3".
  std::string fault(const std::string& point) const {
    return fmt::format("{},hold={}", point, pipe_.string());
  }
  // Returns when at least one process is held; does not return if none reaches the point.
  void wait_until_held() { writer_ = FileDescriptor(open(pipe_.c_str(), O_WRONLY | O_CLOEXEC)); }
  // Releases the held processes, and those that reach the point later are not held.
  void release() {
    // Ends also the wait of a process that has only opened the pipe; never blocks, as O_WRONLY
    // would.
    if (!writer_) writer_ = FileDescriptor(open(pipe_.c_str(), O_RDWR | O_CLOEXEC));
    std::filesystem::remove(pipe_);
    writer_.reset();
  }

 private:
  const std::filesystem::path pipe_;
  FileDescriptor writer_;
};

}  // namespace tilewright::testing
