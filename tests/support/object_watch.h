// Watches the objects of a kind in a namespace and waits for an expected state without polling.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "controller/client/informer.h"
#include "tests/support/silent_logger.h"

namespace tilewright::testing {

class ObjectWatch {
 public:
  using Objects = std::map<std::string, nlohmann::json>;  // by name
  // Called from the watch thread, without a lock, with the current object; null if it was deleted.
  using ChangeCallback = std::function<void(const std::string& name, const nlohmann::json& object)>;

  ObjectWatch(kube::Client& client, const kube::ResourceType& type,
              const std::string& namespace_name, ChangeCallback on_change = {})
      : on_change_(std::move(on_change)),
        informer_(
            client, options(type, namespace_name),
            [](const nlohmann::json& object) { return object; },
            {[this](const Item& item) { update(item->name, item->value); },
             [this](const Item&, const Item& item) { update(item->name, item->value); },
             [this](const Item& item, bool) { update(item->name, nullptr); }},
            make_silent_logger()) {
    informer_.start();
  }
  ~ObjectWatch() { informer_.stop(); }

  // Returns false on timeout.
  bool wait_until(const std::function<bool(const Objects&)>& holds,
                  std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    return updated_.wait_for(lock, timeout, [&] { return holds(objects_); });
  }
  Objects objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }

 private:
  using Item = kube::Informer<nlohmann::json>::Item;
  static kube::ReflectorOptions options(const kube::ResourceType& type,
                                        const std::string& namespace_name) {
    kube::ReflectorOptions made;
    made.type = type;
    made.selection.namespace_name = namespace_name;
    return made;
  }
  void update(const std::string& name, const nlohmann::json& object) {
    {
      const std::lock_guard lock(mutex_);
      if (object.is_null()) {
        objects_.erase(name);
      } else {
        objects_[name] = object;
      }
    }
    updated_.notify_all();
    if (on_change_) on_change_(name, object);
  }

  const ChangeCallback on_change_;
  mutable std::mutex mutex_;
  std::condition_variable updated_;
  Objects objects_;
  kube::Informer<nlohmann::json> informer_;  // last: its thread uses all of the above
};

}  // namespace tilewright::testing
