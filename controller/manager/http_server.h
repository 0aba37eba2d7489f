// /metrics, /healthz and /readyz over HTTP, by the server that prometheus-cpp brings along.
#pragma once

#include <prometheus/collectable.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/net/address.h"

class CivetServer;

namespace tilewright::manager {

class HttpServer {
 public:
  struct Answers {
    std::shared_ptr<prometheus::Collectable> metrics;
    // Why not, in a sentence; nothing when all is well. 503 else.
    std::function<std::optional<std::string>()> unhealthy;
    std::function<std::optional<std::string>()> unready;
  };
  // The two addresses may be the same. Errors carry kUsage: one that cannot be listened on.
  static Result<std::unique_ptr<HttpServer>> start(const net::Address& metrics,
                                                   const net::Address& health, Answers answers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // As picked, for port 0.
  std::uint16_t metrics_port() const;
  std::uint16_t health_port() const;

 private:
  class Page;
  HttpServer(std::unique_ptr<CivetServer> server, Answers answers, bool one_port);

  const Answers answers_;
  const bool one_port_;
  std::unique_ptr<Page> metrics_, healthz_, readyz_;
  std::unique_ptr<CivetServer> server_;  // last: its threads use the pages
};

}  // namespace tilewright::manager
