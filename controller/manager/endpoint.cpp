#include "controller/manager/endpoint.h"

#include "common/contract/labels.h"
#include "common/contract/ports.h"

namespace tilewright::manager {
namespace {

using kube::ApiError;
using kube::ApiResult;
using nlohmann::json;

constexpr const char* kPortName = "rendezvous";
constexpr const char* kManager = "tilewright.dev";  // of the slice, and of the fields in it

ApiError refusal(const EndpointPlace& place, std::string message) {
  ApiError error;
  error.problem = kube::Problem::kInvalid;
  error.operation = "read services " + place.namespace_name + "/" + place.service;
  error.message = std::move(message);
  return error;
}

ApiResult<net::Address> address_of_service(const EndpointPlace& place, const json& service) {
  const json spec = service.value("spec", json::object());
  if (!spec.value("selector", json::object()).empty()) {
    return refusal(place, "it has a selector, expected none: the leader says where it leads");
  }
  net::Address address;
  address.host = spec.value("clusterIP", "");
  if (address.host.empty() || address.host == "None") {
    return refusal(place, "it has no cluster IP, expected one that stays when the leader changes");
  }
  for (const json& port : spec.value("ports", json::array())) {
    if (port.value("name", "") == kPortName) address.port = port.value("port", std::uint16_t{0});
  }
  if (address.port == 0) return refusal(place, "it has no port of the name rendezvous");
  return address;
}

}  // namespace

json build_endpoint_slice(const EndpointPlace& place, const net::Address& leader) {
  const bool ipv6 = leader.host.find(':') != std::string::npos;
  return {{"apiVersion", "discovery.k8s.io/v1"},
          {"kind", "EndpointSlice"},
          {"metadata",
           {{"name", place.service},
            {"namespace", place.namespace_name},
            {"labels",
             {{"kubernetes.io/service-name", place.service},
              {"endpointslice.kubernetes.io/managed-by", kManager},
              {labels::kManagedBy, labels::kManagedByValue}}}}},
          {"addressType", ipv6 ? "IPv6" : "IPv4"},
          {"endpoints", {{{"addresses", {leader.host}}, {"conditions", {{"ready", true}}}}}},
          {"ports", {{{"name", kPortName}, {"port", leader.port}, {"protocol", "TCP"}}}}};
}

ApiResult<net::Address> publish_endpoint(kube::Client& client, const kube::WriteGuard& guard,
                                         const EndpointPlace& place, const net::Address& leader,
                                         const net::Wait& wait) {
  const auto service =
      client.get({"", "v1", "services", "Service"}, place.namespace_name, place.service, wait);
  if (!service) return service.error();
  ApiResult<net::Address> address = address_of_service(place, *service);
  if (!address) return address;
  kube::PatchOptions options;
  options.field_manager = kManager;
  options.force = true;  // the one who leads now is right
  const auto written =
      client.patch(guard, kube::resource::endpoint_slices(), place.namespace_name, place.service,
                   kube::PatchType::kApply, build_endpoint_slice(place, leader), options, wait);
  if (!written) return written.error();
  return address;
}

}  // namespace tilewright::manager
