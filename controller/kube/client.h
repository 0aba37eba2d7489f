// The API server's verbs on JSON objects. Every call blocks, until its Wait ends at the latest, and
// every write needs a WriteGuard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/answer_json.h"
#include "controller/kube/api_error.h"
#include "controller/kube/config.h"
#include "controller/kube/resource.h"
#include "controller/kube/sender.h"
#include "controller/kube/watch.h"
#include "controller/kube/write_guard.h"

namespace tilewright::kube {

using Json = nlohmann::json;

struct Selection {
  std::string namespace_name;  // empty: all
  std::string label_selector;
  std::string field_selector;
  Wanted wanted = all_but_managers;  // of each object
};

struct ListOptions {
  // Objects a page, which bounds the memory of an answer; 0: all at once.
  int page_limit = 250;
  std::string resource_version;  // empty: the newest state, by quorum
};

// Takes a list as it comes. begin() may come again: after a page whose continue token had expired
// the list starts over, and what came before is void.
struct ListSink {
  std::function<void()> begin;
  std::function<void(Json&&)> item;
};

struct WatchOptions {
  std::string resource_version;
  Duration server_timeout = std::chrono::minutes(5);  // the server ends the stream after it
  Duration silence = std::chrono::seconds(90);        // the stream is given up after it
  std::size_t max_event_bytes = 8 << 20;
};

enum class PatchType { kMerge, kJson, kApply };

// What the API server is asked to answer.
enum class Answer {
  kObject,
  kMetadata,  // a PartialObjectMetadata, where that is all a caller looks at
};

struct PatchOptions {
  std::string field_manager;  // needed by kApply
  bool force = false;         // kApply: takes fields over from other managers
  std::string subresource;
};

struct DeleteOptions {
  std::string uid;               // refused with kConflict if the object has another one
  std::string resource_version;  // the same
  std::optional<std::int64_t> grace_seconds;
  std::string propagation;  // Background, Foreground, Orphan; empty: the kind's default
};

// Thread-safe: as many requests at once as there are callers.
class Client {
 public:
  static Result<std::unique_ptr<Client>> make(const ClusterConfig& config,
                                              SenderOptions options = {});

  ApiResult<Json> get(const ResourceType& type, const std::string& namespace_name,
                      const std::string& name, const net::Wait& wait);
  // All pages, to `sink`; returns the resourceVersion to watch from.
  ApiResult<std::string> list(const ResourceType& type, const Selection& selection,
                              const ListOptions& options, const ListSink& sink,
                              const net::Wait& wait);
  ApiResult<std::vector<Json>> list_all(const ResourceType& type, const Selection& selection,
                                        const net::Wait& wait);
  ApiResult<std::unique_ptr<WatchStream>> watch(const ResourceType& type,
                                                const Selection& selection,
                                                const WatchOptions& options, const net::Wait& wait);
  // Any other path: /version, /readyz?verbose (as text).
  ApiResult<std::string> get_text(const std::string& target, const net::Wait& wait);

  // With a generateName instead of a name it is not repeated where the first may have been done.
  ApiResult<Json> create(const WriteGuard& guard, const ResourceType& type,
                         const std::string& namespace_name, const Json& object,
                         const net::Wait& wait, Answer answer = Answer::kObject);
  // The API server does all it would do for create(), admission included, and stores nothing.
  ApiResult<Json> try_create(const ResourceType& type, const std::string& namespace_name,
                             const Json& object, const net::Wait& wait);
  // With metadata.resourceVersion: kConflict if the object has changed since.
  ApiResult<Json> update(const WriteGuard& guard, const ResourceType& type, const Json& object,
                         const net::Wait& wait);
  ApiResult<Json> update_status(const WriteGuard& guard, const ResourceType& type,
                                const Json& object, const net::Wait& wait);
  ApiResult<Json> patch(const WriteGuard& guard, const ResourceType& type,
                        const std::string& namespace_name, const std::string& name, PatchType kind,
                        const Json& body, const PatchOptions& options, const net::Wait& wait);
  // The object as it now is (with a deletionTimestamp), or a Status.
  ApiResult<Json> remove(const WriteGuard& guard, const ResourceType& type,
                         const std::string& namespace_name, const std::string& name,
                         const DeleteOptions& options, const net::Wait& wait);
  // kTooManyRequests: a disruption budget says no for now.
  ApiResult<Json> evict(const WriteGuard& guard, const std::string& namespace_name,
                        const std::string& pod, const DeleteOptions& options,
                        const net::Wait& wait);

  const RequestCounter& counter() const { return sender_.counter(); }

 private:
  Client(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
         SenderOptions options);
  ApiResult<Json> put(const WriteGuard& guard, const ResourceType& type, const Json& object,
                      const std::string& subresource, const net::Wait& wait);
  ApiResult<Json> send(const ApiRequest& request, const net::Wait& wait);
  // The elements of the answer's "items" go to `item` and not into the result.
  ApiResult<Json> send_list(const ApiRequest& request, Wanted wanted,
                            const std::function<void(Json&&)>& item, const net::Wait& wait);

  Sender sender_;
};

}  // namespace tilewright::kube
