#include "common/tcpstore/connection.h"

#include <sys/epoll.h>

#include <array>
#include <span>

namespace tilewright::tcpstore {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
// An empty queue keeps this much memory.
constexpr std::size_t kKeptOutputBytes = 4 << 10;

}  // namespace

Status Connection::read() {
  std::array<std::byte, kReadBytes> buffer;
  const Result<std::size_t> got = socket_.try_read(buffer);
  if (!got.ok()) return got.error();
  reader_.append({reinterpret_cast<const char*>(buffer.data()), *got});
  return {};
}

Result<std::optional<Request>> Connection::next() {
  if (!reads_replies()) return std::optional<Request>();
  return reader_.next();
}

Status Connection::write() {
  std::size_t sent_bytes = 0;
  while (sent_bytes < output_.size()) {
    const Result<std::size_t> sent =
        socket_.try_write(std::as_bytes(std::span(output_).subspan(sent_bytes)));
    if (!sent.ok()) return sent.error();
    if (*sent == 0) break;
    sent_bytes += *sent;
  }
  output_.erase(0, sent_bytes);
  if (output_.empty() && output_.capacity() > kKeptOutputBytes) output_.shrink_to_fit();
  return {};
}

std::uint32_t Connection::events(bool reading) const {
  std::uint32_t events = EPOLLRDHUP;
  if (reading && reads_replies()) events |= EPOLLIN;
  if (!output_.empty()) events |= EPOLLOUT;
  return events;
}

}  // namespace tilewright::tcpstore
