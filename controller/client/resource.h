// Resource types (group, version, plural, kind) and their API paths.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::kube {

struct ResourceType {
  std::string group;  // empty: core
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;

  std::string api_version() const { return group.empty() ? version : group + "/" + version; }
};

// Built-in Kubernetes types that the controller uses.
namespace resource {
inline ResourceType pods() { return {"", "v1", "pods", "Pod"}; }
inline ResourceType services() { return {"", "v1", "services", "Service"}; }
inline ResourceType secrets() { return {"", "v1", "secrets", "Secret"}; }
inline ResourceType nodes() { return {"", "v1", "nodes", "Node", false}; }
inline ResourceType persistent_volume_claims() {
  return {"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"};
}
inline ResourceType events() { return {"events.k8s.io", "v1", "events", "Event"}; }
inline ResourceType leases() { return {"coordination.k8s.io", "v1", "leases", "Lease"}; }
inline ResourceType endpoint_slices() {
  return {"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"};
}
inline ResourceType network_policies() {
  return {"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"};
}
}  // namespace resource

using Query = std::vector<std::pair<std::string, std::string>>;

// /api/v1/namespaces/default/pods/mrpc-worker-0/status. An empty namespace means all namespaces; an
// empty name means the collection.
std::string path_of(const ResourceType& type, std::string_view namespace_name,
                    std::string_view name = {}, std::string_view subresource = {});
// "?a=b&c=d", percent-encoded (RFC 3986); empty for an empty query.
std::string query_string(const Query& query);
std::string percent_encode(std::string_view text);

// "pods default/mrpc-worker-0", for messages.
std::string describe_resource(const ResourceType& type, std::string_view namespace_name,
                              std::string_view name);

}  // namespace tilewright::kube
