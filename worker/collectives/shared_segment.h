// Memory that processes of one host and user have mapped. One process makes it and offers it in a
// text, others open it. No other user can open it, and nothing is left in a file system.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/file_descriptor.h"
#include "common/base/result.h"

namespace tilewright::collectives {

class SharedSegment {
 public:
  enum class Pages {
    kNow,       // all pages are allocated by create(), so that no access fails later
    kOnAccess,  // as for other memory of a process
  };

  // Makes zeroed memory of a size that no process can change. An Error (kUnsupported) says what the
  // system refused.
  static Result<SharedSegment> create(std::size_t bytes, Pages pages);
  // For open() of a process of the same user that sees this one in /proc: the process, its
  // descriptor of the memory, and a random name that must match.
  std::string offer() const;
  // Opens the memory of an offer. An Error (kUnsupported): the offer is from another host or
  // container, its memory has another size, or /proc does not give access to it. Opens nothing but
  // such memory.
  static Result<SharedSegment> open(std::string_view offer, std::size_t bytes);
  // Closes the descriptor: no other process can open the memory any more.
  void close_offer() { memory_.reset(); }

  SharedSegment() = default;  // no memory
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  SharedSegment(FileDescriptor memory, std::string name)
      : memory_(std::move(memory)), name_(std::move(name)) {}
  Result<SharedSegment> mapped(std::size_t bytes) &&;

  FileDescriptor memory_;
  std::string name_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tilewright::collectives
