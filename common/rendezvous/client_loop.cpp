// The client's thread: one connection after the other, kept alive by heartbeats.
#include <poll.h>

#include <algorithm>
#include <array>

#include "common/net/tls.h"
#include "common/rendezvous/client_impl.h"

namespace tilewright::rendezvous {
namespace {

// To connect and prove, and to hand a message of some kilobytes to the kernel.
constexpr Duration kConnectTime = std::chrono::seconds(5);
constexpr Duration kSendTime = std::chrono::seconds(5);

}  // namespace

Epoch Client::Impl::epoch() const {
  return (stage_ == Stage::kInEpoch || stage_ == Stage::kFinishing) && held_ ? held_->epoch : 0;
}

Join Client::Impl::registration() const {
  Join join{who(), options_.address, options_.isa, last_checkpoint_step_, after_epoch_, {}};
  if (epoch() != 0) {
    join.after_epoch = 0;
    join.holding = held_;
  }
  return join;
}

void Client::Impl::run() {
  while (wait_for_work()) {
    const Status status = serve_connection();
    {
      const std::scoped_lock lock(mutex_);
      connected_ = false;
      if (!status.ok()) {
        trouble_ = status.error().message;
        log_->debug("rendezvous: {}", trouble_);
      }
    }
    progressed_.signal();
    back_off();
  }
}

// Waits until a connection is of use; false: the client goes. Between the end of an epoch and the
// next join() there is nothing to say to a coordinator that is not connected.
bool Client::Impl::wait_for_work() {
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (stop_) return false;
      wake_.clear();
      if (stage_ == Stage::kJoining || epoch() != 0) return true;
    }
    net::wait_ready(wake_.fd(), POLLIN, net::within(std::chrono::hours(1), &stop_bell_));
  }
}

void Client::Impl::back_off() {
  backoff_ = std::clamp(backoff_ * 2, options_.first_backoff, options_.last_backoff);
  std::uniform_real_distribution<double> part(0.5, 1.0);
  const auto pause = std::chrono::duration_cast<Duration>(backoff_ * part(jitter_));
  net::wait_ready(-1, 0, net::within(pause, &stop_bell_));
}

Status Client::Impl::connect(net::Socket& socket) {
  const net::Wait wait = net::within(kConnectTime, &stop_bell_);
  Result<net::Socket> made = net::connect_to(options_.coordinator, wait);
  if (!made.ok()) return made.error();
  socket = std::move(made).value();
  if (options_.tls) {
    socket.connect_tls(net::TlsKey(key_, proof_context(options_.job_uid)));
    if (Status status = socket.finish_tls(wait); !status.ok()) return status;
  }
  if (Status status = net::write_message(socket, encode_hello(options_.job_uid), wait);
      !status.ok())
    return status;
  return net::authenticate(socket, net::Role::kClient, key_, proof_context(options_.job_uid), wait);
}

Status Client::Impl::serve_connection() {
  net::Socket socket;
  if (Status status = connect(socket); !status.ok()) return status;
  net::MessageReader reader(kMaxMessageBytes);
  last_heard_ = monotonic_now();
  if (Status status = send_due(socket, true); !status.ok()) return status;
  {
    const std::scoped_lock lock(mutex_);
    connected_ = true;
    trouble_ = "the connection was lost";
  }
  backoff_ = {};
  while (true) {
    const MonotonicTime deadline = std::min(next_heartbeat_, last_heard_ + options_.silence);
    pollfd fds[2] = {{socket.fd(), socket.poll_events(POLLIN), 0}, {wake_.fd(), POLLIN, 0}};
    // What TLS has decrypted already is not announced.
    poll(fds, 2, socket.buffered() ? 0 : net::poll_timeout(deadline));
    {
      const std::scoped_lock lock(mutex_);
      if (stop_ || stage_ == Stage::kRefused || stage_ == Stage::kFinished) return {};
    }
    if (fds[0].revents != 0 || socket.buffered()) {
      if (Status status = receive(socket, reader); !status.ok()) return status;
    }
    if (monotonic_now() - last_heard_ >= options_.silence)
      return Error{ExitCode::kPeerLost, "the coordinator has not answered for too long"};
    if (Status status = send_due(socket, false); !status.ok()) return status;
  }
}

// What has to be said now; on a new connection who this is, and in which epoch.
Status Client::Impl::send_due(net::Socket& socket, bool first) {
  std::vector<ClientMessage> messages;
  {
    const std::scoped_lock lock(mutex_);
    wake_.clear();
    if (first || join_to_send_) messages.emplace_back(registration());
    if (epoch() != 0 && (finish_to_send_ || (first && stage_ == Stage::kFinishing))) {
      // What was reported since the last one: nobody would hear of it later.
      messages.emplace_back(Heartbeat{who(), epoch(), progress_});
      messages.emplace_back(Finished{who(), epoch()});
    }
    join_to_send_ = finish_to_send_ = false;
    if (leave_to_send_) messages.emplace_back(Leave{who(), epoch(), *leave_to_send_});
    if (first || monotonic_now() >= next_heartbeat_) {
      next_heartbeat_ = monotonic_now() + options_.heartbeat_interval;
      if (!first) messages.emplace_back(Heartbeat{who(), epoch(), progress_});
    }
  }
  for (const ClientMessage& message : messages) {
    if (Status status = send(socket, message); !status.ok()) return status;
  }
  const std::scoped_lock lock(mutex_);
  if (leave_to_send_) {
    leave_to_send_.reset();
    stage_ = Stage::kRefused;
    reason_ = "this process has left the job";
    epoch_bell_.signal();
    progressed_.signal();
  }
  return {};
}

Status Client::Impl::send(net::Socket& socket, const ClientMessage& message) {
  return net::write_message(socket, encode(message), net::within(kSendTime, &stop_bell_));
}

Status Client::Impl::receive(net::Socket& socket, net::MessageReader& reader) {
  std::array<std::byte, 64 << 10> buffer;
  const Result<std::size_t> got = socket.try_read(buffer);
  if (!got.ok()) return got.error();
  if (*got == 0) return {};
  last_heard_ = monotonic_now();
  reader.append({reinterpret_cast<const char*>(buffer.data()), *got});
  while (true) {
    auto text = reader.next();
    if (!text.ok()) return text.error();
    if (!text->has_value()) return {};
    Result<ServerMessage> message = decode_server_message(**text);
    if (!message.ok()) return message.error();
    const bool over = epoch_bell_.signalled();
    {
      const std::scoped_lock lock(mutex_);
      handle(*message);
    }
    progressed_.signal();
    if (!over && epoch_bell_.signalled()) {
      const std::scoped_lock lock(handler_mutex_);
      call_handler();
    }
  }
}

void Client::Impl::handle(const ServerMessage& message) {
  if (const auto* assignment = std::get_if<Assignment>(&message)) {
    // A second copy, or given up already.
    if (stage_ != Stage::kJoining || join_to_send_ || assignment->epoch <= after_epoch_) return;
    held_ = *assignment;
    taken_ = false;
    stage_ = Stage::kInEpoch;
    reason_.clear();
    epoch_bell_.clear();
  } else if (const auto* end = std::get_if<EndEpoch>(&message)) {
    if (end->job_finished) {
      job_finished_ = true;
      stage_ = stage_ == Stage::kFinishing ? Stage::kFinished : Stage::kRefused;
      end_epoch(end->reason);
    } else if (end->epoch == epoch() && end->epoch != 0) {
      stage_ = Stage::kEnded;
      end_epoch(end->reason);
    }
  } else if (const auto* ask = std::get_if<AskReform>(&message)) {
    if (ask->epoch != epoch()) return;
    reform_asked_ = true;
    reason_ = ask->reason;
  } else if (const auto* refuse = std::get_if<Refuse>(&message)) {
    job_finished_ = refuse->job_finished;
    stage_ = Stage::kRefused;
    end_epoch(refuse->sentence);
  } else if (std::holds_alternative<Acknowledge>(message)) {
    if (stage_ == Stage::kFinishing) stage_ = Stage::kFinished;
  }
}

void Client::Impl::end_epoch(const std::string& reason) {
  reason_ = reason;
  reform_asked_ = false;
  epoch_bell_.signal();
}

}  // namespace tilewright::rendezvous
