#include "common/rendezvous/client.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/net/message.h"
#include "common/rendezvous/messages.h"
#include "common/rendezvous/open_connection.h"

namespace tilewright::rendezvous {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(5);  // TCP, TLS and proof
constexpr Duration kSendTimeout = std::chrono::seconds(5);     // one message of a few kilobytes

}  // namespace

class Client::Impl {
 public:
  Impl(Options options, net::SecretKey key, std::shared_ptr<Logger> log);
  ~Impl();

  Result<Assignment> join(std::int64_t last_checkpoint_step, const net::Wait& wait);
  void raise_epoch(Epoch epoch);
  void set_isas(std::vector<std::string> isas);
  void report(Progress progress);
  const net::WakeUp& epoch_cancel_token() const { return epoch_cancel_token_; }
  void on_epoch_end(EpochEndHandler handler);
  bool reform_requested() const;
  std::string reason() const;
  bool connected() const;
  bool others_train() const;
  Status finish(const net::Wait& wait);
  void leave(const std::string& reason, const net::Wait& wait);

 private:
  enum class Stage { kIdle, kJoining, kInEpoch, kEnded, kFinishing, kFinished, kRefused };

  // Called on the client's thread.
  void run();
  bool wait_for_work();
  Status serve_connection();
  Status connect(net::Socket& socket);
  void back_off();
  Status send_due(net::Socket& socket, bool first);
  Status send(net::Socket& socket, const ClientMessage& message);
  Status receive(net::Socket& socket, net::MessageReader& reader);
  void handle(const ServerMessage& message);
  void end_epoch(const std::string& reason);

  // Releases the lock until the condition holds (kYes) or the wait ends. Allows one caller at a
  // time, because it clears stage_changed_.
  template <typename Condition>
  net::Ready wait_until(std::unique_lock<std::mutex>& lock, const net::Wait& wait,
                        Condition condition);

  void call_handler();  // requires handler_mutex_

  // Require mutex_.
  void give_up_epoch();
  MemberId who() const { return {options_.process, options_.instance_id}; }
  Epoch epoch() const;
  Join join_message() const;

  const Options options_;
  Clock& clock_;
  const net::SecretKey key_;
  const std::shared_ptr<Logger> log_;
  net::WakeUp wake_up_;     // there is something to send, or a manual clock has advanced
  net::WakeUp stop_token_;  // the client is being destroyed
  net::WakeUp epoch_cancel_token_;
  net::WakeUp stage_changed_;  // the stage or the connection has changed

  std::mutex handler_mutex_;  // taken before mutex_
  EpochEndHandler handler_;

  mutable std::mutex mutex_;
  Stage stage_ = Stage::kIdle;
  std::optional<Assignment> assignment_;  // also in kEnded, until join() gives it up
  bool assignment_returned_ = false;      // join() has returned it
  std::vector<std::string> isas_;
  Epoch raised_epoch_ = 0;
  Epoch after_epoch_ = 0;
  std::int64_t last_checkpoint_step_ = -1;
  Progress progress_;
  bool join_to_send_ = false;
  bool finish_to_send_ = false;
  std::optional<std::string> leave_to_send_;
  bool reform_requested_ = false;
  bool job_finished_ = false;
  ExitCode refusal_ = ExitCode::kUnsupported;  // in kRefused
  std::string reason_;
  std::string last_error_ = "no attempt has been made";  // of the last attempt to connect
  bool connected_ = false;
  bool job_is_running_ = false;  // as the last heartbeat's reply said
  bool stop_ = false;

  // Used only by the client's thread.
  std::mt19937_64 jitter_;
  Duration backoff_{};
  MonotonicTime next_heartbeat_;
  std::optional<MonotonicTime> unanswered_since_;  // the first heartbeat without an answer
  Duration answer_timeout_ = options_.coordinator_timeout;
  Duration heartbeat_interval_ = options_.heartbeat_interval;
  std::thread thread_;
};

// --- calls from the trainer ---

Client::Client(Options options, net::SecretKey key, std::shared_ptr<Logger> log) {
  while (options.instance_id == 0) options.instance_id = random_uint64();
  impl_ = std::make_unique<Impl>(std::move(options), std::move(key), std::move(log));
}
Client::~Client() = default;

Result<Assignment> Client::join(std::int64_t last_checkpoint_step, const net::Wait& wait) {
  return impl_->join(last_checkpoint_step, wait);
}
void Client::raise_epoch(Epoch epoch) { impl_->raise_epoch(epoch); }
void Client::set_isas(std::vector<std::string> isas) { impl_->set_isas(std::move(isas)); }
void Client::report(Progress progress) { impl_->report(std::move(progress)); }
bool Client::epoch_ended() const { return impl_->epoch_cancel_token().signalled(); }
const net::WakeUp& Client::epoch_cancel_token() const { return impl_->epoch_cancel_token(); }
void Client::on_epoch_end(EpochEndHandler handler) { impl_->on_epoch_end(std::move(handler)); }
bool Client::reform_requested() const { return impl_->reform_requested(); }
std::string Client::reason() const { return impl_->reason(); }
bool Client::connected() const { return impl_->connected(); }
bool Client::others_train() const { return impl_->others_train(); }
Status Client::finish(const net::Wait& wait) { return impl_->finish(wait); }
void Client::leave(const std::string& reason, const net::Wait& wait) { impl_->leave(reason, wait); }

Client::Impl::Impl(Options options, net::SecretKey key, std::shared_ptr<Logger> log)
    : options_(std::move(options)),
      clock_(*options_.clock),
      key_(std::move(key)),
      log_(std::move(log)),
      isas_(options_.isas),
      jitter_(options_.instance_id) {
  epoch_cancel_token_.signal();  // no epoch yet
  clock_.subscribe(this, [this] { wake_up_.signal(); });
  thread_ = std::thread([this] { run(); });
}

Client::Impl::~Impl() {
  clock_.unsubscribe(this);
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  stop_token_.signal();
  wake_up_.signal();
  thread_.join();
}

template <typename Condition>
net::Ready Client::Impl::wait_until(std::unique_lock<std::mutex>& lock, const net::Wait& wait,
                                    Condition condition) {
  while (!condition()) {
    stage_changed_.clear();
    lock.unlock();
    const net::Ready ready = net::wait_ready(stage_changed_.fd(), POLLIN, wait);
    lock.lock();
    if (ready != net::Ready::kYes && !condition()) return ready;
  }
  return net::Ready::kYes;
}

Result<Assignment> Client::Impl::join(std::int64_t last_checkpoint_step, const net::Wait& wait) {
  std::unique_lock lock(mutex_);
  last_checkpoint_step_ = std::max(last_checkpoint_step_, last_checkpoint_step);
  // Keep an epoch that formed after an earlier call timed out: join() has not returned it yet.
  if (stage_ == Stage::kInEpoch && assignment_returned_) give_up_epoch();
  net::Ready ready;
  do {
    if (stage_ == Stage::kIdle || stage_ == Stage::kEnded) give_up_epoch();
    ready = wait_until(lock, wait, [this] { return stage_ != Stage::kJoining; });
    // An epoch may form and end while this thread waits.
  } while (ready == net::Ready::kYes && stage_ == Stage::kEnded);
  switch (stage_) {
    case Stage::kInEpoch:
      assignment_returned_ = true;
      return *assignment_;
    case Stage::kRefused:
      return Error{refusal_, reason_};
    case Stage::kFinished:
      return Error{ExitCode::kOk, "this process has already finished its part of the job"};
    default:
      break;
  }
  if (ready == net::Ready::kCancelled)
    return Error{ExitCode::kInterrupted, "stopped while waiting for the other workers"};
  const std::string coordinator = net::to_string(options_.coordinator);
  if (connected_)
    return Error{ExitCode::kPeerLost,
                 fmt::format("the coordinator at {} formed no membership epoch in time: too "
                             "few workers have joined",
                             coordinator)};
  return Error{ExitCode::kPeerLost, fmt::format("cannot reach the coordinator at {} in "
                                                "time: {}",
                                                coordinator, last_error_)};
}

void Client::Impl::give_up_epoch() {
  after_epoch_ = std::max(raised_epoch_, assignment_ ? assignment_->epoch : 0);
  assignment_.reset();
  progress_ = {};
  reform_requested_ = false;
  stage_ = Stage::kJoining;
  join_to_send_ = true;
  epoch_cancel_token_.signal();
  wake_up_.signal();
}

void Client::Impl::raise_epoch(Epoch epoch) {
  const std::scoped_lock lock(mutex_);
  // No message can carry a number above kMaxEpoch.
  if (epoch < kMaxEpoch) raised_epoch_ = std::max(raised_epoch_, epoch);
}

void Client::Impl::set_isas(std::vector<std::string> isas) {
  const std::scoped_lock lock(mutex_);
  isas_ = std::move(isas);
}

void Client::Impl::report(Progress progress) {
  const std::scoped_lock lock(mutex_);
  last_checkpoint_step_ = std::max(last_checkpoint_step_, progress.last_checkpoint_step);
  progress_ = std::move(progress);
}

void Client::Impl::on_epoch_end(EpochEndHandler handler) {
  const std::scoped_lock lock(handler_mutex_);
  handler_ = std::move(handler);
  if (epoch_cancel_token_.signalled()) call_handler();
}

void Client::Impl::call_handler() {
  if (handler_) std::exchange(handler_, {})(reason());
}

bool Client::Impl::reform_requested() const {
  const std::scoped_lock lock(mutex_);
  return reform_requested_;
}

std::string Client::Impl::reason() const {
  const std::scoped_lock lock(mutex_);
  const bool over = stage_ == Stage::kEnded || stage_ == Stage::kRefused || reform_requested_;
  return over ? reason_ : "";
}

bool Client::Impl::connected() const {
  const std::scoped_lock lock(mutex_);
  return connected_;
}

bool Client::Impl::others_train() const {
  const std::scoped_lock lock(mutex_);
  return connected_ && stage_ == Stage::kJoining && job_is_running_;
}

Status Client::Impl::finish(const net::Wait& wait) {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::kInEpoch) {
    stage_ = Stage::kFinishing;
    finish_to_send_ = true;
    wake_up_.signal();
  }
  wait_until(lock, wait, [this] { return stage_ != Stage::kFinishing; });
  if (stage_ == Stage::kFinished || job_finished_) return {};
  if (stage_ == Stage::kFinishing)
    return Error{ExitCode::kPeerLost,
                 fmt::format("the coordinator at {} did not confirm in time that the work is done",
                             net::to_string(options_.coordinator))};
  return Error{
      ExitCode::kPeerLost,
      fmt::format("the membership epoch ended before the coordinator confirmed that the work is "
                  "done: {}",
                  reason_)};
}

void Client::Impl::leave(const std::string& reason, const net::Wait& wait) {
  std::unique_lock lock(mutex_);
  leave_to_send_ = reason;
  wake_up_.signal();
  wait_until(lock, wait, [this] { return !leave_to_send_ || !connected_; });
}

// --- the client's thread: serves one connection at a time and reconnects ---

Epoch Client::Impl::epoch() const {
  return (stage_ == Stage::kInEpoch || stage_ == Stage::kFinishing) && assignment_
             ? assignment_->epoch
             : 0;
}

Join Client::Impl::join_message() const {
  Join join{who(), options_.address, isas_, last_checkpoint_step_, after_epoch_, {}};
  if (epoch() != 0) {
    join.after_epoch = 0;
    join.held_assignment = assignment_;
  }
  return join;
}

void Client::Impl::run() {
  while (wait_for_work()) {
    const Status status = serve_connection();
    {
      const std::scoped_lock lock(mutex_);
      connected_ = job_is_running_ = false;
      if (!status.ok()) {
        last_error_ = status.error().message;
        log_->debug("rendezvous: {}", last_error_);
      }
    }
    stage_changed_.signal();
    back_off();
  }
}

// Waits until a connection is needed. Returns false if the client is being destroyed. Between the
// end of an epoch and the next join() the client has nothing to send and does not reconnect.
bool Client::Impl::wait_for_work() {
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (stop_) return false;
      wake_up_.clear();
      if (stage_ == Stage::kJoining || epoch() != 0) return true;
    }
    net::wait_ready(wake_up_.fd(), POLLIN, net::within(kLongestWait, &stop_token_));
  }
}

void Client::Impl::back_off() {
  backoff_ = std::clamp(backoff_ * 2, options_.min_backoff, options_.max_backoff);
  std::uniform_real_distribution<double> part(0.5, 1.0);
  const auto pause = std::chrono::duration_cast<Duration>(backoff_ * part(jitter_));
  net::sleep_until(net::within(pause, &stop_token_));
}

Status Client::Impl::connect(net::Socket& socket) {
  const net::Wait wait = net::within(kConnectTimeout, &stop_token_);
  Result<net::Socket> made =
      open_connection(options_.coordinator, options_.job_uid, key_, options_.tls, wait);
  if (!made.ok()) return made.error();
  socket = std::move(made).value();
  return {};
}

Status Client::Impl::serve_connection() {
  net::Socket socket;
  if (Status status = connect(socket); !status.ok()) return status;
  net::MessageReader reader(kMaxMessageBytes);
  unanswered_since_.reset();
  if (Status status = send_due(socket, true); !status.ok()) return status;
  {
    const std::scoped_lock lock(mutex_);
    connected_ = true;
    last_error_ = "the connection was lost";
  }
  backoff_ = {};
  while (true) {
    MonotonicTime deadline = next_heartbeat_;
    if (unanswered_since_) deadline = std::min(deadline, *unanswered_since_ + answer_timeout_);
    pollfd fds[2] = {{socket.fd(), socket.poll_events(POLLIN), 0}, {wake_up_.fd(), POLLIN, 0}};
    // poll(2) does not report bytes that TLS has already decrypted.
    poll(fds, 2, socket.buffered() ? 0 : net::poll_timeout(deadline, clock_.now()));
    {
      const std::scoped_lock lock(mutex_);
      wake_up_.clear();  // before the state is read: a later change signals again
      if (stop_ || stage_ == Stage::kRefused || stage_ == Stage::kFinished) return {};
    }
    if (fds[0].revents != 0 || socket.buffered()) {
      if (Status status = receive(socket, reader); !status.ok()) return status;
    }
    if (unanswered_since_ && clock_.now() - *unanswered_since_ >= answer_timeout_)
      return Error{ExitCode::kPeerLost, fmt::format("the coordinator has not answered for {:.3g} s",
                                                    in_seconds(answer_timeout_))};
    if (Status status = send_due(socket, false); !status.ok()) return status;
  }
}

// Sends all due messages. On a new connection (`first`) it sends a join, which contains the held
// epoch.
Status Client::Impl::send_due(net::Socket& socket, bool first) {
  std::vector<ClientMessage> messages;
  bool leaves = false;
  {
    const std::scoped_lock lock(mutex_);
    if (first || join_to_send_) messages.emplace_back(join_message());
    if (epoch() != 0 && (finish_to_send_ || (first && stage_ == Stage::kFinishing))) {
      // Send the last progress now: heartbeats after Finished would be stale.
      messages.emplace_back(Heartbeat{who(), epoch(), progress_});
      messages.emplace_back(Finished{who(), epoch()});
    }
    join_to_send_ = finish_to_send_ = false;
    leaves = leave_to_send_.has_value();
    if (leaves) messages.emplace_back(Leave{who(), *leave_to_send_});
    if (first || clock_.now() >= next_heartbeat_) {
      next_heartbeat_ = clock_.now() + heartbeat_interval_;
      if (!first) {
        messages.emplace_back(Heartbeat{who(), epoch(), progress_});
        if (!unanswered_since_) unanswered_since_ = clock_.now();
      }
    }
  }
  for (const ClientMessage& message : messages) {
    if (Status status = send(socket, message); !status.ok()) return status;
  }
  if (leaves) {
    const std::scoped_lock lock(mutex_);
    leave_to_send_.reset();
    stage_ = Stage::kRefused;
    reason_ = "this process left the job";
    epoch_cancel_token_.signal();
    stage_changed_.signal();
  }
  return {};
}

Status Client::Impl::send(net::Socket& socket, const ClientMessage& message) {
  return net::write_message(socket, encode(message), net::within(kSendTimeout, &stop_token_));
}

Status Client::Impl::receive(net::Socket& socket, net::MessageReader& reader) {
  std::array<std::byte, 64 << 10> buffer;
  const Result<std::size_t> got = socket.try_read(buffer);
  if (!got.ok()) return got.error();
  if (*got == 0) return {};
  unanswered_since_.reset();
  reader.append({reinterpret_cast<const char*>(buffer.data()), *got});
  while (true) {
    auto text = reader.next();
    if (!text.ok()) return text.error();
    if (!text->has_value()) return {};
    Result<ServerMessage> message = decode_server_message(**text);
    if (!message.ok()) return message.error();
    if (const auto* unavailable = std::get_if<Unavailable>(&*message)) {
      backoff_ = options_.max_backoff;
      return Error{ExitCode::kPeerLost,
                   fmt::format("the coordinator closed the connection: {}", unavailable->reason)};
    }
    const bool over = epoch_cancel_token_.signalled();
    {
      const std::scoped_lock lock(mutex_);
      handle(*message);
    }
    stage_changed_.signal();
    if (!over && epoch_cancel_token_.signalled()) {
      const std::scoped_lock lock(handler_mutex_);
      call_handler();
    }
  }
}

void Client::Impl::handle(const ServerMessage& message) {
  if (const auto* assignment = std::get_if<Assignment>(&message)) {
    // Ignore a duplicate, and the assignment of an epoch that join() has given up.
    if (stage_ != Stage::kJoining || join_to_send_ || assignment->epoch <= after_epoch_) return;
    assignment_ = *assignment;
    assignment_returned_ = false;
    stage_ = Stage::kInEpoch;
    reason_.clear();
    epoch_cancel_token_.clear();
  } else if (const auto* end = std::get_if<EndEpoch>(&message)) {
    if (end->job_finished) {
      job_finished_ = true;
      refusal_ = ExitCode::kOk;
      stage_ = stage_ == Stage::kFinishing ? Stage::kFinished : Stage::kRefused;
      end_epoch(end->reason);
    } else if (end->epoch == epoch() && end->epoch != 0) {
      stage_ = Stage::kEnded;
      end_epoch(end->reason);
    }
  } else if (const auto* ask = std::get_if<RequestReform>(&message)) {
    if (ask->epoch != epoch()) return;
    reform_requested_ = true;
    reason_ = ask->reason;
  } else if (const auto* refuse = std::get_if<Refuse>(&message)) {
    job_finished_ = refuse->job_finished;
    refusal_ = refuse->replaced ? ExitCode::kReplaced : ExitCode::kUnsupported;
    if (job_finished_) refusal_ = ExitCode::kOk;
    stage_ = Stage::kRefused;
    end_epoch(refuse->message);
  } else if (const auto* reply = std::get_if<HeartbeatReply>(&message)) {
    job_is_running_ = reply->running;
    if (reply->heartbeat_timeout > Duration::zero()) {
      answer_timeout_ = std::min(options_.coordinator_timeout, reply->heartbeat_timeout / 3);
      heartbeat_interval_ = std::min(options_.heartbeat_interval, answer_timeout_ / 3);
    }
  } else if (std::holds_alternative<Acknowledge>(message)) {
    if (stage_ == Stage::kFinishing) stage_ = Stage::kFinished;
  }
}

void Client::Impl::end_epoch(const std::string& reason) {
  reason_ = reason;
  reform_requested_ = false;
  epoch_cancel_token_.signal();
}

}  // namespace tilewright::rendezvous
