#include "worker/collectives/shared_memory_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <sstream>
#include <utility>
#include <vector>

#include "common/base/random.h"

namespace tilewright::collectives {
namespace {

constexpr std::size_t kRing = SharedMemoryLink::kRingBytes;
// A transfer becomes visible in pieces, so that the other end can begin.
constexpr std::size_t kPiece = kRing / 4;
constexpr int kNameBytes = 16;

Error unsupported(const std::string& what) { return {ExitCode::kUnsupported, what}; }

Error refused(std::string_view call) {
  return unsupported(fmt::format("{}: {}", call, std::strerror(errno)));
}

}  // namespace

// Positions count bytes since the beginning; the offset in the ring is the remainder. Each end
// writes only its own End; only `awaited` is cleared by the other one.
struct SharedMemoryLink::Segment {
  struct End {
    alignas(64) std::atomic<std::uint64_t> written{0};   // to the ring that this end fills
    alignas(64) std::atomic<std::uint64_t> consumed{0};  // of the ring that the other end fills
    alignas(64) std::atomic<std::uint32_t> awaited{kNothing};
  };
  std::array<End, 2> ends;
  alignas(4096) std::array<std::array<std::byte, kRing>, 2> rings;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

SharedMemoryLink::SharedMemoryLink(FileDescriptor memory, Segment* segment, std::string name,
                                   bool creator)
    : memory_(std::move(memory)),
      segment_(segment),
      name_(std::move(name)),
      self_(creator ? 0 : 1) {}

SharedMemoryLink::~SharedMemoryLink() { munmap(segment_, sizeof(Segment)); }

Result<std::unique_ptr<SharedMemoryLink>> SharedMemoryLink::create() {
  std::string name = "tilewright-" + random_hex(kNameBytes);
  FileDescriptor memory(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return refused("memfd_create");
  // With all pages allocated and the size sealed no access can fail later.
  int problem = EINTR;
  while (problem == EINTR) problem = posix_fallocate(memory.get(), 0, sizeof(Segment));
  if (problem != 0) {
    errno = problem;
    return refused(fmt::format("{} bytes of shared memory", sizeof(Segment)));
  }
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refused("F_ADD_SEALS");
  }
  void* mapped =
      mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return refused("mmap");
  return std::unique_ptr<SharedMemoryLink>(
      new SharedMemoryLink(std::move(memory), new (mapped) Segment, std::move(name), true));
}

std::string SharedMemoryLink::offer() const {
  return fmt::format("{} {} {}", getpid(), memory_.get(), name_);
}

Result<std::unique_ptr<SharedMemoryLink>> SharedMemoryLink::open(std::string_view offer) {
  std::istringstream stream{std::string(offer)};
  const std::vector<std::string> words(std::istream_iterator<std::string>(stream), {});
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
  if (fstat(memory.get(), &status) != 0 || status.st_size != sizeof(Segment) || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    return unsupported(fmt::format("{} has {} bytes and seals {:#x}, expected {} sealed bytes",
                                   path, status.st_size, seals, sizeof(Segment)));
  void* mapped =
      mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return refused("mmap");
  return std::unique_ptr<SharedMemoryLink>(
      new SharedMemoryLink({}, static_cast<Segment*>(mapped), words[2], false));
}

// An impossible position counts as an empty or full ring here; read() and write() report it.
std::size_t SharedMemoryLink::readable() const {
  const std::uint64_t bytes = segment_->ends[1 - self_].written.load(std::memory_order_seq_cst) -
                              segment_->ends[self_].consumed.load(std::memory_order_relaxed);
  return static_cast<std::size_t>(bytes);
}

std::size_t SharedMemoryLink::writable() const {
  const std::uint64_t used = segment_->ends[self_].written.load(std::memory_order_relaxed) -
                             segment_->ends[1 - self_].consumed.load(std::memory_order_seq_cst);
  return used <= kRing ? static_cast<std::size_t>(kRing - used) : kRing + 1;
}

Result<std::size_t> SharedMemoryLink::write(std::span<const iovec> buffers) {
  auto& written = segment_->ends[self_].written;
  auto& ring = segment_->rings[self_];
  std::size_t total = 0;
  for (const iovec& buffer : buffers) {
    const auto* from = static_cast<const std::byte*>(buffer.iov_base);
    for (std::size_t left = buffer.iov_len; left > 0;) {
      const std::size_t space = writable();
      if (space > kRing)
        return Error{ExitCode::kPeerLost, "an invalid position in the ring buffer"};
      if (space == 0) return total;
      const std::uint64_t position = written.load(std::memory_order_relaxed);
      const std::size_t at = position % kRing;
      const std::size_t count = std::min({left, space, kRing - at, kPiece});
      std::memcpy(ring.data() + at, from, count);
      written.store(position + count, std::memory_order_seq_cst);
      from += count;
      left -= count;
      total += count;
    }
  }
  return total;
}

Result<std::size_t> SharedMemoryLink::read(std::span<std::byte> bytes) {
  std::size_t total = 0;
  while (total < bytes.size()) {
    const auto ready = peek();
    if (!ready.ok()) return ready.error();
    if (ready->empty()) break;
    const std::size_t count = std::min({bytes.size() - total, ready->size(), kPiece});
    std::memcpy(bytes.data() + total, ready->data(), count);
    take(count);
    total += count;
  }
  return total;
}

Result<std::span<std::byte>> SharedMemoryLink::peek() {
  const std::size_t ready = readable();
  if (ready > kRing) return Error{ExitCode::kPeerLost, "an invalid position in the ring buffer"};
  const std::size_t at = segment_->ends[self_].consumed.load(std::memory_order_relaxed) % kRing;
  return std::span(segment_->rings[1 - self_]).subspan(at, std::min(ready, kRing - at));
}

void SharedMemoryLink::take(std::size_t bytes) {
  auto& consumed = segment_->ends[self_].consumed;
  consumed.store(consumed.load(std::memory_order_relaxed) + bytes, std::memory_order_seq_cst);
}

// Either this end sees what is awaited, or the other end, which announces it before it reads the
// positions, sees the new position: all of these accesses are sequentially consistent.
bool SharedMemoryLink::wakes_peer() {
  auto& awaited = segment_->ends[1 - self_].awaited;
  const std::uint32_t announced = awaited.load(std::memory_order_seq_cst);
  if (announced == kNothing) return false;
  std::uint32_t happened = kNothing;
  const std::uint64_t unread = segment_->ends[self_].written.load(std::memory_order_relaxed) -
                               segment_->ends[1 - self_].consumed.load(std::memory_order_seq_cst);
  if (unread > 0) happened |= kInput;
  if (readable() <= kRing / 2) happened |= kSpace;
  if ((announced & happened) == kNothing) return false;
  // The peer may have announced something else in the meantime. It must learn that this is gone, too.
  return awaited.exchange(kNothing, std::memory_order_seq_cst) != kNothing;
}

bool SharedMemoryLink::sleep_until(std::uint32_t awaited) {
  segment_->ends[self_].awaited.store(awaited, std::memory_order_seq_cst);
  const bool happened = ((awaited & kInput) != 0 && readable() > 0) ||
                        ((awaited & kSpace) != 0 && writable() >= kRing / 2);
  if (happened) wake();
  return !happened;
}

void SharedMemoryLink::wake() {
  segment_->ends[self_].awaited.store(kNothing, std::memory_order_seq_cst);
}

}  // namespace tilewright::collectives
