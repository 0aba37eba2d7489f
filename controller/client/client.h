// Client for the Kubernetes API: get, list, watch, create, update, patch and delete JSON
// objects. Every call blocks until it completes or its Wait ends. Every write needs a WriteGuard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "controller/client/api_error.h"
#include "controller/client/config.h"
#include "controller/client/page_size.h"
#include "controller/client/resource.h"
#include "controller/client/response_json.h"
#include "controller/client/sender.h"
#include "controller/client/watch.h"
#include "controller/client/write_guard.h"

namespace tilewright::kube {

using Json = nlohmann::json;

struct Selection {
  std::string namespace_name;  // empty: all
  std::string label_selector;
  std::string field_selector;
  FieldFilter filter = exclude_managed_fields;  // applied to each object
};

struct ListOptions {
  // Objects per page, fewer if they are large (page_size.h); 0: no paging.
  int page_limit = 250;
  std::size_t max_objects = SIZE_MAX;  // no further page is read after this many objects
  std::string resource_version;        // empty: the most recent (quorum read)
};

// Receives the items of a list. begin() is called at the start, and again if the list starts over
// because a continue token expired; the receiver must then drop the earlier items.
struct ListSink {
  std::function<void()> begin;
  std::function<void(Json&&)> item;
};

struct WatchOptions {
  std::string resource_version;
  Duration server_timeout = std::chrono::minutes(5);  // the server ends the stream after this time
  Duration idle_timeout = std::chrono::seconds(90);   // the client ends the stream after this time
  std::size_t max_event_bytes = kMaxPageBytes;
};

enum class PatchType { kMerge, kApply };

// The content of the response that is requested from the API server.
enum class ResponseFormat {
  kObject,
  kMetadata,  // PartialObjectMetadata
};

struct PatchOptions {
  std::string field_manager;  // required for kApply
  bool force = false;         // kApply: takes ownership of fields from other managers
  std::string subresource;
};

struct DeleteOptions {
  std::string uid;               // precondition; kConflict if it differs
  std::string resource_version;  // precondition; kConflict if it differs
  std::optional<std::int64_t> grace_seconds;
  std::string propagation;  // Background, Foreground or Orphan; empty: the default of the kind
};

// Thread-safe. Callers send their requests concurrently.
class Client {
 public:
  static Result<std::unique_ptr<Client>> make(const ClusterConfig& config,
                                              SenderOptions options = {});

  ApiResult<Json> get(const ResourceType& type, const std::string& namespace_name,
                      const std::string& name, const net::Wait& wait);
  // Passes the items of all pages to `sink` and returns the resourceVersion to watch from.
  ApiResult<std::string> list(const ResourceType& type, const Selection& selection,
                              const ListOptions& options, const ListSink& sink,
                              const net::Wait& wait);
  ApiResult<std::vector<Json>> list_all(const ResourceType& type, const Selection& selection,
                                        const net::Wait& wait);
  ApiResult<std::unique_ptr<WatchStream>> watch(const ResourceType& type,
                                                const Selection& selection,
                                                const WatchOptions& options, const net::Wait& wait);

  // With generateName the request is not retried if the first attempt may have been applied.
  ApiResult<Json> create(const WriteGuard& guard, const ResourceType& type,
                         const std::string& namespace_name, const Json& object,
                         const net::Wait& wait, ResponseFormat format = ResponseFormat::kObject);
  // The API server validates and admits the object as for create(), but does not store it.
  ApiResult<Json> dry_run_create(const ResourceType& type, const std::string& namespace_name,
                                 const Json& object, const net::Wait& wait);
  // kConflict if `object` has a metadata.resourceVersion that is out of date.
  ApiResult<Json> update(const WriteGuard& guard, const ResourceType& type, const Json& object,
                         const net::Wait& wait);
  ApiResult<Json> patch(const WriteGuard& guard, const ResourceType& type,
                        const std::string& namespace_name, const std::string& name, PatchType kind,
                        const Json& body, const PatchOptions& options, const net::Wait& wait);
  // Returns the object with its deletionTimestamp, or a Status.
  ApiResult<Json> remove(const WriteGuard& guard, const ResourceType& type,
                         const std::string& namespace_name, const std::string& name,
                         const DeleteOptions& options, const net::Wait& wait);
  const RequestCounter& counter() const { return sender_.counter(); }

 private:
  Client(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
         SenderOptions options);
  ApiResult<Json> send(const ApiRequest& request, const net::Wait& wait);

  Sender sender_;
};

}  // namespace tilewright::kube
