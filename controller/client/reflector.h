// Reflector: lists all objects of a kind and then watches them, until stopped, in its own thread.
// Informer is built on it.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "common/base/log.h"
#include "controller/client/client.h"
#include "controller/client/retry.h"

namespace tilewright::kube {

struct ReflectorOptions {
  ResourceType type;
  Selection selection;
  int page_limit = 250;
  Duration list_deadline = std::chrono::minutes(1);
  // A watch lasts 1 to 2 times this, so that the watches of many clients do not end together.
  Duration watch_timeout = std::chrono::minutes(5);
  Duration idle_timeout = std::chrono::seconds(90);
  Duration initial_delay = std::chrono::milliseconds(200);  // after a failure; doubles
  Duration max_delay = std::chrono::seconds(30);
  // A watch that lasts as long shows that the server works: the next failure is a first one.
  Duration least_watch = std::chrono::seconds(1);
  Jitter jitter = random_jitter();
};

// Called from the reflector's thread, one at a time.
class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // A list: list_begin (again if the list starts over), its items, list_end. Objects that are not
  // in the list no longer exist.
  virtual void list_begin() = 0;
  virtual void list_item(nlohmann::json&& object) = 0;
  virtual void list_end() = 0;
  // Not called for bookmarks.
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
  // Cancels the request in flight and joins the thread. May be called twice.
  void stop();

 private:
  void run();
  bool list();
  void watch();
  void handle_event(WatchEvent&& event);
  void failed(const ApiError& error);

  Client& client_;
  const ReflectorOptions options_;
  ReflectorSink& sink_;
  const std::shared_ptr<Logger> logger_;
  net::WakeUp stop_;
  std::thread thread_;
  // Used by the thread only.
  std::string resource_version_;  // empty: list again
  ReflectorBackoff backoff_;
  Duration delay_{};  // before the next request
};

}  // namespace tilewright::kube
