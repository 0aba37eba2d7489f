#include "controller/operator/endpoint.h"

#include "common/contract/labels.h"
#include "common/contract/ports.h"

namespace tilewright::controller {
namespace {

using kube::ApiError;
using kube::ApiResult;
using nlohmann::json;

constexpr const char* kPortName = "rendezvous";
constexpr const char* kFieldManager = "tilewright.dev";  // of the EndpointSlice

ApiError invalid_service(const EndpointRef& ref, std::string message) {
  ApiError error;
  error.kind = kube::ErrorKind::kInvalid;
  error.operation = "read services " + ref.namespace_name + "/" + ref.service;
  error.message = std::move(message);
  return error;
}

ApiResult<net::Address> address_of_service(const EndpointRef& ref, const json& service) {
  const json spec = service.value("spec", json::object());
  if (!spec.value("selector", json::object()).empty()) {
    return invalid_service(ref,
                           "it has a selector, expected none: the leader writes its EndpointSlice");
  }
  net::Address address;
  address.host = spec.value("clusterIP", "");
  if (address.host.empty() || address.host == "None") {
    return invalid_service(ref, "it has no cluster IP, expected one: workers connect to it");
  }
  for (const json& port : spec.value("ports", json::array())) {
    if (port.value("name", "") == kPortName) address.port = port.value("port", std::uint16_t{0});
  }
  if (address.port == 0) return invalid_service(ref, "it has no port named rendezvous");
  return address;
}

}  // namespace

json build_endpoint_slice(const EndpointRef& ref, const net::Address& leader) {
  const bool ipv6 = leader.host.find(':') != std::string::npos;
  return {{"apiVersion", "discovery.k8s.io/v1"},
          {"kind", "EndpointSlice"},
          {"metadata",
           {{"name", ref.service},
            {"namespace", ref.namespace_name},
            {"labels",
             {{"kubernetes.io/service-name", ref.service},
              {"endpointslice.kubernetes.io/managed-by", kFieldManager},
              {labels::kManagedBy, labels::kManagedByValue}}}}},
          {"addressType", ipv6 ? "IPv6" : "IPv4"},
          {"endpoints", {{{"addresses", {leader.host}}, {"conditions", {{"ready", true}}}}}},
          {"ports", {{{"name", kPortName}, {"port", leader.port}, {"protocol", "TCP"}}}}};
}

ApiResult<net::Address> publish_endpoint(kube::Client& client, const kube::WriteGuard& guard,
                                         const EndpointRef& ref, const net::Address& leader,
                                         const net::Wait& wait) {
  const auto service =
      client.get({"", "v1", "services", "Service"}, ref.namespace_name, ref.service, wait);
  if (!service) return service.error();
  ApiResult<net::Address> address = address_of_service(ref, *service);
  if (!address) return address;
  kube::PatchOptions options;
  options.field_manager = kFieldManager;
  options.force = true;  // the current leader overrides earlier ones
  const auto written =
      client.patch(guard, kube::resource::endpoint_slices(), ref.namespace_name, ref.service,
                   kube::PatchType::kApply, build_endpoint_slice(ref, leader), options, wait);
  if (!written) return written.error();
  return address;
}

}  // namespace tilewright::controller
