#include "worker/elastic/launched_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/ports.h"
#include "common/host/host.h"
#include "common/net/key_file.h"
#include "common/rendezvous/messages.h"
#include "worker/elastic/host_rendezvous.h"
#include "worker/elastic/local_host.h"

namespace tilewright::elastic {
namespace {

constexpr const char* kKeyInFile = "-";
constexpr std::size_t kMaxAddresses = 16;
constexpr Duration kAttemptTimeout = std::chrono::seconds(2);
constexpr Duration kAttemptPause = std::chrono::milliseconds(200);

std::uint16_t port_from(const GetVariable& environment) {
  const std::string text = environment(env::kMasterPort);
  if (text.empty()) return 0;
  if (const auto port = parse_number<std::uint16_t>(text, 1)) return *port;
  throw Failure(ExitCode::kUsage, fmt::format("{} is \"{}\", expected a port from 1 to 65535",
                                              env::kMasterPort, text));
}

// A directory that only this user can read, for the key of a run on one host.
std::filesystem::path private_directory() {
  std::filesystem::path path =
      temporary_directory().or_throw() / fmt::format("tilewright-{}", geteuid());
  mkdir(path.c_str(), 0700);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & 077) != 0) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("{} cannot hold the secret of the run: expected a directory of user "
                              "{} with mode 700, or {}",
                              path.string(), geteuid(), env::kJobKeyFile));
  }
  return path;
}

}  // namespace

std::string encode_rendezvous(const std::string& uid, const std::string& secret,
                              const std::vector<net::Address>& addresses, std::size_t max_bytes) {
  std::string text = fmt::format("{},{}", uid, secret);
  std::size_t count = 0;
  for (const net::Address& address : addresses) {
    const std::string next = fmt::format(",{}", net::to_string(address));
    if (count == kMaxAddresses || text.size() + next.size() > max_bytes) break;
    text += next;
    ++count;
  }
  TW_CHECK(count > 0, "no address fits into {} bytes", max_bytes);
  return text;
}

Result<SharedRendezvous> decode_rendezvous(std::string_view text) {
  const Error bad{ExitCode::kPeerLost,
                  "the launcher's process manager has a text of another form from rank 0: expected "
                  "the same release of Tilewright for all processes"};
  std::vector<std::string> fields;
  while (fields.size() < kMaxAddresses + 2) {
    const std::size_t comma = text.find(',');
    fields.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  if (fields.size() < 3 || !rendezvous::is_job_uid(fields[0]) || fields[1].empty()) return bad;
  SharedRendezvous shared{fields[0], fields[1], {}};
  for (std::size_t i = 2; i < fields.size(); ++i) {
    auto address = net::parse_address(fields[i]);
    if (!address.ok() || address->host.empty() || address->port == 0) return bad;
    shared.addresses.push_back(std::move(*address));
  }
  return shared;
}

LaunchedGroup::LaunchedGroup(LaunchedProcess process, const GetVariable& environment,
                             std::unique_ptr<ProcessManager> manager, const Options& options,
                             std::shared_ptr<Logger> log)
    : process_(std::move(process)),
      manager_(std::move(manager)),
      options_(options),
      log_(std::move(log)) {
  // The index is the launcher's rank, so that the ranks of an epoch are the launcher's.
  settings_.process = {process_.rank, 0};
  settings_.transport_port = transport_port_from(environment, process_.local_rank);
  settings_.tls = tls_from(environment);
  settings_.single_epoch = true;
  if (manager_ != nullptr) {
    share_through_manager(environment);
  } else {
    use_master_address(environment);
  }
  if (process_.rank == 0) {
    log_->info("{}: {} processes; rank 0 serves the rendezvous at {}", process_.launcher,
               process_.world, net::to_string(*settings_.coordinator));
  }
}

LaunchedGroup::~LaunchedGroup() {
  std::error_code ignored;
  if (process_.rank == 0 && !local_key_file_.empty())
    std::filesystem::remove(local_key_file_, ignored);
}

void LaunchedGroup::serve(const net::Address& listen, const net::SecretKey& key) {
  rendezvous::Server::Options server;
  server.listen = listen;
  rendezvous::JobSpec job{settings_.job_uid, key.clone()};
  job.settings.min_world = job.settings.max_world = job.settings.expected = process_.world;
  job.tls = settings_.tls;
  std::vector<rendezvous::JobSpec> jobs;
  jobs.push_back(std::move(job));
  server_ = rendezvous::Server::start(server, log_, std::move(jobs)).or_throw();
}

// The addresses at which other hosts may reach rank 0, without a port.
std::vector<net::Address> LaunchedGroup::own_addresses(const GetVariable& environment) const {
  if (process_.on_one_host()) return {{"127.0.0.1", 0}};
  if (const std::string master = environment(env::kMasterAddr); !master.empty()) {
    // Only an address of this host can be bound.
    const auto bound = net::Listener::bind({master, 0});
    if (!bound.ok()) {
      throw Failure(
          ExitCode::kUsage,
          fmt::format("{} is {}, which is no address of {}, where rank 0 runs; expected "
                      "the first host of the hostfile ({})",
                      env::kMasterAddr, master, host::host_name(), bound.error().message));
    }
    // A name may stand for a loopback address on its own host.
    if (!is_loopback(bound->local_address().host)) return {{bound->local_address().host, 0}};
  }
  std::vector<net::Address> addresses;
  for (std::string& host : reachable_addresses()) addresses.push_back({std::move(host), 0});
  if (addresses.empty()) {
    throw Failure(ExitCode::kUsage, fmt::format("{} has no network address that other hosts can "
                                                "reach; expected one, or {}",
                                                host::host_name(), env::kMasterAddr));
  }
  return addresses;
}

void LaunchedGroup::share_through_manager(const GetVariable& environment) {
  const net::Wait wait = net::within(options_.start_timeout, options_.cancel);
  settings_.key_file = environment(env::kJobKeyFile);
  if (process_.rank == 0) {
    std::string secret = kKeyInFile;
    if (settings_.key_file.empty()) secret = to_hex(net::SecretKey::random().bytes());
    settings_.key = key_of(secret);
    settings_.job_uid = "mpi-" + to_hex(net::SecretKey::random().bytes().first(8));
    std::vector<net::Address> addresses = own_addresses(environment);
    // On several hosts it listens on all addresses: they may be reached through any.
    serve(process_.on_one_host() ? addresses.front() : net::Address{"", port_from(environment)},
          *settings_.key);
    for (net::Address& address : addresses) address.port = server_->address().port;
    manager_->share(encode_rendezvous(settings_.job_uid, secret, addresses, manager_->max_text()),
                    wait);
    settings_.coordinator = addresses.front();
    return;
  }
  const SharedRendezvous shared = decode_rendezvous(manager_->share("", wait)).or_throw();
  settings_.job_uid = shared.uid;
  settings_.key = key_of(shared.secret);
  settings_.coordinator = first_reachable(shared.addresses);
}

std::shared_ptr<const net::SecretKey> LaunchedGroup::key_of(const std::string& secret) const {
  return std::make_shared<net::SecretKey>(
      secret == kKeyInFile ? net::SecretKey::from_file(settings_.key_file).or_throw()
                           : net::SecretKey::from_bytes(secret).or_throw());
}

net::SecretKey LaunchedGroup::read_or_make_key(const GetVariable& environment) {
  const std::filesystem::path named = environment(env::kJobKeyFile);
  if (!named.empty()) return net::SecretKey::from_file(named).or_throw();
  if (!process_.on_one_host()) {
    throw Failure(
        ExitCode::kUsage,
        fmt::format("{} is not set, expected a copy of the same file on all hosts: {} has no "
                    "key-value space (PMI or PMIx) through which the processes could share a "
                    "secret",
                    env::kJobKeyFile, process_.launcher));
  }
  local_key_file_ = private_directory() / process_.job;
  net::create_key_file(local_key_file_).or_throw();  // keeps that of another rank
  return net::SecretKey::from_file(local_key_file_).or_throw();
}

void LaunchedGroup::use_master_address(const GetVariable& environment) {
  const bool one_host = process_.on_one_host();
  net::Address address{environment(env::kMasterAddr), port_from(environment)};
  if (address.host.empty() && !one_host) {
    throw Failure(
        ExitCode::kUsage,
        fmt::format("{} is not set, expected the address of the host of rank 0: {} has no "
                    "key-value space (PMI or PMIx) through which the processes could "
                    "find it",
                    env::kMasterAddr, process_.launcher));
  }
  if (one_host) address.host = "127.0.0.1";
  if (address.port == 0) address.port = kTransportPort;
  settings_.job_uid = "launched-by-" + process_.job;
  if (!one_host) settings_.job_uid = "launched";  // `job` differs between hosts
  settings_.key = std::make_shared<net::SecretKey>(read_or_make_key(environment));
  settings_.coordinator = address;
  if (process_.rank == 0) {
    serve({one_host ? address.host : "", address.port}, *settings_.key);
  } else {
    settings_.coordinator = first_reachable({address});
  }
}

// Rank 0 may start later than this process if there is no process manager.
net::Address LaunchedGroup::first_reachable(const std::vector<net::Address>& addresses) const {
  const Duration timeout = manager_ != nullptr ? options_.connect_timeout : options_.start_timeout;
  const net::Wait wait = net::within(timeout, options_.cancel);
  std::vector<std::string> errors;
  do {
    errors.clear();
    for (const net::Address& address : addresses) {
      const MonotonicTime until = std::min(wait.deadline, monotonic_now() + kAttemptTimeout);
      const auto socket = net::connect_to(address, {until, wait.cancel});
      if (socket.ok()) return address;
      errors.push_back(socket.error().message);
    }
  } while (net::pause_for(wait, kAttemptPause));
  throw Failure(
      ExitCode::kPeerLost,
      fmt::format("rank {} on {} cannot reach the rendezvous of rank 0 ({}); expected "
                  "open TCP ports between the hosts, or the right {}",
                  process_.rank, host::host_name(), fmt::join(errors, "; "), env::kMasterAddr));
}

void LaunchedGroup::finish() {
  if (server_ != nullptr) {
    wait_until_left(*server_, settings_.job_uid,
                    net::within(options_.finish_timeout, options_.cancel));
  }
  if (manager_ != nullptr) manager_->finish();
}

// A connection to the rendezvous ends with its process. The server closes it earlier if it stays
// silent.
void LaunchedGroup::wait_for_end_of_rank0() const {
  const net::Wait wait = net::within(options_.end_timeout);
  do {
    const auto socket = net::connect_to(
        *settings_.coordinator, {std::min(wait.deadline, monotonic_now() + kAttemptTimeout)});
    if (!socket.ok()) return;
    if (net::wait_ready(socket->fd(), POLLRDHUP, wait) != net::Ready::kYes) return;
  } while (net::pause_for(wait, kAttemptPause));
}

void LaunchedGroup::abort(int code, bool in_epoch) {
  if (in_epoch && process_.rank != 0) wait_for_end_of_rank0();
  if (manager_ != nullptr) manager_->abort(code);
}

}  // namespace tilewright::elastic
