#include "worker/collectives/background_copy.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "worker/collectives/frame_exchange.h"
#include "worker/collectives/spin.h"

namespace tilewright::collectives {
BackgroundCopy::BackgroundCopy(Mesh& mesh, std::vector<int> senders, std::vector<int> receivers,
                               std::vector<std::span<std::byte>> vectors, Duration timeout,
                               std::size_t piece_bytes)
    : mesh_(mesh),
      senders_(std::move(senders)),
      receivers_(std::move(receivers)),
      timeout_(timeout),
      operation_(mesh.next_operation()),
      vectors_(vectors.size()) {
  TW_CHECK(!vectors.empty(), "no vectors");
  const std::size_t size = vectors.front().size();
  for (std::size_t at = 0; at < size; at += piece_bytes) {
    for (const std::span<std::byte> vector : vectors) {
      TW_CHECK(vector.size() == size, "vectors of {} and {} bytes", size, vector.size());
      pieces_.push_back(vector.subspan(at, std::min(piece_bytes, size - at)));
    }
  }
  bytes_ = static_cast<std::int64_t>(vectors_ * size);
  const auto sender = std::ranges::find(senders_, mesh.rank());
  const bool receives = std::ranges::find(receivers_, mesh.rank()) != receivers_.end();
  TW_CHECK(!senders_.empty() && !(receives && sender != senders_.end()),
           "{} senders, and rank {} both sends and receives", senders_.size(), mesh.rank());
  if (receives) {
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      Source& source = sources_.emplace_back();
      source.rank = senders_[i];
      source.next = i * vectors_;
    }
  } else if (sender != senders_.end() && !receivers_.empty()) {
    next_ = static_cast<std::size_t>(sender - senders_.begin()) * vectors_;
    try {
      thread_ = std::thread([this] { send_pieces(); });
    } catch (const std::system_error& error) {
      throw Failure(ExitCode::kMemory,
                    fmt::format("cannot start a thread that sends: {}", error.code().message()));
    }
  }
}

BackgroundCopy::~BackgroundCopy() {
  if (!thread_.joinable()) return;
  bool in_transit = false;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    in_transit = in_transit_;
  }
  if (in_transit) mesh_.abort("a transfer ended before it was complete");
  changed_.notify_all();
  thread_.join();
}

void BackgroundCopy::open_window(double share) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    open_ = true;
    end_ = static_cast<std::size_t>(std::ceil(share * static_cast<double>(pieces_.size())));
  }
  changed_.notify_all();
}

void BackgroundCopy::wait_until_sent(std::optional<MonotonicTime> limit) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  const auto is_sent = [this] { return failure_ || (!is_sending() && !in_transit_); };
  if (limit) {
    changed_.wait_until(lock, *limit, is_sent);
  } else {
    changed_.wait(lock, is_sent);  // a piece has a deadline
  }
}

void BackgroundCopy::close_window(Duration timeout) {
  if (!sources_.empty()) return receive_window(timeout);
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    open_ = false;
    changed_.wait(lock, [this] { return failure_ || !in_transit_; });  // a piece has a deadline
    if (failure_) throw Failure(*failure_);
  }
  send_frames(FrameKind::kPause, {}, next_);
}

bool BackgroundCopy::complete() const {
  const auto is_complete = [this](const Source& source) { return source.next >= pieces_.size(); };
  if (!sources_.empty()) return std::ranges::all_of(sources_, is_complete);
  if (!thread_.joinable()) return true;
  const std::lock_guard lock(mutex_);
  return next_ >= pieces_.size();
}

std::size_t BackgroundCopy::after(std::size_t piece) const {
  const bool ends_range = piece % vectors_ + 1 == vectors_;
  return piece + 1 + (ends_range ? (senders_.size() - 1) * vectors_ : 0);
}

void BackgroundCopy::send_pieces() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || is_sending(); });
    if (stop_) return;
    in_transit_ = true;
    lock.unlock();
    std::optional<Error> failure;
    std::size_t piece = next_;
    try {
      for (std::size_t i = 0; i < vectors_; ++i, piece = after(piece)) {
        send_frames(FrameKind::kPiece, pieces_[piece], piece);
      }
    } catch (const Failure& caught) {
      failure = caught.error();
    } catch (const std::exception& problem) {
      failure = Error{ExitCode::kInternal, fmt::format("background copy: {}", problem.what())};
    }
    lock.lock();
    in_transit_ = false;
    failure_ = failure;
    next_ = piece;
    changed_.notify_all();
    if (failure) return;
  }
}

void BackgroundCopy::send_frames(FrameKind kind, std::span<const std::byte> bytes,
                                 std::size_t piece) {
  FrameExchange exchange(mesh_, kind, operation_, monotonic_now() + timeout_);
  for (const int receiver : receivers_) exchange.send(receiver, bytes, piece);
  exchange.run();
}

void BackgroundCopy::receive_window(Duration timeout) {
  for (Source& source : sources_) source.paused = false;
  MonotonicTime deadline = monotonic_now() + timeout;
  MonotonicTime spin_end = monotonic_now() + kSpinTime;
  for (;;) {
    mesh_.throw_if_aborted();
    bool moved = false;
    for (Source& source : sources_) {
      while (!source.paused && advance(source)) moved = true;
    }
    if (std::ranges::all_of(sources_, &Source::paused)) return;
    const MonotonicTime now = monotonic_now();
    if (moved) {
      deadline = now + timeout;
      spin_end = now + kSpinTime;
    } else if (now >= deadline) {
      const auto source = std::ranges::find(sources_, false, &Source::paused);
      throw mesh_.lost(source->rank, "has sent nothing by the deadline");
    } else if (now < spin_end) {
      sched_yield();
    } else {
      wait_for_data(deadline);
    }
  }
}

// Reads as much as possible without blocking; true if it made progress.
bool BackgroundCopy::advance(Source& source) {
  std::span<std::byte> payload;
  if (source.received >= sizeof(FrameHeader) && open_frame(source, payload)) return true;
  const bool in_header = source.received < sizeof(FrameHeader);
  const std::span<std::byte> buffer =
      in_header ? std::as_writable_bytes(std::span(&source.header, 1)).subspan(source.received)
                : payload.subspan(source.received - sizeof(FrameHeader));
  const auto received = mesh_.transport().try_read(source.rank, buffer);
  if (!received.ok()) throw mesh_.lost(source.rank, "is lost: " + received.error().message);
  source.received += *received;
  return *received > 0;
}

bool BackgroundCopy::open_frame(Source& source, std::span<std::byte>& payload) {
  const FrameHeader& header = source.header;
  const std::size_t received = source.received - sizeof(FrameHeader);
  const bool pause = header.kind == FrameKind::kPause;
  if (received == 0) {
    mesh_.check(source.rank, header, operation_);
    if (!pause && header.kind != FrameKind::kPiece) {
      throw mesh_.lost(source.rank,
                       fmt::format("sent a frame ({}) in a background copy", name_of(header.kind)));
    }
    const std::size_t expected =
        pause || source.next >= pieces_.size() ? 0 : pieces_[source.next].size();
    if (header.chunk != source.next || header.bytes != expected ||
        (!pause && source.next >= pieces_.size())) {
      throw mesh_.lost(source.rank, fmt::format("sent {} bytes in {} {}, expected {} in {} of {}",
                                                header.bytes, name_of(header.kind), header.chunk,
                                                expected, source.next, pieces_.size()));
    }
  }
  if (!pause) payload = pieces_[source.next];
  if (received < payload.size()) return false;
  mesh_.check_payload(source.rank, header, payload);
  source.received = 0;
  if (pause) {
    source.paused = true;
  } else {
    source.next = after(source.next);
  }
  return true;
}

void BackgroundCopy::wait_for_data(MonotonicTime deadline) {
  std::vector<pollfd> fds{{mesh_.cancel_token().fd(), POLLIN, 0}};
  for (const Source& source : sources_) {
    if (!source.paused) mesh_.transport().watch(source.rank, POLLIN, fds);
  }
  mesh_.transport().wait(fds, deadline);
}

}  // namespace tilewright::collectives
