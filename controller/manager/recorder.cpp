#include "controller/manager/recorder.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/text.h"
#include "common/contract/labels.h"
#include "controller/kube/lease_record.h"

namespace tilewright::manager {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kDeadline{15};
// As the API server bounds them.
constexpr std::size_t kMaxNote = 1023;

// FNV-1a: the same in every process, which std::hash does not promise.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  return hash;
}

}  // namespace

json build_event(const api::TrainJob& job, const reconcile::Event& event,
                 const std::string& reporting_instance, WallTime now) {
  const api::ObjectMeta& metadata = job.metadata;
  const std::uint64_t identity = hash_of(fmt::format(
      "{}\n{}\n{}\n{}", metadata.uid, metadata.resource_version, event.reason, event.message));
  return {{"apiVersion", "events.k8s.io/v1"},
          {"kind", "Event"},
          {"metadata",
           {{"name", fmt::format("{}.{:016x}", metadata.name, identity)},
            {"namespace", metadata.namespace_name}}},
          {"eventTime", kube::to_micro_time(now)},
          {"type", event.warning ? "Warning" : "Normal"},
          {"reason", event.reason},
          {"action", "Reconcile"},
          {"note", event.message.substr(0, whole_characters(event.message, kMaxNote))},
          {"regarding",
           {{"apiVersion", kApiVersion},
            {"kind", kTrainJobKind},
            {"name", metadata.name},
            {"namespace", metadata.namespace_name},
            {"uid", metadata.uid}}},
          {"reportingController", "tilewright.dev/controller"},
          {"reportingInstance", reporting_instance}};
}

Recorder::Recorder(kube::Client& client, std::shared_ptr<const kube::WriteGuard> guard,
                   std::string instance, std::shared_ptr<Logger> log)
    : client_(client),
      guard_(std::move(guard)),
      instance_(std::move(instance)),
      log_(std::move(log)),
      thread_([this] { run(); }) {}

Recorder::~Recorder() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Recorder::record(const api::TrainJob& job, const reconcile::Event& event) {
  json object = build_event(job, event, instance_, wall_now());
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(object));
    if (waiting_.size() > kMaxWaiting) waiting_.pop_front();
  }
  changed_.notify_all();
}

void Recorder::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const json event = std::move(waiting_.front());
    waiting_.pop_front();
    if (stopping_ && !guard_->permits(monotonic_now())) return;
    lock.unlock();
    post(event);
    lock.lock();
  }
}

void Recorder::post(const json& event) {
  const auto space = event["metadata"]["namespace"].get<std::string>();
  const auto posted = client_.create(*guard_, kube::resource::events(), space, event,
                                     net::within(kDeadline), kube::Answer::kMetadata);
  // A namespace that is going away takes no events, and one that is there already is this one.
  if (posted || posted.is(kube::Problem::kAlreadyExists) || posted.is(kube::Problem::kNotFound)) {
    return;
  }
  log_->warn("an event is lost: {}", posted.error().sentence());
}

}  // namespace tilewright::manager
