#include "controller/operator/recorder.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "controller/client/lease_record.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kDeadline{15};
// Maximum length of a note that the API server accepts, in bytes.
constexpr std::size_t kMaxNote = 1023;

// FNV-1a. Unlike std::hash it is the same in every process.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  return hash;
}

}  // namespace

json build_event(const api::TrainJob& job, const policy::Event& event,
                 const std::string& reporting_instance, WallTime now, JobKind kind) {
  const bool pytorch = kind == JobKind::kPyTorchJob;
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
          {"note", event.message.substr(0, utf8_prefix_length(event.message, kMaxNote))},
          {"regarding",
           {{"apiVersion", pytorch ? kPyTorchJobApiVersion : kApiVersion},
            {"kind", pytorch ? kPyTorchJobKind : kTrainJobKind},
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

void Recorder::record(const api::TrainJob& job, const policy::Event& event, JobKind kind) {
  json object = build_event(job, event, instance_, wall_now(), kind);
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
    try {
      post(event);
    } catch (const std::exception& error) {
      log_->error("failed to post an event: {}", error.what());
    }
    lock.lock();
  }
}

void Recorder::post(const json& event) {
  const auto namespace_name = event["metadata"]["namespace"].get<std::string>();
  const auto posted = client_.create(*guard_, kube::resource::events(), namespace_name, event,
                                     net::within(kDeadline), kube::ResponseFormat::kMetadata);
  // Expected: the namespace is terminating, or an earlier attempt created the event.
  if (posted || posted.is(kube::ErrorKind::kAlreadyExists) ||
      posted.is(kube::ErrorKind::kNotFound)) {
    return;
  }
  log_->warn("failed to post an event: {}", posted.error().sentence());
}

}  // namespace tilewright::controller
