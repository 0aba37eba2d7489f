#include "bench/controller/operator_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "common/base/clock.h"
#include "common/net/connect.h"
#include "tests/support/api_calls.h"
#include "tests/support/https_client.h"
#include "tests/support/paths.h"

namespace tilewright::bench {
namespace {

// Returns a port that is currently free. No other process on this machine is expected to bind it.
int free_port() { return net::Listener::bind({"127.0.0.1", 0}).or_throw().local_address().port; }

std::string field_of(pid_t pid, const std::string& name) {
  std::ifstream in(fmt::format("/proc/{}/status", pid));
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with(name + ":")) return line.substr(name.size() + 1);
  }
  return "0";
}

// Returns the value of an ENV instruction of the controller image.
std::string environment_of_image(const std::string& name) {
  const std::string start = "ENV " + name + "=";
  std::ifstream in(testing::source_dir() / "docker/controller.Dockerfile");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  throw std::runtime_error("docker/controller.Dockerfile does not set " + name);
}

double mib(pid_t pid, const std::string& name) { return std::stod(field_of(pid, name)) / 1024; }

}  // namespace

OperatorProcess::OperatorProcess(const testing::ControlPlane& control_plane,
                                 const std::string& namespace_name) {
  metrics_port_ = free_port();
  const int health_port = free_port();
  ChildCommand command;
  command.program = testing::program("tilewright");
  command.arguments = {"controller",
                       "--kubeconfig=" + control_plane.kubeconfig().string(),
                       "--namespace=" + namespace_name,
                       "--leader_elect=false",
                       "--rendezvous_listen=127.0.0.1:0",
                       "--rendezvous_address=127.0.0.1:0",
                       fmt::format("--metrics_listen=127.0.0.1:{}", metrics_port_),
                       fmt::format("--health_listen=127.0.0.1:{}", health_port),
                       "--log_level=warn"};
  command.environment =
      environment_with_overrides({{"GLIBC_TUNABLES", environment_of_image("GLIBC_TUNABLES")}});
  const auto start = std::chrono::steady_clock::now();
  process_.emplace(ChildProcess::start(command).or_throw());
  while (get(health_port, "/readyz") != "ok\n") {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(60)) {
      throw std::runtime_error("the controller did not become ready within 60 s");
    }
    net::sleep_until(net::within(std::chrono::milliseconds(10)));
  }
  seconds_to_ready_ = in_seconds(std::chrono::steady_clock::now() - start);
}

std::string OperatorProcess::get(int port, const std::string& path) const {
  testing::HttpsClient client(fmt::format("http://127.0.0.1:{}", port), "", {});
  const testing::HttpResponse response = client.get(path);
  return response.ok() ? response.body : "";
}

double OperatorProcess::cpu_seconds() const {
  std::ifstream in(fmt::format("/proc/{}/stat", process_->pid()));
  std::string text;
  std::getline(in, text);
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string word;
  double ticks = 0;
  for (int field = 3; rest >> word && field <= 15; ++field) {
    if (field == 14 || field == 15) ticks += std::stod(word);
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double OperatorProcess::resident_mib() const { return mib(process_->pid(), "VmRSS"); }
double OperatorProcess::peak_mib() const { return mib(process_->pid(), "VmHWM"); }

std::map<std::string, std::uint64_t> OperatorProcess::requests() const {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [call, count] : testing::api_calls(get(metrics_port_, "/metrics"))) {
    const auto& [verb, resource] = call;
    if (verb == "watch" || verb == "list" || resource == "leases") continue;
    counts[fmt::format("{} {}", verb, resource)] = count;
  }
  return counts;
}

std::uint64_t OperatorProcess::reconciles() const {
  const std::string text = get(metrics_port_, "/metrics");
  const std::string name = "\ntilewright_controller_reconcile_duration_seconds_count ";
  const std::size_t found = text.find(name);
  if (found == std::string::npos) throw std::runtime_error("/metrics has no count of reconciles");
  return std::stoull(text.substr(found + name.size()));
}

}  // namespace tilewright::bench
