#include "controller/manager/http_server.h"

#include <CivetServer.h>
#include <fmt/format.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <utility>
#include <vector>

namespace tilewright::manager {
namespace {

// A scraper, two probes, and one that looks by hand.
constexpr const char* kThreads = "4";

using Condition = std::function<std::optional<std::string>()>;

struct Answer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

Answer answer_of(const Condition& trouble) {
  if (const std::optional<std::string> why = trouble()) return {503, "text/plain", *why + "\n"};
  return {200, "text/plain", "ok\n"};
}

Answer answer_of(const prometheus::Collectable& metrics) {
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, metrics.Collect());
  return {200, "text/plain; version=0.0.4; charset=utf-8", std::move(text).str()};
}

std::string listening(const net::Address& address) {
  // A port alone is every IPv4 address.
  return address.host.empty() ? std::to_string(address.port) : net::to_string(address);
}

}  // namespace

class HttpServer::Page final : public CivetHandler {
 public:
  explicit Page(std::function<Answer()> answer) : answer_(std::move(answer)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const Answer answer = answer_();
    const std::string head = fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status == 200 ? "200 OK" : "503 Service Unavailable", answer.type,
        answer.body.size());
    mg_write(connection, head.data(), head.size());
    mg_write(connection, answer.body.data(), answer.body.size());
    return true;
  }

 private:
  const std::function<Answer()> answer_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(const net::Address& metrics,
                                                      const net::Address& health, Answers answers) {
  const bool one_port = metrics == health && metrics.port != 0;
  const std::string ports =
      one_port ? listening(metrics) : listening(metrics) + "," + listening(health);
  try {
    auto server = std::make_unique<CivetServer>(std::vector<std::string>{
        "listening_ports", ports, "num_threads", kThreads, "enable_keep_alive", "no",
        "linger_timeout_ms", "0", "request_timeout_ms", "5000"});
    return std::unique_ptr<HttpServer>(
        new HttpServer(std::move(server), std::move(answers), one_port));
  } catch (const CivetException&) {
    return Error{ExitCode::kUsage, fmt::format("cannot listen on {} for /metrics and on {} for "
                                               "/healthz and /readyz: is one of them taken?",
                                               net::to_string(metrics), net::to_string(health))};
  }
}

HttpServer::HttpServer(std::unique_ptr<CivetServer> server, Answers answers, bool one_port)
    : answers_(std::move(answers)),
      one_port_(one_port),
      metrics_(std::make_unique<Page>([this] { return answer_of(*answers_.metrics); })),
      healthz_(std::make_unique<Page>([this] { return answer_of(answers_.unhealthy); })),
      readyz_(std::make_unique<Page>([this] { return answer_of(answers_.unready); })),
      server_(std::move(server)) {
  server_->addHandler("/metrics$", metrics_.get());
  server_->addHandler("/healthz$", healthz_.get());
  server_->addHandler("/readyz$", readyz_.get());
}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::metrics_port() const {
  return static_cast<std::uint16_t>(server_->getListeningPorts().front());
}

std::uint16_t HttpServer::health_port() const {
  return static_cast<std::uint16_t>(server_->getListeningPorts().at(one_port_ ? 0 : 1));
}

}  // namespace tilewright::manager
