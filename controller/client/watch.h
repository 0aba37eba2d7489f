// An open watch: returns its events one by one and reports how it ended.
#pragma once

#include <cstddef>
#include <memory>
#include <variant>

#include "controller/client/json_splitter.h"
#include "controller/client/page_size.h"
#include "controller/client/sender.h"
#include "controller/client/watch_event.h"

namespace tilewright::kube {

struct WatchLimits {
  // The server sends a bookmark about every minute. A stream that is silent for longer may be on a
  // dead connection; opening a new one costs one request.
  Duration idle_timeout = std::chrono::seconds(90);
  Duration total = std::chrono::minutes(6);
  std::size_t max_event_bytes = kMaxPageBytes;
};

// Not thread-safe. The destructor closes the connection.
class WatchStream {
 public:
  WatchStream(std::unique_ptr<Exchange> exchange, WatchLimits limits, ApiRequest request,
              FieldFilter filter, Clock& clock);

  enum class End {
    kServerClosed,  // the server's timeout expired
    kIdle,          // idle_timeout or total expired
  };
  // Waits for the next event. After kTimedOut and kCancelled, which refer to `wait`, the stream is
  // still usable. All other errors end it: kGone (list again), kTransport (also a stream that ended
  // without its last chunk), kProtocol (not an event), kTooLarge (list again).
  std::variant<WatchEvent, End, ApiError> next(const net::Wait& wait);

 private:
  ApiError error(ErrorKind kind, std::string message) const;

  const std::unique_ptr<Exchange> exchange_;
  const WatchLimits limits_;
  const ApiRequest request_;
  const FieldFilter filter_;
  Clock& clock_;
  const MonotonicTime opened_ = clock_.now();
  MonotonicTime last_received_ = opened_;
  JsonSplitter splitter_;
};

}  // namespace tilewright::kube
