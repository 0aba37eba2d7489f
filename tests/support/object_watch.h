// The objects of a kind in a namespace, as the API server shows them, with a way to wait for what a
// test expects: by events, never by sleeping.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "controller/kube/informer.h"

namespace tilewright::testing {

class ObjectWatch {
 public:
  using Objects = std::map<std::string, nlohmann::json>;  // by name
  // Called from the watch's thread, without a lock, with the object as it now is; null: deleted.
  using Changed = std::function<void(const std::string& name, const nlohmann::json& object)>;

  ObjectWatch(kube::Client& client, const kube::ResourceType& type,
              const std::string& namespace_name, Changed changed = {})
      : changed_(std::move(changed)),
        informer_(
            client, options(type, namespace_name),
            [](const nlohmann::json& object) { return object; },
            {[this](const Item& item) { take(item->name, item->value); },
             [this](const Item&, const Item& item) { take(item->name, item->value); },
             [this](const Item& item, bool) { take(item->name, nullptr); }},
            make_silent_logger()) {
    informer_.start();
  }
  ~ObjectWatch() { informer_.stop(); }

  // False when it did not come to be.
  bool wait_until(const std::function<bool(const Objects&)>& holds,
                  std::chrono::milliseconds patience = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, patience, [&] { return holds(objects_); });
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
  void take(const std::string& name, const nlohmann::json& object) {
    {
      const std::lock_guard lock(mutex_);
      if (object.is_null()) {
        objects_.erase(name);
      } else {
        objects_[name] = object;
      }
    }
    came_.notify_all();
    if (changed_) changed_(name, object);
  }

  const Changed changed_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  Objects objects_;
  kube::Informer<nlohmann::json> informer_;  // last: its thread uses all of the above
};

}  // namespace tilewright::testing
