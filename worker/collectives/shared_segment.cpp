#include "worker/collectives/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "common/base/random.h"

namespace tilewright::collectives {
namespace {

constexpr int kNameBytes = 16;

Error unsupported(const std::string& what) { return {ExitCode::kUnsupported, what}; }

constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL, which glibc 2.36 does not have

Error refused(std::string_view call) {
  return unsupported(fmt::format("{}: {}", call, std::strerror(errno)));
}

// Sets the size, with all pages or none. Returns the errno.
int resize(int memory, std::size_t bytes, SharedSegment::Pages pages) {
  if (pages == SharedSegment::Pages::kOnAccess) {
    return ftruncate(memory, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  int problem = EINTR;
  while (problem == EINTR) problem = posix_fallocate(memory, 0, static_cast<off_t>(bytes));
  return problem;
}

}  // namespace

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) munmap(data_, size_);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : memory_(std::move(other.memory_)),
      name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(name_, other.name_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<SharedSegment> SharedSegment::mapped(std::size_t bytes) && {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (at == MAP_FAILED) return refused("mmap");
  madvise(at, bytes, MADV_HUGEPAGE);  // only advice, may fail
  data_ = static_cast<std::byte*>(at);
  size_ = bytes;
  return std::move(*this);
}

Result<SharedSegment> SharedSegment::create(std::size_t bytes, Pages pages) {
  std::string name = "tilewright-" + random_hex(kNameBytes);
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Where vm.memfd_noexec is 2 the kernel refuses memory that could be executed.
  FileDescriptor memory(memfd_create(name.c_str(), kFlags | kNoExecSeal));
  if (!memory && errno == EINVAL) {  // before Linux 6.3
    memory = FileDescriptor(memfd_create(name.c_str(), kFlags));
  }
  if (!memory) return refused("memfd_create");
  const int problem = resize(memory.get(), bytes, pages);
  if (problem != 0) {
    errno = problem;
    return refused(fmt::format("{} bytes of shared memory", bytes));
  }
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refused("F_ADD_SEALS");
  }
  return SharedSegment(std::move(memory), std::move(name)).mapped(bytes);
}

std::string SharedSegment::offer() const {
  return fmt::format("{} {} {}", getpid(), memory_.get(), name_);
}

Result<SharedSegment> SharedSegment::open(std::string_view offer, std::size_t bytes) {
  std::istringstream stream{std::string(offer)};
  std::vector<std::string> words(std::istream_iterator<std::string>(stream), {});
  const auto is_number = [](const std::string& word) {
    return !word.empty() && word.size() <= 10 &&
           word.find_first_not_of("0123456789") == std::string::npos;
  };
  if (words.size() != 3 || !is_number(words[0]) || !is_number(words[1]))
    return unsupported("an offer of shared memory that is not \"PID DESCRIPTOR NAME\"");
  const std::string path = fmt::format("/proc/{}/fd/{}", words[0], words[1]);
  // The link's text says what would be opened: in another PID namespace the numbers can be those of
  // any file.
  std::array<char, 200> text{};
  const ssize_t length = readlink(path.c_str(), text.data(), text.size());
  if (length < 0) return refused(path);
  const std::string expected = fmt::format("/memfd:{} (deleted)", words[2]);
  if (std::string_view(text.data(), static_cast<std::size_t>(length)) != expected)
    return unsupported(path +
                       " is not the memory that the peer offers: it is in another container");
  FileDescriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!memory) return refused(path);
  struct stat status {};
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (fstat(memory.get(), &status) != 0 || status.st_size != static_cast<off_t>(bytes) ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return unsupported(fmt::format("{} has {} bytes and seals {:#x}, expected {} sealed bytes",
                                   path, status.st_size, seals, bytes));
  auto opened = SharedSegment(std::move(memory), std::move(words[2])).mapped(bytes);
  if (opened.ok()) opened->close_offer();
  return opened;
}

}  // namespace tilewright::collectives
