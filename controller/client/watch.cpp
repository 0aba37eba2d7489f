#include "controller/client/watch.h"

#include <algorithm>
#include <utility>

namespace tilewright::kube {

WatchStream::WatchStream(std::unique_ptr<Exchange> exchange, WatchLimits limits, ApiRequest request,
                         FieldFilter filter, Clock& clock)
    : exchange_(std::move(exchange)),
      limits_(limits),
      request_(std::move(request)),
      filter_(filter),
      clock_(clock),
      splitter_(limits.max_event_bytes) {}

ApiError WatchStream::error(ErrorKind kind, std::string message) const {
  ApiError error;
  error.kind = kind;
  error.message = std::move(message);
  error.operation = request_.operation;
  return error;
}

std::variant<WatchEvent, WatchStream::End, ApiError> WatchStream::next(const net::Wait& wait) {
  while (true) {
    if (const auto text = splitter_.next()) {
      auto event = parse_watch_event(*text, filter_);
      if (event) return std::move(event).value();
      ApiError failed = event.error();
      failed.operation = request_.operation;
      return failed;
    }
    if (splitter_.fault()) {
      return *splitter_.fault() == JsonSplitter::Fault::kTooLong
                 ? error(ErrorKind::kTooLarge, "an event exceeds the size limit")
                 : error(ErrorKind::kProtocol, "found data that is not a JSON object");
    }
    const MonotonicTime own_deadline =
        std::min(last_received_ + limits_.idle_timeout, opened_ + limits_.total);
    auto piece = exchange_->read({std::min(own_deadline, wait.deadline), wait.cancel});
    if (const auto* bytes = std::get_if<std::string>(&piece)) {
      last_received_ = clock_.now();
      splitter_.feed(*bytes);
    } else if (const auto* failure = std::get_if<HttpFailure>(&piece)) {
      if (failure->kind == HttpFailure::Kind::kTimedOut && own_deadline <= wait.deadline) {
        return End::kIdle;
      }
      return error_from_http_failure(*failure, request_);
    } else if (!splitter_.between_objects()) {
      return error(ErrorKind::kProtocol, "the stream ended in the middle of an event");
    } else {
      return End::kServerClosed;
    }
  }
}

}  // namespace tilewright::kube
