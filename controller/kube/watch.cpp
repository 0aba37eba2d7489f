// From bytes to events, under two clocks.
#include "controller/kube/watch.h"

#include <algorithm>
#include <utility>

namespace tilewright::kube {

WatchStream::WatchStream(std::unique_ptr<Exchange> exchange, WatchBounds bounds, ApiRequest request,
                         Wanted wanted)
    : exchange_(std::move(exchange)),
      bounds_(bounds),
      request_(std::move(request)),
      wanted_(wanted),
      splitter_(bounds.max_event_bytes) {}

ApiError WatchStream::error(Problem problem, std::string message) const {
  ApiError error;
  error.problem = problem;
  error.message = std::move(message);
  error.operation = request_.operation;
  return error;
}

std::variant<WatchEvent, WatchStream::End, ApiError> WatchStream::next(const net::Wait& wait) {
  while (true) {
    if (const auto text = splitter_.next()) {
      auto event = parse_watch_event(*text, wanted_);
      if (event) return std::move(event).value();
      ApiError failed = event.error();
      failed.operation = request_.operation;
      return failed;
    }
    if (splitter_.fault()) {
      return error(Problem::kProtocol, *splitter_.fault() == JsonSplitter::Fault::kTooLong
                                           ? "an event is larger than the most that is taken"
                                           : "found something other than JSON objects");
    }
    const MonotonicTime own = std::min(heard_ + bounds_.silence, opened_ + bounds_.total);
    auto piece = exchange_->read({std::min(own, wait.deadline), wait.cancel});
    if (const auto* bytes = std::get_if<std::string>(&piece)) {
      heard_ = monotonic_now();
      splitter_.feed(*bytes);
    } else if (const auto* failure = std::get_if<HttpFailure>(&piece)) {
      if (failure->kind == HttpFailure::Kind::kTimedOut && own <= wait.deadline) {
        return End::kSilent;
      }
      return error_of_failure(*failure, request_);
    } else if (!splitter_.between_objects()) {
      return error(Problem::kProtocol, "the stream ended within an event");
    } else {
      return End::kOrderly;
    }
  }
}

}  // namespace tilewright::kube
