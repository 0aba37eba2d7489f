// The pages of the operator: /metrics for Prometheus, /healthz and /readyz for the kubelet. They
// have separate servers, so that clients of one cannot delay the other.
#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/net/http_server.h"

namespace tilewright::controller {

net::HttpServer::Handlers metrics_pages(std::shared_ptr<prometheus::Collectable> metrics);

// Few connections: each can hold a whole response, which has a megabyte with thousands of jobs.
inline constexpr net::HttpLimits kMetricsLimits{.max_connections = 16};

// Returns a sentence that describes the problem (status 503), or std::nullopt (200).
using HealthCheck = std::function<std::optional<std::string>()>;
net::HttpServer::Handlers health_pages(HealthCheck unhealthy, HealthCheck unready);

}  // namespace tilewright::controller
