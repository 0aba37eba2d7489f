// Keeps somebody told of all objects of a kind: a list, then its watch, for ever, in a thread of
// its own. The informer is what stands on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "common/base/log.h"
#include "controller/kube/client.h"
#include "controller/kube/retry.h"

namespace tilewright::kube {

struct ReflectorOptions {
  ResourceType type;
  Selection selection;
  int page_limit = 250;
  Duration list_deadline = std::chrono::minutes(1);
  // A watch lasts between one and two of these, so that watches of many clients do not end at once.
  Duration watch_timeout = std::chrono::minutes(5);
  Duration silence = std::chrono::seconds(90);
  Duration first_delay = std::chrono::milliseconds(200);  // after a failure; doubles
  Duration most_delay = std::chrono::seconds(30);
  Jitter jitter = random_jitter();
};

// Called from the reflector's thread, one at a time.
class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // A list: begin (again, if it had to start over), its items, end. What is not in it is gone.
  virtual void list_begin() = 0;
  virtual void list_item(nlohmann::json&& object) = 0;
  virtual void list_end() = 0;
  // Never a bookmark.
  virtual void changed(EventType type, nlohmann::json&& object) = 0;
};

class Reflector {
 public:
  // `client` and `sink` must outlive it.
  Reflector(Client& client, ReflectorOptions options, ReflectorSink& sink,
            std::shared_ptr<Logger> logger);
  ~Reflector();
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  void start();
  // Ends the request under way and joins the thread. May be called twice.
  void stop();

  struct Figures {
    std::uint64_t lists = 0;     // begun
    std::uint64_t watches = 0;   // begun
    std::uint64_t failures = 0;  // of either
  };
  Figures figures() const { return {lists_, watches_, failures_}; }

 private:
  void run();
  bool list();
  void watch();
  void take(WatchEvent&& event);
  void failed(const ApiError& error);

  Client& client_;
  const ReflectorOptions options_;
  ReflectorSink& sink_;
  const std::shared_ptr<Logger> logger_;
  net::WakeUp stop_;
  std::thread thread_;
  // Of the thread only.
  std::string resource_version_;  // empty: a list is needed
  ReflectorBackoff backoff_;
  Duration delay_{};  // before the next request

  std::atomic<std::uint64_t> lists_{0}, watches_{0}, failures_{0};
};

}  // namespace tilewright::kube
