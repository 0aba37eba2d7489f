// Tests of the controller's probes while strangers hold connections. The API server is not needed:
// the probes are served from the start.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <vector>

#include "common/net/connect.h"
#include "tests/support/https_client.h"
#include "tests/support/local_ports.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright::testing {
namespace {

constexpr int kStrangers = 300;  // per port
constexpr std::chrono::seconds kProbeTimeout{1};

class ProbesTest : public ::testing::Test {
 protected:
  ProbesTest() {
    std::ofstream(folder_.path() / "kubeconfig") << R"(apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
)";
    controller_.emplace(program("tilewright"),
                        std::vector<std::string>{
                            "controller", "--kubeconfig=kubeconfig", "--leader_elect=false",
                            "--rendezvous_listen=127.0.0.1:0", "--rendezvous_address=127.0.0.1:0",
                            "--metrics_listen=" + loopback_address(metrics_port_),
                            "--health_listen=" + loopback_address(health_port_)},
                        folder_.path());
  }

  // Waits until the port accepts connections.
  static net::Socket connect(int port) {
    return net::connect_to({"127.0.0.1", static_cast<std::uint16_t>(port)}, net::within(kTimeout),
                           net::Retry::kUntilDeadline)
        .or_throw();
  }
  // The status of the response; 0 if there is none within kProbeTimeout.
  static int probe(int port, const std::string& path) {
    const net::Wait wait = net::within(kProbeTimeout);
    auto socket = net::connect_to({"127.0.0.1", static_cast<std::uint16_t>(port)}, wait);
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
    std::string status(std::string_view("HTTP/1.1 200").size(), ' ');
    const bool answered = socket && socket->write_all(std::as_bytes(std::span(request)), wait) &&
                          socket->read_exact(std::as_writable_bytes(std::span(status)), wait);
    return answered ? std::stoi(status.substr(status.size() - 3)) : 0;
  }
  // Whether one of several probes gets this status: on a busy machine some may time out, as for a
  // kubelet, which acts on the third failure.
  static bool answers(int port, const std::string& path, int status) {
    constexpr int kAttempts = 5;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (probe(port, path) == status) return true;
    }
    return false;
  }

  const TemporaryDirectory folder_;
  const int metrics_port_ = free_port();
  const int health_port_ = free_port();
  std::optional<RunningProgram> controller_;
};

TEST_F(ProbesTest, AnswerWithinASecondWhileStrangersHoldConnections) {
  std::vector<net::Socket> idle;
  for (int i = 0; i < kStrangers; ++i) {
    for (const int port : {metrics_port_, health_port_}) idle.push_back(connect(port));
  }
  EXPECT_TRUE(answers(health_port_, "/healthz", 200));
  EXPECT_TRUE(answers(health_port_, "/readyz", 503)) << "there is no API server";
  EXPECT_TRUE(answers(metrics_port_, "/metrics", 200));
}

}  // namespace
}  // namespace tilewright::testing
