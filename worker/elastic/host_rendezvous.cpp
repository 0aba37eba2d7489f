#include "worker/elastic/host_rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/ports.h"
#include "common/net/key_file.h"

namespace tilewright::elastic {

HostRendezvous::HostRendezvous(const AgentOptions& options, std::shared_ptr<Logger> log) {
  if (options.external_rendezvous) return;
  prepare_key_file(options);
  uid_ = options.rdzv_id.empty() ? "agent-" + to_hex(net::SecretKey::random().bytes().first(8))
                                 : options.rdzv_id;
  worker_index_ = options.node_rank;
  min_world_ = options.min_nodes * options.nproc_per_node;
  world_ = options.max_nodes * options.nproc_per_node;
  net::Address endpoint = options.rdzv_endpoint.value_or(net::Address{"127.0.0.1", 0});
  if (options.node_rank == 0) {
    rendezvous::Server::Options server;
    // Listens on all addresses: the endpoint's name need not resolve to a local address.
    server.listen = {options.max_nodes == 1 ? endpoint.host : "", endpoint.port};
    server_ = rendezvous::Server::start(server, std::move(log)).or_throw();
    endpoint.port = server_->address().port;
    rendezvous::Settings settings = options.rendezvous;
    settings.min_world = min_world_;
    settings.max_world = settings.expected = world_;
    rendezvous::JobSpec job{uid_, net::SecretKey::from_file(key_file_).or_throw()};
    job.settings = settings;
    job.tls = options.tls;
    server_->add_job(std::move(job)).or_throw();
  }
  environment_ = {{env::kRendezvous, net::to_string(endpoint)},
                  {env::kJobUid, uid_},
                  {env::kJobKeyFile, key_file_.string()},
                  {env::kTorchelasticRunId, uid_},
                  {env::kMasterAddr, endpoint.host},
                  {env::kMasterPort, fmt::format("{}", kTransportPort)}};
}

HostRendezvous::~HostRendezvous() {
  std::error_code ignored;
  if (!temporary_dir_.empty()) std::filesystem::remove_all(temporary_dir_, ignored);
}

void HostRendezvous::prepare_key_file(const AgentOptions& options) {
  key_file_ = options.rdzv_key_file;
  if (key_file_.empty()) {
    std::string pattern = std::filesystem::temp_directory_path() / "tilewright-agent-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      throw Failure(ExitCode::kUsage,
                    fmt::format("{} cannot be created: {}", pattern, std::strerror(errno)));
    temporary_dir_ = pattern;
    key_file_ = temporary_dir_ / kJobKeyName;
  }
  key_file_ = std::filesystem::absolute(key_file_);
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

void HostRendezvous::process_exited(int local_rank) {
  if (server_ != nullptr) server_->worker_exited(uid_, worker_index_, local_rank);
}

void HostRendezvous::expect_restart(Duration timeout) {
  if (server_ == nullptr) return;
  server_->expect(uid_, {min_world_, world_, world_, timeout}).or_throw();
}

void HostRendezvous::wait_for_other_hosts(Duration timeout, const net::WakeUp& cancel) {
  if (server_ == nullptr) return;
  const net::Wait wait = net::within(timeout, &cancel);
  while (true) {
    server_->take_changed();
    const auto snapshot = server_->snapshot(uid_);
    if (!snapshot || snapshot->members.empty()) return;
    if (net::wait_ready(server_->changes().fd(), POLLIN, wait) != net::Ready::kYes) return;
  }
}

void HostRendezvous::fail(const std::string& sentence) {
  if (server_ == nullptr) return;
  server_->remove_job(uid_, sentence);
}

}  // namespace tilewright::elastic
