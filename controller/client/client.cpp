// Builds the request of each verb and checks that the response is a JSON object.
#include "controller/client/client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/json/members.h"

namespace tilewright::kube {
namespace {

constexpr const char* kMetadataOnly =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

void set_body(ApiRequest& request, const Json& body, const char* type = "application/json") {
  // dump() throws on invalid UTF-8 (for example from a log line): replace it with U+FFFD.
  request.http.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  request.http.headers.emplace_back("Content-Type", type);
}

Json delete_options_body(const DeleteOptions& options) {
  Json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  if (!options.propagation.empty()) body["propagationPolicy"] = options.propagation;
  return body;
}

ApiResult<Json> as_object(Json&& tree, const ApiRequest& request) {
  if (tree.is_object()) return std::move(tree);
  ApiError error;
  error.kind = ErrorKind::kProtocol;
  error.message = "the response is not a JSON object";
  error.operation = request.operation;
  error.maybe_applied = request.guard != nullptr;
  return error;
}

ApiRequest make_request(const char* method, const char* verb, const ResourceType& type,
                        const std::string& namespace_name, const std::string& name,
                        const std::string& subresource, const Query& query) {
  ApiRequest request;
  request.verb = verb;
  request.resource = subresource.empty() ? type.plural : type.plural + "/" + subresource;
  request.operation = std::string(verb) + " " + describe_resource(type, namespace_name, name) +
                      (subresource.empty() ? "" : "/" + subresource);
  request.http.method = method;
  request.http.target = path_of(type, namespace_name, name, subresource) + query_string(query);
  return request;
}

Query selector_query(const Selection& selection) {
  Query query;
  if (!selection.label_selector.empty()) {
    query.emplace_back("labelSelector", selection.label_selector);
  }
  if (!selection.field_selector.empty()) {
    query.emplace_back("fieldSelector", selection.field_selector);
  }
  return query;
}

}  // namespace

Result<std::unique_ptr<Client>> Client::make(const ClusterConfig& config, SenderOptions options) {
  auto transport = Transport::make(config, *options.clock);
  if (!transport) return transport.error();
  return std::unique_ptr<Client>(
      new Client(std::move(transport).value(), config.credentials, std::move(options)));
}

Client::Client(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
               SenderOptions options)
    : sender_(std::move(transport), std::move(credentials), std::move(options)) {}

ApiResult<Json> Client::send(const ApiRequest& request, const net::Wait& wait) {
  const auto body = sender_.send(request, wait);
  if (!body) return body.error();
  return as_object(parse_object(*body), request);
}

ApiResult<Json> Client::get(const ResourceType& type, const std::string& namespace_name,
                            const std::string& name, const net::Wait& wait) {
  return send(make_request("GET", "get", type, namespace_name, name, "", {}), wait);
}

ApiResult<std::string> Client::list(const ResourceType& type, const Selection& selection,
                                    const ListOptions& options, const ListSink& sink,
                                    const net::Wait& wait) {
  PageSize size(options.page_limit);
  int expiries = 0;
  std::size_t objects = 0;
  const auto count_item = [&](Json&& item) {
    ++objects;
    sink.item(std::move(item));
  };
  std::string token;
  if (sink.begin) sink.begin();
  while (true) {
    Query query = selector_query(selection);
    if (size.limit() > 0) query.emplace_back("limit", std::to_string(size.limit()));
    if (!token.empty()) {
      query.emplace_back("continue", token);
    } else if (!options.resource_version.empty()) {
      query.emplace_back("resourceVersion", options.resource_version);
    }
    ApiRequest request = make_request("GET", "list", type, selection.namespace_name, "", "", query);
    if (size.limit() > 0) request.http.max_response_bytes = kMaxPageBytes;
    const auto body = sender_.send(request, wait);
    if (body.is(ErrorKind::kTooLarge) && size.shrink()) continue;
    if (body.is(ErrorKind::kGone) && !token.empty()) {
      // The continue token expired. List again with pages once, then without pages.
      token.clear();
      if (++expiries > 1) size = PageSize(0);
      objects = 0;
      if (sink.begin) sink.begin();
      continue;
    }
    if (!body) return body.error();
    size.arrived(body->size());
    const auto page = as_object(parse_list(*body, count_item, selection.filter), request);
    if (!page) return page.error();
    const auto items = page->find("items");
    if (items == page->end() || !(items->is_array() || items->is_null())) {
      ApiError error;
      error.kind = ErrorKind::kProtocol;
      error.message = "the response is not a list";
      error.operation = request.operation;
      return error;
    }
    token = metadata_string(*page, "continue");
    if (token.empty() || objects >= options.max_objects) {
      return metadata_string(*page, "resourceVersion");
    }
  }
}

ApiResult<std::vector<Json>> Client::list_all(const ResourceType& type, const Selection& selection,
                                              const net::Wait& wait) {
  std::vector<Json> items;
  const ListSink sink{[&items] { items.clear(); },
                      [&items](Json&& item) { items.push_back(std::move(item)); }};
  const auto listed = list(type, selection, {}, sink, wait);
  if (!listed) return listed.error();
  return items;
}

ApiResult<std::unique_ptr<WatchStream>> Client::watch(const ResourceType& type,
                                                      const Selection& selection,
                                                      const WatchOptions& options,
                                                      const net::Wait& wait) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options.server_timeout);
  Query query = selector_query(selection);
  query.emplace_back("watch", "1");
  query.emplace_back("allowWatchBookmarks", "true");
  query.emplace_back("resourceVersion", options.resource_version);
  query.emplace_back("timeoutSeconds", std::to_string(std::max<std::int64_t>(1, seconds.count())));
  ApiRequest request = make_request("GET", "watch", type, selection.namespace_name, "", "", query);
  request.http.max_response_bytes = UINT64_MAX;  // WatchLimits bounds each event
  auto exchange = sender_.open(request, wait);
  if (!exchange) return exchange.error();
  WatchLimits limits;
  limits.idle_timeout = options.idle_timeout;
  limits.total = options.server_timeout + std::chrono::seconds(30);
  limits.max_event_bytes = options.max_event_bytes;
  return std::make_unique<WatchStream>(std::move(*exchange), limits, request, selection.filter,
                                       sender_.clock());
}

ApiResult<Json> Client::create(const WriteGuard& guard, const ResourceType& type,
                               const std::string& namespace_name, const Json& object,
                               const net::Wait& wait, ResponseFormat format) {
  const std::string name = metadata_string(object, "name");
  ApiRequest request = make_request("POST", "create", type, namespace_name, "", "", {});
  request.operation = "create " + describe_resource(type, namespace_name, name);
  request.guard = &guard;
  request.retry_safety = name.empty() ? RetrySafety::kIfNotProcessed : RetrySafety::kAlways;
  set_body(request, object);
  if (format == ResponseFormat::kMetadata) request.accept = kMetadataOnly;
  return send(request, wait);
}

ApiResult<Json> Client::dry_run_create(const ResourceType& type, const std::string& namespace_name,
                                       const Json& object, const net::Wait& wait) {
  ApiRequest request = make_request("POST", "create", type, namespace_name, "", "",
                                    {{"dryRun", "All"}, {"fieldValidation", "Strict"}});
  request.operation =
      "dry-run create " + describe_resource(type, namespace_name, metadata_string(object, "name"));
  set_body(request, object);
  return send(request, wait);
}

ApiResult<Json> Client::update(const WriteGuard& guard, const ResourceType& type,
                               const Json& object, const net::Wait& wait) {
  ApiRequest request = make_request("PUT", "update", type, metadata_string(object, "namespace"),
                                    metadata_string(object, "name"), "", {});
  request.guard = &guard;
  set_body(request, object);
  return send(request, wait);
}

ApiResult<Json> Client::patch(const WriteGuard& guard, const ResourceType& type,
                              const std::string& namespace_name, const std::string& name,
                              PatchType kind, const Json& body, const PatchOptions& options,
                              const net::Wait& wait) {
  Query query;
  if (!options.field_manager.empty()) query.emplace_back("fieldManager", options.field_manager);
  if (options.force) query.emplace_back("force", "true");
  ApiRequest request =
      make_request("PATCH", "patch", type, namespace_name, name, options.subresource, query);
  request.guard = &guard;
  switch (kind) {
    case PatchType::kMerge:
      set_body(request, body, "application/merge-patch+json");
      break;
    case PatchType::kApply:
      set_body(request, body, "application/apply-patch+yaml");  // JSON is YAML
      break;
  }
  return send(request, wait);
}

ApiResult<Json> Client::remove(const WriteGuard& guard, const ResourceType& type,
                               const std::string& namespace_name, const std::string& name,
                               const DeleteOptions& options, const net::Wait& wait) {
  ApiRequest request = make_request("DELETE", "delete", type, namespace_name, name, "", {});
  request.guard = &guard;
  // Without a UID a second attempt could delete a new object of the same name.
  if (options.uid.empty()) request.retry_safety = RetrySafety::kIfNotProcessed;
  set_body(request, delete_options_body(options));
  return send(request, wait);
}

}  // namespace tilewright::kube
