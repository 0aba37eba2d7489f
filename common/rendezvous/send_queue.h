// What a connection has yet to send: bytes of its own, and texts that it shares with other
// connections. Private to this module.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>

namespace tilewright::rendezvous {

using SharedText = std::shared_ptr<const std::string>;

class SendQueue {
 public:
  void append(std::string_view bytes);
  void append(SharedText text);

  bool empty() const { return parts_.empty(); }
  // The next bytes to send; the queue is not empty.
  std::string_view front() const;
  // Removes the first `bytes` of front(), which have been sent.
  void remove(std::size_t bytes);
  void clear();

  // In bytes.
  std::size_t size() const;          // yet to send
  std::size_t memory() const;        // of its own parts, which are freed as they are sent
  std::size_t shared_bytes() const;  // of the shared texts, which others may hold too

 private:
  struct Part {
    std::string own;
    SharedText shared;  // nullptr: the part is `own`
    const std::string& text() const { return shared ? *shared : own; }
  };
  // An empty list uses no memory: most connections have nothing to send.
  std::list<Part> parts_;
  std::size_t sent_ = 0;  // of the first part
};

}  // namespace tilewright::rendezvous
