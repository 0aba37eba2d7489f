#include "worker/elastic/host_rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/file_descriptor.h"
#include "common/base/text.h"
#include "common/contract/environment.h"
#include "common/contract/ports.h"

namespace tilewright::elastic {
namespace {

// A new secret for its owner's eyes only. A file that is there already is left as it is.
void make_key(const std::filesystem::path& path) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0 && errno == EEXIST) return;
  const std::string text = to_hex(net::SecretKey::random().bytes());
  if (file.get() < 0 || write(file.get(), text.data(), text.size()) != ssize_t(text.size()))
    throw Failure(ExitCode::kUsage, fmt::format("--rdzv_key_file: {} cannot be written: {}",
                                                path.string(), std::strerror(errno)));
}

}  // namespace

HostRendezvous::HostRendezvous(const AgentOptions& options, std::shared_ptr<Logger> log) {
  if (options.coordinated) return;
  provide_key(options);
  uid_ = options.rdzv_id.empty() ? "agent-" + to_hex(net::SecretKey::random().bytes().first(8))
                                 : options.rdzv_id;
  min_world_ = options.min_nodes * options.nproc_per_node;
  world_ = options.max_nodes * options.nproc_per_node;
  net::Address endpoint = options.rdzv_endpoint.value_or(net::Address{"127.0.0.1", 0});
  if (options.node_rank == 0) {
    rendezvous::Server::Options server;
    // Other hosts know this one by the endpoint's name, which need not be a local address' name.
    server.listen = {options.max_nodes == 1 ? endpoint.host : "", endpoint.port};
    server_ = rendezvous::Server::start(server, std::move(log)).or_throw();
    endpoint.port = server_->address().port;
    rendezvous::Settings settings = options.rendezvous;
    settings.min_world = min_world_;
    settings.max_world = settings.expected = world_;
    server_
        ->add_job({uid_, net::SecretKey::from_file(key_file_).or_throw(), settings, 0, options.tls})
        .or_throw();
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
  if (!own_folder_.empty()) std::filesystem::remove_all(own_folder_, ignored);
}

void HostRendezvous::provide_key(const AgentOptions& options) {
  key_file_ = options.rdzv_key_file;
  if (key_file_.empty()) {
    std::string pattern = std::filesystem::temp_directory_path() / "tilewright-agent-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      throw Failure(ExitCode::kUsage,
                    fmt::format("{} cannot be made: {}", pattern, std::strerror(errno)));
    own_folder_ = pattern;
    key_file_ = own_folder_ / kJobKeyName;
  }
  if (options.max_nodes == 1) make_key(key_file_);
  key_file_ = std::filesystem::absolute(key_file_);
  net::SecretKey::from_file(key_file_).or_throw();
}

void HostRendezvous::expect_restart(Duration patience) {
  if (server_ == nullptr) return;
  server_->expect(uid_, {min_world_, world_, world_, patience}).or_throw();
}

void HostRendezvous::await_others(Duration limit, const net::WakeUp& cancel) {
  if (server_ == nullptr) return;
  const net::Wait wait = net::within(limit, &cancel);
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
