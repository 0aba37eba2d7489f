// Informer: a cache of all objects of a kind, reduced by a projection, with handlers that are
// called for every change, in the order of the changes.
//
// Nothing that one object holds may stop the cache: if the projection throws, the object is cached
// with an empty value.
#pragma once

#include <poll.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/json/members.h"
#include "controller/client/reflector.h"

namespace tilewright::kube {

// A cached object: its identity and the result of the projection.
template <typename T>
struct Cached {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string resource_version;
  T value;
};

// Called from the informer's thread without a lock. Handlers may read the cache; it contains the
// reported change or a newer state.
template <typename T>
struct InformerHandlers {
  using Item = std::shared_ptr<const Cached<T>>;
  std::function<void(const Item&)> added;
  std::function<void(const Item& before, const Item& now)> updated;
  // With final_state_unknown the watch missed the deletion: `last` is the last observed state, and
  // the name may now belong to an object with another UID.
  std::function<void(const Item& last, bool final_state_unknown)> deleted;
};

template <typename T>
class Informer : private ReflectorSink {
 public:
  using Item = std::shared_ptr<const Cached<T>>;
  using Projection = std::function<T(const nlohmann::json& object)>;

  Informer(Client& client, ReflectorOptions options, Projection project,
           InformerHandlers<T> handlers, std::shared_ptr<Logger> logger)
      : project_(std::move(project)),
        handlers_(std::move(handlers)),
        logger_(logger),
        reflector_(client, std::move(options), *this, std::move(logger)) {}
  // Stop the informer before anything that its handlers use is destroyed.
  ~Informer() override { stop(); }

  void start() { reflector_.start(); }
  void stop() { reflector_.stop(); }

  // True once the first list is in the cache and its handlers have been called.
  bool synced() const { return synced_.signalled(); }
  // False if the wait ended first.
  bool wait_synced(const net::Wait& wait) const {
    return net::wait_ready(synced_.fd(), POLLIN, wait) == net::Ready::kYes;
  }

  // nullptr if the object is not in the cache.
  Item get(const std::string& namespace_name, const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = items_.find({namespace_name, name});
    return found == items_.end() ? nullptr : found->second;
  }
  // Sorted by namespace, then name.
  std::vector<Item> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<Item> items;
    items.reserve(items_.size());
    for (const auto& [key, item] : items_) items.push_back(item);
    return items;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  using Key = std::pair<std::string, std::string>;

  Item project(const nlohmann::json& object) const {
    const nlohmann::json& metadata = member(object, "metadata");
    return std::make_shared<const Cached<T>>(
        Cached<T>{string_member(metadata, "namespace"), string_member(metadata, "name"),
                  string_member(metadata, "uid"), string_member(metadata, "resourceVersion"),
                  project_value(object)});
  }
  T project_value(const nlohmann::json& object) const {
    try {
      return project_(object);
    } catch (const std::exception& error) {
      logger_->error("{}/{}: the object cannot be read: {}", metadata_string(object, "namespace"),
                     metadata_string(object, "name"), error.what());
      return T();
    }
  }
  static Key key_of(const Item& item) { return {item->namespace_name, item->name}; }

  void list_begin() override { listed_.clear(); }
  void list_item(nlohmann::json&& object) override {
    Item item = project(object);
    // Keep the cached object if it has not changed.
    const Item known = get(item->namespace_name, item->name);
    if (known && known->uid == item->uid && known->resource_version == item->resource_version) {
      item = known;
    }
    listed_.insert_or_assign(key_of(item), std::move(item));
  }
  void list_end() override {
    std::map<Key, Item> before;
    {
      const std::lock_guard lock(mutex_);
      before = std::exchange(items_, listed_);
    }
    for (const auto& [key, old] : before) {
      const auto now = listed_.find(key);
      if (now == listed_.end() || now->second->uid != old->uid) notify_deleted(old, true);
    }
    for (const auto& [key, item] : listed_) {
      const auto old = before.find(key);
      const bool known = old != before.end() && old->second->uid == item->uid;
      if (!known) {
        if (handlers_.added) handlers_.added(item);
      } else if (old->second != item) {
        if (handlers_.updated) handlers_.updated(old->second, item);
      }
    }
    listed_.clear();
    synced_.signal();
  }
  void changed(EventType type, nlohmann::json&& object) override {
    const Item item = project(object);
    Item old;
    {
      const std::lock_guard lock(mutex_);
      const auto found = items_.find(key_of(item));
      if (found != items_.end()) old = found->second;
      if (type == EventType::kDeleted) {
        if (found != items_.end()) items_.erase(found);
      } else {
        items_.insert_or_assign(key_of(item), item);
      }
    }
    if (type == EventType::kDeleted) return notify_deleted(item, false);
    if (old && old->uid != item->uid) {
      notify_deleted(old, true);
      old = nullptr;
    }
    if (!old) {
      if (handlers_.added) handlers_.added(item);
    } else if (handlers_.updated) {
      handlers_.updated(old, item);
    }
  }
  void notify_deleted(const Item& last, bool final_state_unknown) {
    if (handlers_.deleted) handlers_.deleted(last, final_state_unknown);
  }

  const Projection project_;
  const InformerHandlers<T> handlers_;
  const std::shared_ptr<Logger> logger_;
  mutable std::mutex mutex_;
  std::map<Key, Item> items_;
  std::map<Key, Item> listed_;  // items of the list in progress; for the reflector's thread only
  net::WakeUp synced_;
  Reflector reflector_;  // last member: its thread uses the others
};

}  // namespace tilewright::kube
