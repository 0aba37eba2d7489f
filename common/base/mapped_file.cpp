#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/base/files.h"
#include "common/base/printable.h"

namespace tilewright {

// The files that are mapped, for the handler of SIGBUS, to which nothing can be passed and which
// may use atomics only. The thread whose access it handles keeps the object of its file alive.
class MappedFiles {
 public:
  static void add(const MappedFile& file) {
    static const bool is_installed = install();
    static_cast<void>(is_installed);
    const auto begin = reinterpret_cast<std::uintptr_t>(file.content_.data());
    for (Slot& slot : slots_) {
      const MappedFile* none = nullptr;
      if (!slot.file.compare_exchange_strong(none, &file)) continue;
      slot.begin = begin;
      slot.end = begin + file.content_.size();
      return;
    }
    // More files than slots: an access to lost content of this one ends the process by SIGBUS.
  }
  static void remove(const MappedFile& file) {
    for (Slot& slot : slots_) {
      if (slot.file != &file) continue;
      slot.end = 0;
      slot.file = nullptr;
    }
  }

 private:
  struct Slot {
    std::atomic<const MappedFile*> file;
    std::atomic<std::uintptr_t> begin, end;  // `end` is 0 while the range is not valid
  };

  static bool install() {
    struct sigaction action {};
    action.sa_sigaction = &MappedFiles::handle;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, &previous_) == 0;
  }

  static void handle(int number, siginfo_t* info, void*) {
    const int error = errno;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    for (const Slot& slot : slots_) {
      if (address < slot.begin || address >= slot.end) continue;
      const MappedFile& file = *slot.file.load();
      static_cast<void>(
          !write(STDERR_FILENO, file.lost_message_.data(), file.lost_message_.size()));
      _exit(static_cast<int>(file.code_));
    }
    sigaction(number, &previous_, nullptr);  // the access is repeated
    errno = error;
  }

  static inline std::array<Slot, 256> slots_;
  static inline struct sigaction previous_ {};
};

MappedFile::MappedFile(std::filesystem::path path, ExitCode code)
    : path_(std::move(path)), code_(code) {
  // O_NONBLOCK: a named pipe without a writer must not block.
  file_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_) fail(fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) fail("is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_.get(), 0);
  if (mapped == MAP_FAILED) {
    if (errno == ENOMEM) code_ = ExitCode::kMemory;  // `ulimit -v`: the file is sound
    fail(fmt::format("cannot map: {}", std::strerror(errno)));
  }
  content_ = {static_cast<const std::byte*>(mapped), size};
  lost_message_ = fmt::format(
      "{}: {}: cannot read the mapped file: found it truncated or unreadable, expected {} bytes\n",
      program_invocation_short_name, excerpt(path_.string(), kLineExcerpt), size);
  const std::string_view text(static_cast<const char*>(mapped), size);
  if (const Status usable = refuse_lfs_pointer(path_, text, code_); !usable.ok()) {
    munmap(mapped, size);
    usable.or_throw();
  }
  MappedFiles::add(*this);
}

MappedFile::~MappedFile() {
  if (content_.empty()) return;
  MappedFiles::remove(*this);
  munmap(const_cast<std::byte*>(content_.data()), content_.size());
}

void MappedFile::check_size() const {
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) fail(fmt::format("cannot stat: {}", std::strerror(errno)));
  if (static_cast<std::size_t>(status.st_size) < content_.size()) {
    fail(fmt::format("has been truncated: found {} bytes, expected {}", status.st_size,
                     content_.size()));
  }
}

void MappedFile::fail(const std::string& what) const {
  throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
}

}  // namespace tilewright
