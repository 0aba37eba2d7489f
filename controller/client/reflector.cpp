#include "controller/client/reflector.h"

#include <utility>

namespace tilewright::kube {

Reflector::Reflector(Client& client, ReflectorOptions options, ReflectorSink& sink,
                     std::shared_ptr<Logger> logger)
    : client_(client),
      options_(std::move(options)),
      sink_(sink),
      logger_(std::move(logger)),
      backoff_(options_.initial_delay, options_.max_delay, options_.jitter) {}

Reflector::~Reflector() { stop(); }

void Reflector::start() {
  thread_ = std::thread([this] { run(); });
}

void Reflector::stop() {
  stop_.signal();
  if (thread_.joinable()) thread_.join();
}

void Reflector::run() {
  while (!stop_.signalled()) {
    if (delay_ > Duration::zero()) {
      if (!net::sleep_until(net::within(delay_, &stop_))) return;
      delay_ = Duration::zero();
    }
    if (!resource_version_.empty() || list()) watch();
  }
}

bool Reflector::list() {
  const ListSink sink{[this] { sink_.list_begin(); },
                      [this](Json&& item) { sink_.list_item(std::move(item)); }};
  ListOptions options;
  options.page_limit = options_.page_limit;
  auto version = client_.list(options_.type, options_.selection, options, sink,
                              net::within(options_.list_deadline, &stop_));
  if (!version) {
    failed(version.error());
    return false;
  }
  resource_version_ = std::move(version).value();
  sink_.list_end();
  return true;
}

void Reflector::watch() {
  WatchOptions options;
  options.resource_version = resource_version_;
  options.server_timeout = options_.watch_timeout + std::chrono::duration_cast<Duration>(
                                                        options_.watch_timeout * options_.jitter());
  options.idle_timeout = options_.idle_timeout;
  auto stream = client_.watch(options_.type, options_.selection, options,
                              net::within(std::chrono::seconds(15), &stop_));
  if (!stream) return failed(stream.error());
  const MonotonicTime began = monotonic_now();
  const auto lasted = [&] { return monotonic_now() - began >= options_.least_watch; };
  while (true) {
    // The stream has its own timeouts, all shorter than this wait.
    auto next = (*stream)->next(net::within(kLongestWait, &stop_));
    if (auto* event = std::get_if<WatchEvent>(&next)) {
      backoff_.reset();
      handle_event(std::move(*event));
    } else if (const auto* error = std::get_if<ApiError>(&next)) {
      // Consecutive expiries are delayed even if the watches last: each needs a list.
      if (lasted() && error->kind != ErrorKind::kGone) backoff_.reset();
      return failed(*error);
    } else {
      // Avoid a tight loop if the server ends every watch immediately.
      if (lasted()) {
        backoff_.reset();
      } else {
        delay_ = options_.initial_delay;
      }
      return;
    }
  }
}

void Reflector::handle_event(WatchEvent&& event) {
  resource_version_ = event.resource_version;
  if (event.type != EventType::kBookmark) sink_.changed(event.type, std::move(event.object));
}

void Reflector::failed(const ApiError& error) {
  if (error.kind == ErrorKind::kCancelled) return;
  // These errors mean that the watch cannot continue from resource_version_.
  const bool relist = error.kind == ErrorKind::kGone || error.kind == ErrorKind::kInvalid ||
                      error.kind == ErrorKind::kProtocol || error.kind == ErrorKind::kTooLarge;
  if (relist) resource_version_.clear();
  logger_->log(error.kind == ErrorKind::kGone ? spdlog::level::info : spdlog::level::warn, "{}",
               error.sentence());
  delay_ = backoff_.after(error);
}

}  // namespace tilewright::kube
