// Publishes the leader's address in the EndpointSlice of a Service without selector.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/net/address.h"
#include "controller/client/client.h"

namespace tilewright::controller {

struct EndpointRef {
  std::string namespace_name;
  std::string service;
};

struct Leader {
  net::Address rendezvous;                // numeric
  std::optional<std::uint16_t> tcpstore;  // port on the same host; nullopt: not served
};

nlohmann::json build_endpoint_slice(const EndpointRef& ref, const Leader& leader);

struct ServiceAddresses {
  net::Address rendezvous;
  std::optional<net::Address> tcpstore;  // nullopt: the Service has no such port
};

// Points the Service to the leader and returns the cluster IP and ports of the Service. Pods get
// these addresses, so that they do not depend on DNS.
kube::ApiResult<ServiceAddresses> publish_endpoint(kube::Client& client,
                                                   const kube::WriteGuard& guard,
                                                   const EndpointRef& ref, const Leader& leader,
                                                   const net::Wait& wait);

}  // namespace tilewright::controller
