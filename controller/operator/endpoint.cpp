#include "controller/operator/endpoint.h"

#include "common/contract/labels.h"
#include "common/contract/ports.h"

namespace tilewright::controller {
namespace {

using kube::ApiError;
using kube::ApiResult;
using nlohmann::json;

constexpr const char* kPortName = find_row(kPorts, "rendezvous").container_port.data();
constexpr const char* kTcpStorePortName = find_row(kPorts, "tcpstore").container_port.data();
constexpr const char* kFieldManager = "tilewright.dev";  // of the EndpointSlice

ApiError invalid_service(const EndpointRef& ref, std::string message) {
  ApiError error;
  error.kind = kube::ErrorKind::kInvalid;
  error.operation = "read services " + ref.namespace_name + "/" + ref.service;
  error.message = std::move(message);
  return error;
}

ApiResult<ServiceAddresses> addresses_of_service(const EndpointRef& ref, const json& service) {
  const json spec = service.value("spec", json::object());
  if (!spec.value("selector", json::object()).empty()) {
    return invalid_service(ref,
                           "it has a selector, expected none: the leader writes its EndpointSlice");
  }
  const std::string host = spec.value("clusterIP", "");
  if (host.empty() || host == "None") {
    return invalid_service(ref, "it has no cluster IP, expected one: workers connect to it");
  }
  ServiceAddresses addresses{{host, 0}, {}};
  for (const json& port : spec.value("ports", json::array())) {
    const std::string name = port.value("name", "");
    const auto number = port.value("port", std::uint16_t{0});
    if (name == kPortName) addresses.rendezvous.port = number;
    if (name == kTcpStorePortName && number != 0) addresses.tcpstore = net::Address{host, number};
  }
  if (addresses.rendezvous.port == 0)
    return invalid_service(ref, "it has no port named rendezvous");
  return addresses;
}

}  // namespace

json build_endpoint_slice(const EndpointRef& ref, const Leader& leader) {
  const std::string& host = leader.rendezvous.host;
  const bool ipv6 = host.find(':') != std::string::npos;
  json ports =
      json::array({{{"name", kPortName}, {"port", leader.rendezvous.port}, {"protocol", "TCP"}}});
  if (leader.tcpstore) {
    ports.push_back({{"name", kTcpStorePortName}, {"port", *leader.tcpstore}, {"protocol", "TCP"}});
  }
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
          {"endpoints", {{{"addresses", {host}}, {"conditions", {{"ready", true}}}}}},
          {"ports", std::move(ports)}};
}

ApiResult<ServiceAddresses> publish_endpoint(kube::Client& client, const kube::WriteGuard& guard,
                                             const EndpointRef& ref, const Leader& leader,
                                             const net::Wait& wait) {
  const auto service =
      client.get({"", "v1", "services", "Service"}, ref.namespace_name, ref.service, wait);
  if (!service) return service.error();
  ApiResult<ServiceAddresses> addresses = addresses_of_service(ref, *service);
  if (!addresses) return addresses;
  kube::PatchOptions options;
  options.field_manager = kFieldManager;
  options.force = true;  // the current leader overrides earlier ones
  const auto written =
      client.patch(guard, kube::resource::endpoint_slices(), ref.namespace_name, ref.service,
                   kube::PatchType::kApply, build_endpoint_slice(ref, leader), options, wait);
  if (!written) return written.error();
  return addresses;
}

}  // namespace tilewright::controller
