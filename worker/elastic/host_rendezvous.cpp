#include "worker/elastic/host_rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "common/base/random.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/pod_paths.h"
#include "common/contract/ports.h"
#include "common/net/key_file.h"
#include "common/rendezvous/index_request.h"
#include "common/rendezvous/report_failure.h"
#include "worker/elastic/local_host.h"

namespace tilewright::elastic {
namespace {

constexpr Duration kReportTimeout = std::chrono::seconds(5);
constexpr Duration kLookupPause = std::chrono::seconds(1);

}  // namespace

HostRendezvous::HostRendezvous(const AgentOptions& options, const StopSignals& signals,
                               std::shared_ptr<Logger> log)
    : log_(std::move(log)) {
  if (options.external_rendezvous) {
    uid_ = environment_variable(env::kJobUid);
    worker_index_ = options.worker_index;
    return;
  }
  prepare_key_file(options);
  tls_ = options.tls;
  uid_ = options.rdzv_id.empty() ? std::string(kLaunchUidPrefix) + random_hex(8) : options.rdzv_id;
  min_world_ = options.min_nodes * options.nproc_per_node;
  world_ = options.max_nodes * options.nproc_per_node;
  endpoint_ = options.rdzv_endpoint.value_or(net::Address{"127.0.0.1", 0});
  const net::Wait wait = net::within(options.rdzv_timeout, &signals.cancel_token());
  serve(options, signals, wait);
  worker_index_ = index_of_this_host(options, signals, wait);
  const net::Address address = address_for_own_processes(options, wait);
  environment_ = {{env::kRendezvous, net::to_string(address)},
                  {env::kJobUid, uid_},
                  {env::kJobKeyFile, key_file_.string()},
                  {env::kTorchelasticRunId, uid_},
                  {env::kMasterAddr, address.host},
                  {env::kMasterPort, fmt::format("{}", kTransportPort)}};
}

void HostRendezvous::serve(const AgentOptions& options, const StopSignals& signals,
                           const net::Wait& wait) {
  const bool by_address = options.serving == Serving::kByAddress && options.max_nodes > 1;
  switch (options.serving) {
    case Serving::kNever:
      return;
    case Serving::kByRank:
      if (options.node_rank.value_or(0) != 0) return;
      break;
    case Serving::kByAddress:
      if (by_address && !endpoint_is_here(signals, wait)) return;
      break;
    case Serving::kAlways:
      break;
  }
  if (endpoint_.port == 0 && options.ports)
    endpoint_.port = find_free_ports(options.ports->first, options.ports->last, 1).value_or(0);
  rendezvous::Server::Options server;
  // Listens on all addresses: the endpoint's name need not resolve to a local address.
  server.listen = {options.max_nodes == 1 ? endpoint_.host : "", endpoint_.port};
  rendezvous::JobSpec job{uid_, net::SecretKey::from_file(key_file_).or_throw()};
  job.settings = options.rendezvous;
  job.settings.min_world = min_world_;
  job.settings.max_world = job.settings.expected = world_;
  job.tls = options.tls;
  job.ends_with_an_agent = true;
  job.hosts = options.max_nodes;
  std::vector<rendezvous::JobSpec> jobs;
  jobs.push_back(std::move(job));
  auto started = rendezvous::Server::start(server, log_, std::move(jobs));
  if (!started.ok() && by_address) {
    log_->info("agent: {}; joining the rendezvous there", started.error().message);
    return;
  }
  server_ = std::move(started).or_throw();
  endpoint_.port = server_->address().port;
}

// The DNS record of a pod may appear after its agent has started.
bool HostRendezvous::endpoint_is_here(const StopSignals& signals, const net::Wait& wait) const {
  for (bool said = false;; said = true) {
    const Result<bool> here = is_this_host(endpoint_.host, wait);
    if (here.ok()) return *here;
    if (!said)
      log_->info("agent: waiting until the name of the rendezvous resolves: {}",
                 here.error().message);
    if (!net::pause_for(wait, kLookupPause)) fail_start(signals, here.error());
  }
}

void HostRendezvous::fail_start(const StopSignals& signals, const Error& error) const {
  if (const auto code = signals.exit_code())
    throw Failure(*code, "stopped while waiting for the rendezvous");
  throw Failure(error.code,
                fmt::format("--rdzv_endpoint {}: {}", net::to_string(endpoint_), error.message));
}

int HostRendezvous::index_of_this_host(const AgentOptions& options, const StopSignals& signals,
                                       const net::Wait& wait) const {
  if (options.node_rank) return *options.node_rank;
  if (server_ != nullptr) return 0;
  log_->info("agent: waiting for the rendezvous at {}", net::to_string(endpoint_));
  const auto index = rendezvous::request_worker_index(
      endpoint_, uid_, net::SecretKey::from_file(key_file_).or_throw(), options.tls,
      random_uint64(), wait, [&](const std::string& reason) {
        log_->info("agent: still waiting for the rendezvous: {}", reason);
      });
  if (!index.ok()) fail_start(signals, index.error());
  return *index;
}

// The processes listen at the address from which they reach the rendezvous. The endpoint's name may
// stand for a loopback address on its own host (127.0.1.1 in /etc/hosts).
net::Address HostRendezvous::address_for_own_processes(const AgentOptions& options,
                                                       const net::Wait& wait) const {
  if (server_ == nullptr || options.max_nodes == 1) return endpoint_;
  const auto own = address_towards(endpoint_.host, wait);
  if (!own.ok() || !is_loopback(*own)) return endpoint_;
  const std::vector<std::string> reachable = reachable_addresses();
  return reachable.empty() ? endpoint_ : net::Address{reachable.front(), endpoint_.port};
}

HostRendezvous::~HostRendezvous() {
  std::error_code ignored;
  if (!temporary_dir_.empty()) std::filesystem::remove_all(temporary_dir_, ignored);
}

void HostRendezvous::prepare_key_file(const AgentOptions& options) {
  key_file_ = options.rdzv_key_file;
  if (key_file_.empty()) {
    std::string pattern = temporary_directory().or_throw() / "tilewright-agent-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      throw Failure(ExitCode::kUsage,
                    fmt::format("{} cannot be created: {}", pattern, std::strerror(errno)));
    temporary_dir_ = pattern;
    key_file_ = temporary_dir_ / kJobKeyName;
  }
  key_file_ = std::filesystem::absolute(key_file_);
  if (options.rdzv_key) {
    net::write_key_file(key_file_, *options.rdzv_key).or_throw();
    return;
  }
  const auto refuse = [](const Error& error, const char* advice) {
    throw Failure(ExitCode::kUsage, fmt::format("--rdzv_key_file: {}{}", error.message, advice));
  };
  const bool one_host = options.max_nodes == 1;
  if (one_host) {
    if (const Status made = net::create_key_file(key_file_); !made.ok()) refuse(made.error(), "");
  }
  // A file that is not a secret is not replaced: the user named it, and it may be in use elsewhere.
  if (const auto key = net::SecretKey::from_file(key_file_); !key.ok()) {
    refuse(key.error(), one_host ? "; delete the file, and the agent makes a new one"
                                 : "; every host needs a copy of the same file");
  }
}

void HostRendezvous::host_exited(int worker_index) {
  if (server_ != nullptr) server_->worker_exited(uid_, worker_index);
}

void HostRendezvous::process_exited(int local_rank) {
  if (server_ != nullptr) server_->worker_exited(uid_, worker_index_, local_rank);
}

void HostRendezvous::expect_restart(Duration timeout) {
  if (server_ == nullptr) return;
  server_->expect(uid_, {min_world_, world_, world_, timeout}).or_throw();
}

void HostRendezvous::wait_for_other_hosts(Duration timeout, const net::WakeUp& cancel) {
  if (server_ != nullptr) wait_until_left(*server_, uid_, net::within(timeout, &cancel));
}

void HostRendezvous::fail(const std::string& message, bool is_permanent) {
  if (server_ != nullptr) return server_->fail_job(uid_, message);
  // Without a key of its own: the operator or `up`, which serves the rendezvous, sees the exit
  // code.
  if (key_file_.empty() || !is_permanent) return;
  const Status told =
      rendezvous::report_failure(endpoint_, uid_, net::SecretKey::from_file(key_file_).or_throw(),
                                 tls_, worker_index_, message, net::within(kReportTimeout));
  if (!told.ok())
    log_->warn("agent: the other hosts do not know of the failure: {}", told.error().message);
}

void wait_until_left(rendezvous::Server& server, const std::string& uid, const net::Wait& wait) {
  while (true) {
    server.take_changed();
    const auto snapshot = server.snapshot(uid);
    if (!snapshot || snapshot->members.empty()) return;
    if (net::wait_ready(server.changes().fd(), POLLIN, wait) != net::Ready::kYes) return;
  }
}

}  // namespace tilewright::elastic
