#include "worker/collectives/reducer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <system_error>

#include "common/net/wait.h"
#include "worker/collectives/spin.h"
#include "worker/collectives/sum.h"
#include "worker/runtime/float_mode.h"

namespace tilewright::collectives {
Reducer::Reducer(Mesh& mesh, std::span<const Range> split, int shards, ReducerOptions options)
    : mesh_(mesh), layout_(options.mode, split), options_(std::move(options)) {
  TW_CHECK(layout_.world() == mesh.world(), "shards are split among {} ranks, the mesh has {}",
           layout_.world(), mesh.world());
  TW_CHECK(split.front().begin == 0 && split.back().end == shards,
           "found shards {} to {} on all ranks, expected 0 to {}", split.front().begin,
           split.back().end, shards);
  if (mesh.world() == 1) return;
  for (int stream = 0; stream < mesh.streams(); ++stream) {
    channels_.push_back(std::make_unique<Channel>(mesh, stream, split, options_));
  }
  try {
    for (const auto& channel : channels_) {
      channel->thread = std::thread([this, &channel = *channel] { communication_loop(channel); });
    }
  } catch (const std::system_error& error) {
    stop_threads();
    throw Failure(ExitCode::kMemory,
                  fmt::format("cannot start a communication thread: {}", error.code().message()));
  }
}

Reducer::~Reducer() { stop_threads(); }

void Reducer::wake_threads() {
  changed_.notify_all();
  for (const auto& channel : channels_) channel->wake_up.signal();
}

void Reducer::stop_threads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_threads();
  for (const auto& channel : channels_) {
    if (channel->thread.joinable()) channel->thread.join();
  }
}

const std::vector<Subtree>& Reducer::local_parts() const {
  return layout_.parts_of[static_cast<std::size_t>(mesh_.rank())];
}

void Reducer::throw_if_failed() {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) return;
  }
  stop_threads();  // after this no thread accesses the parts
  throw Failure(*failure_);
}

void Reducer::begin_step(const GradientParts& parts, std::span<const Range> buckets) {
  throw_if_failed();
  mesh_.throw_if_aborted();
  TW_CHECK(static_cast<int>(parts.parts.size()) == parts_expected() && parts.sum != nullptr,
           "{} parts, expected {}", parts.parts.size(), parts_expected());
  for (std::size_t i = 0; i < parts.parts.size(); ++i) {
    TW_CHECK(layout_.mode == ReduceMode::kPlain || parts.parts[i].subtree == local_parts()[i],
             "part {} covers shards {} to {}, expected {} to {}", i, parts.parts[i].subtree.begin,
             parts.parts[i].subtree.end(), local_parts()[i].begin, local_parts()[i].end());
  }
  for (const Range& bucket : buckets) {
    TW_CHECK(0 <= bucket.begin && bucket.begin <= bucket.end && bucket.end <= parts.count,
             "bucket [{}, {}) of {} elements", bucket.begin, bucket.end, parts.count);
  }
  {
    const std::lock_guard lock(mutex_);
    TW_CHECK(!step_begun_, "begin_step() before wait() returned");
    parts_ = parts;
    buckets_.assign(buckets.begin(), buckets.end());
    started_ = 0;
    step_begun_ = true;
    active_channels_ = buckets.empty() ? 0 : static_cast<int>(channels_.size());
    idle_ = Duration::max();
    times_ = {};
  }
  if (buckets.empty()) return;
  for (const auto& channel : channels_) {
    const std::lock_guard driver(channel->driver);
    channel->exchange.begin(parts_, buckets_);
    channel->in_step = true;
    channel->started = 0;
    channel->idle_since.reset();
    channel->idle = {};
    watch_peers(*channel);
  }
}

void Reducer::start(int bucket) {
  start_bucket(bucket);
  for (const auto& channel : channels_) channel->wake_up.signal();
}

void Reducer::start_bucket(int bucket) {
  throw_if_failed();
  {
    const std::lock_guard lock(mutex_);
    TW_CHECK(step_begun_ && bucket == started_ && bucket < static_cast<int>(buckets_.size()),
             "start({}), expected {} of {}", bucket, started_, buckets_.size());
    if (started_++ == 0) exchange_begin_ = monotonic_now();
  }
  if (!channels_.empty()) return;
  const Range& range = buckets_[static_cast<std::size_t>(bucket)];
  std::vector<float*> slots;
  for (const GradientPart& part : parts_.parts) slots.push_back(part.data + range.begin);
  float* const sum = parts_.sum + range.begin;
  run_merges(precision_of(parts_, range), layout_.merges, slots, {&sum, 1}, range.size());
  options_.faults.hit("bucket.done");
}

void Reducer::wait(MonotonicTime deadline) { wait_since(begin_wait(), deadline); }

void Reducer::finish(MonotonicTime deadline) {
  const int last = static_cast<int>(buckets_.size()) - 1;
  if (started_ == last) start_bucket(last);
  const MonotonicTime begin = begin_wait();
  for (std::size_t i = 1; i < channels_.size(); ++i) channels_[i]->wake_up.signal();
  if (!channels_.empty()) {
    Channel& first = *channels_.front();
    if (const std::unique_lock driver(first.driver, std::try_to_lock); driver) {
      // What TCP carries would wake the communication thread, too.
      if (first.exchange.uses_sockets()) first.idle_watch.disarm();
      drive(first, deadline);
    } else {
      first.wake_up.signal();
    }
  }
  wait_since(begin, deadline);
}

MonotonicTime Reducer::begin_wait() {
  const std::lock_guard lock(mutex_);
  waits_ = true;
  return monotonic_now();
}

void Reducer::wait_since(MonotonicTime begin, MonotonicTime deadline) {
  throw_if_failed();
  std::unique_lock lock(mutex_);
  TW_CHECK(step_begun_ && started_ == static_cast<int>(buckets_.size()),
           "wait() with {} of {} buckets started", started_, buckets_.size());
  if (!changed_.wait_until(lock, deadline, [this] { return active_channels_ == 0 || failure_; })) {
    failure_ = Error{ExitCode::kPeerLost,
                     fmt::format("rank {}: the all-reduce of the gradients in membership epoch {} "
                                 "is not finished by the deadline",
                                 mesh_.rank(), mesh_.epoch())};
  }
  if (failure_) {
    lock.unlock();
    throw_if_failed();
  }
  step_begun_ = waits_ = false;
  if (channels_.empty() || started_ == 0) return;
  times_.exchange = exchange_end_ - exchange_begin_ - idle_;
  times_.wait = std::clamp<Duration>(exchange_end_ - begin, Duration::zero(), times_.exchange);
}

// Functions of the thread that transfers.

void Reducer::communication_loop(Channel& channel) {
  runtime::flush_denormals();
  std::unique_lock driver(channel.driver);
  while (drive(channel, MonotonicTime::max())) sleep_idle(channel, driver);
  const std::lock_guard lock(mutex_);
  if (failure_) channel.exchange.send_abort(failure_->message);
}

// Wakes the other threads, too.
void Reducer::fail(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(error);
  }
  wake_threads();
}

// Transfers until no started bucket is pending, or until the deadline. Returns false if the threads
// must end.
bool Reducer::drive(Channel& channel, MonotonicTime deadline) {
  try {
    return transfer(channel, deadline);
  } catch (const Failure& failure) {
    fail(failure.error());
  } catch (const std::exception& problem) {
    fail({ExitCode::kInternal, fmt::format("all-reduce of the gradients: {}", problem.what())});
  }
  return false;
}

bool Reducer::transfer(Channel& channel, MonotonicTime deadline) {
  StepExchange& exchange = channel.exchange;
  MonotonicTime last_progress = monotonic_now();
  if (channel.idle_since) channel.idle += last_progress - *channel.idle_since;
  channel.idle_since.reset();
  std::vector<pollfd> fds;
  while (true) {
    // Before started_ is read, so that no signal is lost.
    if (channel.wake_up.signalled()) channel.wake_up.clear();
    bool has_new_buckets = false, computation_waits = false;
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || failure_) return false;
      if (!channel.in_step) return true;
      has_new_buckets = started_ > channel.started;
      channel.started = started_;
      computation_waits = waits_;
    }
    channel.mesh.throw_if_aborted();
    if (has_new_buckets) exchange.start(channel.started);
    if (exchange.advance() || has_new_buckets) {
      last_progress = monotonic_now();
      continue;
    }
    if (exchange.complete()) {
      finish_step(channel);
      return true;
    }
    const MonotonicTime now = monotonic_now();
    if (!exchange.is_waiting_for_peers()) {
      // The next event depends on the computation, which has no timeout.
      if (channel.started > 0) channel.idle_since = now;
      return true;
    }
    if (computation_waits && now < last_progress + kSpinTime) {
      sched_yield();
      continue;
    }
    if (now >= deadline) return true;
    if (now >= last_progress + options_.idle_timeout) {
      throw Failure(ExitCode::kPeerLost,
                    fmt::format("rank {}: no data transferred for {} in membership epoch {}; "
                                "waiting for {}",
                                mesh_.rank(), format_duration(options_.idle_timeout), mesh_.epoch(),
                                exchange.waiting_for()));
    }
    fds.assign({{channel.wake_up.fd(), POLLIN, 0}, {channel.mesh.cancel_token().fd(), POLLIN, 0}});
    exchange.watch(fds);
    channel.mesh.transport().wait(fds, std::min(deadline, last_progress + options_.idle_timeout));
  }
}

// Lets the communication thread wake up if a peer sends or is lost, or at Mesh::abort().
void Reducer::watch_peers(Channel& channel) {
  if (channel.idle_watch.armed()) return;
  std::vector<pollfd> fds{{channel.mesh.cancel_token().fd(), POLLIN, 0}};
  channel.exchange.watch_idle(fds);
  channel.idle_watch.arm(std::move(fds));
}

// Unlocks `driver` until there may be something to transfer.
void Reducer::sleep_idle(Channel& channel, std::unique_lock<std::mutex>& driver) {
  if (channel.in_step) watch_peers(channel);
  driver.unlock();
  const std::vector<pollfd> ready = channel.idle_watch.wait();
  driver.lock();
  if (ready.empty()) return;
  channel.idle_watch.disarm();
  if (channel.in_step) channel.mesh.transport().note_ready(ready);
}

void Reducer::finish_step(Channel& channel) {
  channel.in_step = false;
  {
    const std::lock_guard lock(mutex_);
    exchange_end_ = monotonic_now();
    idle_ = std::min(idle_, channel.idle);
    --active_channels_;
  }
  changed_.notify_all();
}

}  // namespace tilewright::collectives
