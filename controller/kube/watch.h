// A watch that is open: its events one by one, and the four ways in which it may end.
#pragma once

#include <cstddef>
#include <memory>
#include <variant>

#include "controller/kube/json_splitter.h"
#include "controller/kube/sender.h"
#include "controller/kube/watch_event.h"

namespace tilewright::kube {

struct WatchBounds {
  // Bookmarks come about every minute where the server sends them. A stream on which nothing comes
  // for longer may be dead without a word from the network; to open it anew costs one request.
  Duration silence = std::chrono::seconds(90);
  Duration total = std::chrono::minutes(6);
  std::size_t max_event_bytes = 8 << 20;
};

// For one thread. Dropping it closes its connection.
class WatchStream {
 public:
  WatchStream(std::unique_ptr<Exchange> exchange, WatchBounds bounds, ApiRequest request,
              Wanted wanted);

  enum class End {
    kOrderly,  // the server's own time was over
    kSilent,   // nothing came for too long, or for longer than the server was told
  };
  // Waits for the next event. Errors: kGone (list again); kTimedOut and kCancelled are the
  // caller's own wait, and the stream goes on; every other is the stream's end: kTransport also for
  // one that stopped without its last chunk, kProtocol for what is no event.
  std::variant<WatchEvent, End, ApiError> next(const net::Wait& wait);

 private:
  ApiError error(Problem problem, std::string message) const;

  const std::unique_ptr<Exchange> exchange_;
  const WatchBounds bounds_;
  const ApiRequest request_;
  const Wanted wanted_;
  const MonotonicTime opened_ = monotonic_now();
  MonotonicTime heard_ = opened_;
  JsonSplitter splitter_;
};

}  // namespace tilewright::kube
