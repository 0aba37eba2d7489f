#include "controller/operator/store_hub.h"

#include <arpa/inet.h>

#include <array>
#include <utility>

namespace tilewright::controller {
namespace {

// One text for each address: 10.0.0.1 also for ::ffff:10.0.0.1 and ::ffff:a00:1, and the shortest
// form of IPv6. nullopt: not an IP address.
std::optional<std::string> canonical(const std::string& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, address.c_str(), &v4) != 1) {
    if (inet_pton(AF_INET6, address.c_str(), &v6) != 1) return std::nullopt;
    if (!IN6_IS_ADDR_V4MAPPED(&v6)) {
      return inet_ntop(AF_INET6, &v6, text.data(), text.size());
    }
    v4.s_addr = v6.s6_addr32[3];
  }
  return inet_ntop(AF_INET, &v4, text.data(), text.size());
}

// An agent notices within its monitor interval (0.1 to 5 s) and gives its workers 30 s to exit.
constexpr std::chrono::seconds kTimeToEnd{60};
constexpr int kAgentFailed = 1;  // exit code of torchrun

}  // namespace

// There is no lower bound: a worker that had ended under the earlier leader would have been
// replaced.
bool ended_with_its_store(const policy::Worker& worker, WallTime opened) {
  return worker.phase == policy::WorkerPhase::kFailed && worker.exit_code == kAgentFailed &&
         worker.started && *worker.started < opened && worker.finished &&
         *worker.finished <= opened + kTimeToEnd;
}

Result<std::unique_ptr<StoreHub>> StoreHub::start(const tcpstore::Server::Options& options,
                                                  std::shared_ptr<Logger> log) {
  std::unique_ptr<StoreHub> hub(new StoreHub(wall_now()));
  auto server = tcpstore::Server::start(
      options, [hub = hub.get()](const net::Address& peer) { return hub->store_for(peer); },
      std::move(log));
  if (!server) return server.error();
  hub->server_ = std::move(server).value();
  return hub;
}

Result<std::unique_ptr<StoreHub>> StoreHub::start(const net::Address& listen,
                                                  std::shared_ptr<Logger> log) {
  tcpstore::Server::Options options;
  options.listen = listen;
  return start(options, std::move(log));
}

void StoreHub::serve(const std::string& job_uid, const std::set<std::string>& pod_ips) {
  std::set<std::string> now;
  for (const std::string& ip : pod_ips) {
    if (auto address = canonical(ip)) now.insert(*std::move(address));
  }
  {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(job_uid);
    if (found == addresses_.end() ? now.empty() : found->second == now) return;
    if (found != addresses_.end()) {
      for (const std::string& address : found->second) {
        const auto owners = jobs_.find(address);
        owners->second.erase(job_uid);
        if (owners->second.empty()) jobs_.erase(owners);
      }
      addresses_.erase(found);
    }
    for (const std::string& address : now) jobs_[address].insert(job_uid);
    if (!now.empty()) addresses_.emplace(job_uid, std::move(now));
  }
  server_->addresses_changed();
}

std::optional<tcpstore::StoreId> StoreHub::store_for(const net::Address& peer) const {
  const auto address = canonical(peer.host);
  if (!address) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto owners = jobs_.find(*address);
  if (owners == jobs_.end() || owners->second.size() != 1) return std::nullopt;
  return *owners->second.begin();
}

void StoreHub::set_address_for_pods(std::string address) {
  const std::lock_guard lock(mutex_);
  address_for_pods_ = std::move(address);
}

std::string StoreHub::address_for_pods() const {
  const std::lock_guard lock(mutex_);
  return address_for_pods_;
}

std::size_t StoreHub::connections() const {
  std::size_t count = 0;
  for (const auto& [id, usage] : server_->stores()) count += usage.connections;
  return count;
}

}  // namespace tilewright::controller
