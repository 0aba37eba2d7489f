// create, update, patch, delete and evict.
#include <utility>

#include "controller/api/json_members.h"
#include "controller/kube/client_requests.h"

namespace tilewright::kube {
namespace {

constexpr const char* kMetadataOnly =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

void put_body(ApiRequest& request, const Json& body, const char* type = "application/json") {
  // Text that is no UTF-8 (a log line) must not end the program here; the server gets U+FFFD.
  request.http.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  request.http.headers.emplace_back("Content-Type", type);
}

Json body_of(const DeleteOptions& options) {
  Json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  if (!options.propagation.empty()) body["propagationPolicy"] = options.propagation;
  return body;
}

}  // namespace

ApiResult<Json> Client::create(const WriteGuard& guard, const ResourceType& type,
                               const std::string& namespace_name, const Json& object,
                               const net::Wait& wait, Answer answer) {
  const std::string name = api::metadata_text(object, "name");
  ApiRequest request = make_request("POST", "create", type, namespace_name, "", "", {});
  request.operation = "create " + described(type, namespace_name, name);
  request.guard = &guard;
  request.repeatable = name.empty() ? Repeatable::kIfUntouched : Repeatable::kYes;
  put_body(request, object);
  if (answer == Answer::kMetadata) request.accept = kMetadataOnly;
  return send(request, wait);
}

ApiResult<Json> Client::try_create(const ResourceType& type, const std::string& namespace_name,
                                   const Json& object, const net::Wait& wait) {
  ApiRequest request = make_request("POST", "create", type, namespace_name, "", "",
                                    {{"dryRun", "All"}, {"fieldValidation", "Strict"}});
  request.operation =
      "try to create " + described(type, namespace_name, api::metadata_text(object, "name"));
  put_body(request, object);
  return send(request, wait);
}

ApiResult<Json> Client::put(const WriteGuard& guard, const ResourceType& type, const Json& object,
                            const std::string& subresource, const net::Wait& wait) {
  ApiRequest request = make_request("PUT", "update", type, api::metadata_text(object, "namespace"),
                                    api::metadata_text(object, "name"), subresource, {});
  request.guard = &guard;
  put_body(request, object);
  return send(request, wait);
}

ApiResult<Json> Client::update(const WriteGuard& guard, const ResourceType& type,
                               const Json& object, const net::Wait& wait) {
  return put(guard, type, object, "", wait);
}

ApiResult<Json> Client::update_status(const WriteGuard& guard, const ResourceType& type,
                                      const Json& object, const net::Wait& wait) {
  return put(guard, type, object, "status", wait);
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
      put_body(request, body, "application/merge-patch+json");
      break;
    case PatchType::kJson:
      request.repeatable = Repeatable::kIfUntouched;
      put_body(request, body, "application/json-patch+json");
      break;
    case PatchType::kApply:
      put_body(request, body, "application/apply-patch+yaml");  // JSON is YAML
      break;
  }
  return send(request, wait);
}

ApiResult<Json> Client::remove(const WriteGuard& guard, const ResourceType& type,
                               const std::string& namespace_name, const std::string& name,
                               const DeleteOptions& options, const net::Wait& wait) {
  ApiRequest request = make_request("DELETE", "delete", type, namespace_name, name, "", {});
  request.guard = &guard;
  // Without a UID a second attempt could hit a successor of the same name.
  if (options.uid.empty()) request.repeatable = Repeatable::kIfUntouched;
  put_body(request, body_of(options));
  return send(request, wait);
}

ApiResult<Json> Client::evict(const WriteGuard& guard, const std::string& namespace_name,
                              const std::string& pod, const DeleteOptions& options,
                              const net::Wait& wait) {
  ApiRequest request =
      make_request("POST", "create", resource::pods(), namespace_name, pod, "eviction", {});
  request.operation = "evict " + described(resource::pods(), namespace_name, pod);
  request.guard = &guard;
  request.repeatable = Repeatable::kIfUntouchedAndNotRefused;
  put_body(request, {{"apiVersion", "policy/v1"},
                     {"kind", "Eviction"},
                     {"metadata", {{"name", pod}, {"namespace", namespace_name}}},
                     {"deleteOptions", body_of(options)}});
  return send(request, wait);
}

}  // namespace tilewright::kube
