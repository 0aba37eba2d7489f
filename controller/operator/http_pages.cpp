#include "controller/operator/http_pages.h"

#include <prometheus/text_serializer.h>

#include <utility>

namespace tilewright::controller {
namespace {

net::HttpResponse response_of(const HealthCheck& check) {
  if (const std::optional<std::string> why = check()) return {503, "text/plain", *why + "\n"};
  return {200, "text/plain", "ok\n"};
}

}  // namespace

net::HttpServer::Handlers metrics_pages(std::shared_ptr<prometheus::Collectable> metrics) {
  return {{"/metrics", [metrics = std::move(metrics)] {
             return net::HttpResponse{200, net::kPrometheusText,
                                      prometheus::TextSerializer().Serialize(metrics->Collect())};
           }}};
}

net::HttpServer::Handlers health_pages(HealthCheck unhealthy, HealthCheck unready) {
  return {{"/healthz", [check = std::move(unhealthy)] { return response_of(check); }},
          {"/readyz", [check = std::move(unready)] { return response_of(check); }}};
}

}  // namespace tilewright::controller
