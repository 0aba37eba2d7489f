#include "controller/client/elector.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tilewright::kube {

Elector::Elector(ElectorSettings settings, Jitter jitter)
    : settings_(std::move(settings)), jitter_(std::move(jitter)) {
  TW_CHECK(!settings_.identity.empty(), "an elector needs an identity");
  TW_CHECK(settings_.lease_duration > settings_.renew_deadline &&
               settings_.renew_deadline > settings_.retry_period,
           "lease duration must exceed renew deadline, which must exceed retry period");
}

// 1 to 2.2 periods (client-go's jitter factor), so that candidates do not retry at the same time.
Duration Elector::candidate_delay() const {
  const Duration period = settings_.retry_period;
  return period + std::chrono::duration_cast<Duration>(period * (1.2 * jitter_()));
}

bool Elector::can_acquire(MonotonicTime now) const {
  if (record_.holder.empty() || is_holder()) return true;
  const Duration holder_duration = std::chrono::seconds(record_.lease_seconds);
  return now >= observed_time_ + std::max(holder_duration, settings_.lease_duration);
}

Elector::Action Elector::next(MonotonicTime now, WallTime wall) {
  if (leading_ && now >= valid_until_) {
    leading_ = false;
    fresh_ = false;
  }
  Action action;
  if (now < next_try_) {
    action.until = leading_ ? std::min(next_try_, valid_until_) : next_try_;
    return action;
  }
  tried_ = now;
  // As in client-go: a request without an answer leaves time for another one.
  action.until = now + settings_.renew_deadline / 2;
  if (leading_) action.until = std::min(action.until, valid_until_);
  if (known_ == Known::kNothing || !fresh_) {
    action.kind = Action::Kind::kRead;
    return action;
  }
  action.record.holder = settings_.identity;
  action.record.lease_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(settings_.lease_duration).count();
  action.record.renew_time = to_micro_time(wall);
  action.record.acquire_time = action.record.renew_time;
  if (known_ == Known::kAbsent) {
    action.kind = Action::Kind::kCreate;
    return action;
  }
  action.kind = Action::Kind::kUpdate;
  action.resource_version = resource_version_;
  if (is_holder()) action.record.acquire_time = record_.acquire_time;
  action.record.transitions = record_.transitions + (is_holder() ? 0 : 1);
  return action;
}

void Elector::on_read(MonotonicTime now, const LeaseRecord& record,
                      const std::string& resource_version) {
  if (known_ != Known::kRecord || record != record_ || resource_version != resource_version_) {
    record_ = record;
    resource_version_ = resource_version;
    observed_time_ = now;
  }
  known_ = Known::kRecord;
  if (!is_holder()) leading_ = false;
  fresh_ = can_acquire(now);
  next_try_ = fresh_ ? now : now + candidate_delay();
}

void Elector::on_absent(MonotonicTime now) {
  known_ = Known::kAbsent;
  record_ = {};
  fresh_ = true;
  next_try_ = now;
}

void Elector::on_written(MonotonicTime sent, MonotonicTime now, const LeaseRecord& record,
                         const std::string& resource_version) {
  known_ = Known::kRecord;
  record_ = record;
  resource_version_ = resource_version;
  observed_time_ = now;
  leading_ = true;
  valid_until_ = sent + settings_.renew_deadline;
  fresh_ = true;
  next_try_ = now + settings_.retry_period;
}

void Elector::on_failed(MonotonicTime now, FailureKind kind) {
  fresh_ = false;
  if (leading_) {
    next_try_ =
        kind == FailureKind::kConflict ? now : std::max(now, tried_ + settings_.retry_period);
  } else {
    next_try_ = now + candidate_delay();
  }
}

std::optional<Elector::Action> Elector::release(MonotonicTime now, WallTime wall) {
  if (!leading(now) || !is_holder()) return std::nullopt;
  Action action;
  action.kind = Action::Kind::kUpdate;
  action.until = valid_until_;
  action.record = record_;
  action.record.holder.clear();
  action.record.lease_seconds = 1;
  action.record.renew_time = to_micro_time(wall);
  action.record.acquire_time = action.record.renew_time;
  action.resource_version = resource_version_;
  leading_ = false;
  fresh_ = false;
  return action;
}

}  // namespace tilewright::kube
