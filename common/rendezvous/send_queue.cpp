#include "common/rendezvous/send_queue.h"

#include <utility>

#include "common/base/check.h"

namespace tilewright::rendezvous {
namespace {

// A part takes further bytes up to this size. What has been sent of a part is freed only with it.
constexpr std::size_t kPartBytes = 4 << 10;

}  // namespace

void SendQueue::append(std::string_view bytes) {
  if (bytes.empty()) return;
  if (parts_.empty() || parts_.back().shared ||
      parts_.back().own.size() + bytes.size() > kPartBytes)
    parts_.emplace_back();
  parts_.back().own += bytes;
}

void SendQueue::append(SharedText text) {
  if (!text->empty()) parts_.push_back({{}, std::move(text)});
}

std::string_view SendQueue::front() const {
  return std::string_view(parts_.front().text()).substr(sent_);
}

void SendQueue::remove(std::size_t bytes) {
  TW_CHECK(bytes <= front().size(), "{} of {} bytes", bytes, front().size());
  sent_ += bytes;
  if (!front().empty()) return;
  parts_.pop_front();
  sent_ = 0;
}

void SendQueue::clear() {
  parts_.clear();
  sent_ = 0;
}

std::size_t SendQueue::size() const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.text().size();
  return bytes - sent_;
}

std::size_t SendQueue::memory() const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) {
    if (!part.shared) bytes += sizeof(Part) + part.own.capacity();
  }
  return bytes;
}

std::size_t SendQueue::shared_bytes() const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) {
    if (part.shared) bytes += part.shared->size();
  }
  return bytes;
}

}  // namespace tilewright::rendezvous
