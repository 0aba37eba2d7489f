#include <algorithm>

#include "common/base/check.h"
#include "common/json/members.h"
#include "controller/api/encode.h"
#include "controller/client/elector.h"
#include "controller/client/json_splitter.h"
#include "controller/client/watch_event.h"
#include "controller/cluster/objects.h"
#include "controller/operator/records.h"
#include "controller/policy/clock_skew.h"
#include "controller/policy/reconcile.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {
namespace {

using nlohmann::json;
using std::chrono::seconds;

const WallTime kNow = WallTime(seconds(1'795'000'000));  // 2026-11-18

std::vector<std::string> split(std::string_view bytes, std::size_t piece) {
  kube::JsonSplitter splitter(64 << 10);
  std::vector<std::string> objects;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    splitter.feed(bytes.substr(at, piece));
    while (auto object = splitter.next()) objects.push_back(std::move(*object));
    if (splitter.fault()) break;
  }
  return objects;
}

void check_plan(const policy::Observed& observed, const controller::DecodedJob& decoded,
                WallTime now) {
  const auto plan_of = [&](const policy::Observed& seen, WallTime when) {
    return decoded.errors.empty()
               ? policy::reconcile(seen, when)
               : policy::reconcile_invalid(seen, decoded.errors.front().sentence(), when);
  };
  const policy::Plan plan = plan_of(observed, now);
  TW_CHECK(plan == plan_of(observed, now), "the same state gives another plan");
  TW_CHECK(!plan.requeue_after || plan.requeue_after->count() > 0, "a requeue in the past");
  if (plan.requeue_after) {
    (void)std::chrono::ceil<std::chrono::milliseconds>(*plan.requeue_after);
  }
  if (decoded.errors.empty()) {
    for (const policy::WorkerCreation& creation : plan.creations) {
      (void)cluster::build_pod(observed.job, creation.index, {"operator:7070", "key"});
    }
    cluster::claims_of(observed.job);
  }
  if (!plan.status) return;
  const json status = api::to_json(*plan.status);
  (void)status.dump(-1, ' ', false, json::error_handler_t::strict);
  // A written status reads as the same, and the next reconcile does not write it again.
  json object = api::to_json(observed.job);
  object["status"] = status;
  const controller::DecodedJob again = controller::decode(object);
  TW_CHECK(again.job.status == *plan.status, "a status changes when it is written: {}, {}",
           status.dump(), api::to_json(again.job.status).dump());
}

void check_lease(const json& object) {
  const kube::LeaseRecord record = kube::decode_lease(object);
  kube::Elector elector({.identity = "me"}, [] { return 0.5; });
  MonotonicTime now{seconds(1000)};
  elector.on_read(now, record, "1");
  for (int i = 0; i < 3; ++i) {
    (void)elector.next(now, kNow);
    now += seconds(3600);
    elector.on_read(now, record, "1");
  }
  const auto action = elector.next(now, kNow);
  json written = object;
  kube::encode_lease(action.record, written);
  TW_CHECK(action.kind == kube::Elector::Action::Kind::kUpdate,
           "a lease that was not renewed for hours is not taken");
}

}  // namespace

int fuzz_watch_stream(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = as_text(data, size);
  const std::vector<std::string> objects = split(text, text.size() + 1);
  TW_CHECK(objects == split(text, 7), "the events depend on how they arrive");

  std::optional<controller::DecodedJob> job;
  policy::Observed observed;
  std::vector<policy::Node> nodes;
  for (const std::string& object : objects) {
    const auto event = kube::parse_watch_event(object);
    if (!event) {
      check_message(event.error().to_error().message);
      continue;
    }
    const std::string kind = string_member(event->object, "kind");
    if (kind == "Pod") {
      controller::PodRecord record = controller::record_of_pod(event->object);
      if (record.worker.name.empty()) continue;
      observed.workers.push_back(std::move(record.worker));
    } else if (kind == "Node") {
      nodes.push_back(controller::record_of_node(event->object).node);
    } else if (kind == "Lease") {
      check_lease(event->object);
    } else {
      const controller::JobRecord record = controller::record_of_job(event->object);
      job = controller::decode(controller::tree_of(record));
    }
  }
  if (!job) return 0;
  observed.job = job->job;
  observed.key_id = "key";
  observed.nodes = std::make_shared<const std::vector<policy::Node>>(std::move(nodes));
  observed.runtime.owned_resources = {
      policy::OwnedResource::kKeySecret, policy::OwnedResource::kHeadlessService,
      policy::OwnedResource::kNetworkPolicy, policy::OwnedResource::kPodGroup};
  for (const WallTime now : {kNow, kNow + std::chrono::hours(24)}) {
    policy::Observed seen = observed;
    policy::correct_clock_skew(seen, now);
    check_plan(seen, *job, now);
  }
  return 0;
}

}  // namespace tilewright::fuzz
