#include "common/rendezvous/client.h"

#include <fmt/format.h>
#include <poll.h>

#include <random>
#include <utility>

#include "common/rendezvous/client_impl.h"

namespace tilewright::rendezvous {
namespace {

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

Client::Client(Options options, net::SecretKey key, std::shared_ptr<Logger> log) {
  while (options.incarnation == 0) options.incarnation = random_number();
  impl_ = std::make_unique<Impl>(std::move(options), std::move(key), std::move(log));
}
Client::~Client() = default;

Result<Assignment> Client::join(std::int64_t last_checkpoint_step, const net::Wait& wait) {
  return impl_->join(last_checkpoint_step, wait);
}
void Client::report(Progress progress) { impl_->report(std::move(progress)); }
bool Client::epoch_ended() const { return impl_->epoch_bell().signalled(); }
const net::WakeUp& Client::epoch_bell() const { return impl_->epoch_bell(); }
void Client::on_epoch_end(EpochEndHandler handler) { impl_->on_epoch_end(std::move(handler)); }
bool Client::reform_asked() const { return impl_->reform_asked(); }
std::string Client::reason() const { return impl_->reason(); }
bool Client::connected() const { return impl_->connected(); }
Status Client::finish(const net::Wait& wait) { return impl_->finish(wait); }
void Client::leave(const std::string& reason, const net::Wait& wait) { impl_->leave(reason, wait); }

Client::Impl::Impl(Options options, net::SecretKey key, std::shared_ptr<Logger> log)
    : options_(std::move(options)),
      key_(std::move(key)),
      log_(std::move(log)),
      jitter_(options_.incarnation) {
  epoch_bell_.signal();  // no epoch yet
  thread_ = std::thread([this] { run(); });
}

Client::Impl::~Impl() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  stop_bell_.signal();
  wake_.signal();
  thread_.join();
}

// One thread waits at a time: the bell is cleared by whoever waits.
template <typename Condition>
net::Ready Client::Impl::await(std::unique_lock<std::mutex>& lock, const net::Wait& wait,
                               Condition condition) {
  while (!condition()) {
    progressed_.clear();
    lock.unlock();
    const net::Ready ready = net::wait_ready(progressed_.fd(), POLLIN, wait);
    lock.lock();
    if (ready != net::Ready::kYes && !condition()) return ready;
  }
  return net::Ready::kYes;
}

Result<Assignment> Client::Impl::join(std::int64_t last_checkpoint_step, const net::Wait& wait) {
  std::unique_lock lock(mutex_);
  last_checkpoint_step_ = std::max(last_checkpoint_step_, last_checkpoint_step);
  // An epoch that formed after an earlier call had given up waiting is taken, unless it is over.
  if (stage_ == Stage::kInEpoch && taken_) give_up_epoch();
  net::Ready ready;
  do {
    if (stage_ == Stage::kIdle || stage_ == Stage::kEnded) give_up_epoch();
    ready = await(lock, wait, [this] { return stage_ != Stage::kJoining; });
    // An epoch may be over before this thread has seen it begin.
  } while (ready == net::Ready::kYes && stage_ == Stage::kEnded);
  switch (stage_) {
    case Stage::kInEpoch:
      taken_ = true;
      return *held_;
    case Stage::kRefused:
      return Error{job_finished_ ? ExitCode::kOk : ExitCode::kUnsupported, reason_};
    case Stage::kFinished:
      return Error{ExitCode::kOk, "this process has finished its part of the job"};
    default:
      break;
  }
  if (ready == net::Ready::kCancelled)
    return Error{ExitCode::kInterrupted, "stopped while waiting for the other workers"};
  const std::string coordinator = net::to_string(options_.coordinator);
  if (connected_)
    return Error{ExitCode::kPeerLost,
                 fmt::format("the coordinator at {} has formed no epoch in time: too few workers "
                             "have joined",
                             coordinator)};
  return Error{ExitCode::kPeerLost, fmt::format("the coordinator at {} could not be reached in "
                                                "time: {}",
                                                coordinator, trouble_)};
}

void Client::Impl::give_up_epoch() {
  after_epoch_ = held_ ? held_->epoch : 0;
  held_.reset();
  progress_ = {};
  reform_asked_ = false;
  stage_ = Stage::kJoining;
  join_to_send_ = true;
  epoch_bell_.signal();
  wake_.signal();
}

void Client::Impl::report(Progress progress) {
  const std::scoped_lock lock(mutex_);
  last_checkpoint_step_ = std::max(last_checkpoint_step_, progress.last_checkpoint_step);
  progress_ = std::move(progress);
}

void Client::Impl::on_epoch_end(EpochEndHandler handler) {
  const std::scoped_lock lock(handler_mutex_);
  handler_ = std::move(handler);
  if (epoch_bell_.signalled()) call_handler();
}

void Client::Impl::call_handler() {
  if (handler_) std::exchange(handler_, {})(reason());
}

bool Client::Impl::reform_asked() const {
  const std::scoped_lock lock(mutex_);
  return reform_asked_;
}

std::string Client::Impl::reason() const {
  const std::scoped_lock lock(mutex_);
  const bool over = stage_ == Stage::kEnded || stage_ == Stage::kRefused || reform_asked_;
  return over ? reason_ : "";
}

bool Client::Impl::connected() const {
  const std::scoped_lock lock(mutex_);
  return connected_;
}

Status Client::Impl::finish(const net::Wait& wait) {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::kInEpoch) {
    stage_ = Stage::kFinishing;
    finish_to_send_ = true;
    wake_.signal();
  }
  await(lock, wait, [this] { return stage_ != Stage::kFinishing; });
  if (stage_ == Stage::kFinished || job_finished_) return {};
  if (stage_ == Stage::kFinishing)
    return Error{
        ExitCode::kPeerLost,
        fmt::format("the coordinator at {} did not take down in time that the work is done",
                    net::to_string(options_.coordinator))};
  return Error{ExitCode::kPeerLost,
               fmt::format("the epoch ended before the work was done: {}", reason_)};
}

void Client::Impl::leave(const std::string& reason, const net::Wait& wait) {
  std::unique_lock lock(mutex_);
  leave_to_send_ = reason;
  wake_.signal();
  await(lock, wait, [this] { return !leave_to_send_ || !connected_; });
}

}  // namespace tilewright::rendezvous
