// The moves of the election.
#include "controller/kube/elector.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tilewright::kube {

Elector::Elector(ElectorSettings settings, Jitter jitter)
    : settings_(std::move(settings)), jitter_(std::move(jitter)) {
  TW_CHECK(!settings_.identity.empty(), "an elector needs an identity");
  TW_CHECK(settings_.lease_duration > settings_.renew_deadline &&
               settings_.renew_deadline > settings_.retry_period,
           "lease duration, renew deadline and retry period must fall in this order");
}

// client-go's factor: between one and 2.2 periods, so that candidates do not come at once.
Duration Elector::candidate_delay() const {
  const Duration period = settings_.retry_period;
  return period + std::chrono::duration_cast<Duration>(period * (1.2 * jitter_()));
}

bool Elector::takeable(MonotonicTime now) const {
  if (record_.holder.empty() || mine()) return true;
  const Duration promised = std::chrono::seconds(record_.lease_seconds);
  return now >= since_ + std::max(promised, settings_.lease_duration);
}

Elector::Act Elector::next(MonotonicTime now, WallTime wall) {
  if (leading_ && now >= valid_until_) {
    leading_ = false;
    fresh_ = false;
  }
  Act act;
  if (now < next_try_) {
    act.until = leading_ ? std::min(next_try_, valid_until_) : next_try_;
    return act;
  }
  act.until = leading_ ? valid_until_ : now + settings_.renew_deadline;
  if (known_ == Known::kNothing || !fresh_) {
    act.kind = Act::Kind::kRead;
    return act;
  }
  act.record.holder = settings_.identity;
  act.record.lease_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(settings_.lease_duration).count();
  act.record.renew_time = to_micro_time(wall);
  act.record.acquire_time = act.record.renew_time;
  if (known_ == Known::kAbsent) {
    act.kind = Act::Kind::kCreate;
    return act;
  }
  act.kind = Act::Kind::kUpdate;
  act.resource_version = resource_version_;
  if (mine()) act.record.acquire_time = record_.acquire_time;
  act.record.transitions = record_.transitions + (mine() ? 0 : 1);
  return act;
}

void Elector::read(MonotonicTime now, const LeaseRecord& record,
                   const std::string& resource_version) {
  if (known_ != Known::kRecord || record != record_ || resource_version != resource_version_) {
    record_ = record;
    resource_version_ = resource_version;
    since_ = now;
  }
  known_ = Known::kRecord;
  if (!mine()) leading_ = false;
  fresh_ = takeable(now);
  next_try_ = fresh_ ? now : now + candidate_delay();
}

void Elector::absent(MonotonicTime now) {
  known_ = Known::kAbsent;
  record_ = {};
  fresh_ = true;
  next_try_ = now;
}

void Elector::written(MonotonicTime sent, MonotonicTime now, const LeaseRecord& record,
                      const std::string& resource_version) {
  known_ = Known::kRecord;
  record_ = record;
  resource_version_ = resource_version;
  since_ = now;
  leading_ = true;
  valid_until_ = sent + settings_.renew_deadline;
  fresh_ = true;
  next_try_ = now + settings_.retry_period;
}

void Elector::failed(MonotonicTime now, bool conflict) {
  fresh_ = false;
  if (leading_) {
    next_try_ = conflict ? now : now + settings_.retry_period;
  } else {
    next_try_ = now + candidate_delay();
  }
}

std::optional<Elector::Act> Elector::release(MonotonicTime now, WallTime wall) {
  if (!leading(now) || !mine()) return std::nullopt;
  Act act;
  act.kind = Act::Kind::kUpdate;
  act.until = valid_until_;
  act.record = record_;
  act.record.holder.clear();
  act.record.lease_seconds = 1;
  act.record.renew_time = to_micro_time(wall);
  act.record.acquire_time = act.record.renew_time;
  act.resource_version = resource_version_;
  leading_ = false;
  fresh_ = false;
  return act;
}

}  // namespace tilewright::kube
