#include "worker/elastic/session.h"

#include <fmt/format.h>
#include <poll.h>

#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/rendezvous/messages.h"

namespace tilewright::elastic {
namespace {

int integer_from_environment(const GetVariable& environment, const char* name, int most) {
  const std::string text = environment(name);
  if (text.empty()) return 0;
  if (const auto value = parse_number<int>(text, 0, most)) return *value;
  throw Failure(ExitCode::kUsage,
                fmt::format("{} is \"{}\", expected an integer from 0 to {}", name, text, most));
}

std::string required_variable(const GetVariable& environment, const char* name) {
  std::string text = environment(name);
  if (text.empty())
    throw Failure(ExitCode::kUsage, fmt::format("{} is not set, expected a value because {} is set",
                                                name, env::kRendezvous));
  return text;
}

}  // namespace

std::uint16_t transport_port_from(const GetVariable& environment, int local_rank) {
  constexpr int kMaxPort = 65535;
  const int first = integer_from_environment(environment, env::kTransportPort, kMaxPort);
  if (first == 0) return 0;
  if (first + local_rank > kMaxPort)
    throw Failure(
        ExitCode::kUsage,
        fmt::format("{} is \"{}\", expected at most {} for a process of {} {}", env::kTransportPort,
                    first, kMaxPort - local_rank, env::kLocalRank, local_rank));
  return static_cast<std::uint16_t>(first + local_rank);
}

bool tls_from(const GetVariable& environment) {
  const std::string tls = environment(env::kTls);
  if (!tls.empty() && tls != "true" && tls != "false")
    throw Failure(ExitCode::kUsage,
                  fmt::format("{} is \"{}\", expected true or false", env::kTls, tls));
  return tls == "true";
}

SessionSettings settings_from_environment(const GetVariable& environment) {
  SessionSettings settings;
  settings.job_uid = environment(env::kJobUid);
  settings.process.worker_index =
      integer_from_environment(environment, env::kWorkerIndex, rendezvous::kMaxWorkerIndex);
  // Also without a coordinator: it owns the output.
  if (!settings.job_uid.empty() && !rendezvous::is_job_uid(settings.job_uid))
    throw Failure(
        ExitCode::kUsage,
        fmt::format("{} is {}, expected 1 to {} letters, digits, '-', '_', '.' and ':'",
                    env::kJobUid, quoted_excerpt(settings.job_uid), rendezvous::kMaxUidBytes));
  settings.process.local_rank =
      integer_from_environment(environment, env::kLocalRank, rendezvous::kMaxLocalRank);
  settings.transport_host = environment(env::kTransportAddress);
  settings.transport_port = transport_port_from(environment, settings.process.local_rank);
  const std::string coordinator = environment(env::kRendezvous);
  if (coordinator.empty()) return settings;
  const auto address = net::parse_address(coordinator);
  if (!address.ok() || address->host.empty() || address->port == 0)
    throw Failure(ExitCode::kUsage,
                  fmt::format("{} is \"{}\", expected host:port", env::kRendezvous, coordinator));
  settings.coordinator = *address;
  required_variable(environment, env::kJobUid);
  settings.uid_of_agent = environment(env::kTorchelasticRunId) == settings.job_uid;
  settings.key_file = required_variable(environment, env::kJobKeyFile);
  settings.tls = tls_from(environment);
  settings.interface = interface_choice(environment);
  constexpr int kMaxJoinSeconds = 10'000'000;
  if (const int seconds = integer_from_environment(environment, env::kJoinTimeout, kMaxJoinSeconds);
      seconds > 0)
    settings.join_timeout = std::chrono::seconds(seconds);
  return settings;
}

Session::Session(SessionSettings settings, const StopSignals* signals, std::shared_ptr<Logger> log)
    : settings_(std::move(settings)), signals_(signals), log_(std::move(log)) {
  if (!settings_.coordinator) return;
  key_ = settings_.key != nullptr ? settings_.key->clone()
                                  : net::SecretKey::from_file(settings_.key_file).or_throw();
}

const net::SecretKey& Session::key() const {
  TW_CHECK(key_.has_value(), "a standalone process has no key");
  return *key_;
}

net::Address Session::address() const {
  if (!settings_.coordinator) return {"127.0.0.1", settings_.transport_port};
  if (!settings_.transport_host.empty())
    return {settings_.transport_host, settings_.transport_port};
  const net::Wait wait = net::within(settings_.join_timeout,
                                     signals_ != nullptr ? &signals_->cancel_token() : nullptr);
  auto socket = net::connect_to(*settings_.coordinator, wait, net::Retry::kUntilDeadline);
  if (const auto code = stopped())
    throw Failure(*code, "stopped while connecting to the coordinator");
  if (!socket.ok()) throw Failure(socket.error());
  const std::string local = socket->local_address().or_throw().host;
  const std::vector<NetworkInterface> interfaces =
      settings_.interface.variable.empty() ? std::vector<NetworkInterface>() : network_interfaces();
  return {chosen_address(settings_.interface, interfaces, local).or_throw(),
          settings_.transport_port};
}

void Session::advertise_address(const net::Address& transport) {
  TW_CHECK(client_ == nullptr, "advertise_address() after the first join()");
  address_ = net::to_string(transport);
}

void Session::set_isas(std::vector<std::string> isas) {
  isas_ = std::move(isas);
  if (client_ != nullptr) client_->set_isas(isas_);
}

std::optional<rendezvous::Assignment> Session::join(std::int64_t last_checkpoint_step) {
  if (const auto code = stopped()) throw Failure(*code, "stopped before the next membership epoch");
  TW_CHECK(!isas_.empty(), "join() before set_isas()");
  if (!settings_.coordinator) {
    rendezvous::Assignment assignment;
    assignment.isa = isas_.back();
    assignment.epoch = ++standalone_epoch_;
    assignment.resume_step = last_checkpoint_step;
    has_joined_ = true;
    return assignment;
  }
  if (client_ == nullptr) {
    TW_CHECK(!address_.empty(), "join() before advertise_address()");
    rendezvous::Client::Options options;
    options.coordinator = *settings_.coordinator;
    options.job_uid = settings_.job_uid;
    options.process = settings_.process;
    options.address = address_;
    options.isas = isas_;
    options.tls = settings_.tls;
    options.heartbeat_interval = settings_.heartbeat_interval;
    client_ = std::make_unique<rendezvous::Client>(std::move(options), key_->clone(), log_);
  }
  const auto join = [&] {
    return client_->join(
        last_checkpoint_step,
        net::within(settings_.join_timeout, signals_ ? &signals_->cancel_token() : nullptr));
  };
  auto assignment = join();
  for (bool said = false; !assignment.ok() && !stopped() && client_->others_train(); said = true) {
    if (!said) log_->info("rendezvous: waiting, because the job trains with the other workers");
    assignment = join();
  }
  if (assignment.ok()) {
    has_joined_ = true;
    return std::move(assignment).value();
  }
  if (assignment.error().code == ExitCode::kOk) {
    log_->info("rendezvous: {}", assignment.error().message);
    return std::nullopt;
  }
  throw Failure(stopped().value_or(assignment.error().code), assignment.error().message);
}

void Session::raise_epoch(rendezvous::Epoch epoch) {
  if (client_ != nullptr) client_->raise_epoch(epoch);
}

void Session::report(const rendezvous::Progress& progress) {
  if (client_ != nullptr) client_->report(progress);
}

const net::WakeUp& Session::epoch_cancel_token() const {
  return client_ != nullptr ? client_->epoch_cancel_token() : never_cancelled_;
}

void Session::on_epoch_end(rendezvous::Client::EpochEndHandler handler) {
  if (client_ != nullptr) client_->on_epoch_end(std::move(handler));
}

bool Session::stop_requested() const {
  return stopped().has_value() || (client_ != nullptr && client_->reform_requested());
}

std::optional<ExitCode> Session::stopped() const {
  return signals_ != nullptr ? signals_->exit_code() : std::nullopt;
}

bool Session::sleep(Duration duration) const {
  const net::Wait wait = net::within(duration, signals_ ? &signals_->cancel_token() : nullptr);
  return net::wait_ready(epoch_cancel_token().fd(), POLLIN, wait) == net::Ready::kTimedOut;
}

std::string Session::reason() const { return client_ != nullptr ? client_->reason() : ""; }

bool Session::finish() {
  if (client_ == nullptr) return true;
  const Status status = client_->finish(net::within(settings_.finish_timeout));
  if (status.ok()) return true;
  log_->warn("rendezvous: {}", status.error().message);
  return !client_->epoch_ended();
}

void Session::leave(const std::string& reason) {
  if (client_ != nullptr) client_->leave(reason, net::within(std::chrono::seconds(2)));
}

}  // namespace tilewright::elastic
