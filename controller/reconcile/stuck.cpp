#include "controller/reconcile/stuck.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/text.h"
#include "controller/reconcile/objects.h"

namespace tilewright::reconcile {
namespace {

// What the attach-detach controller says of a volume that may be attached to one node at a time and
// is attached to another.
struct Holders {
  std::string volume;
  std::string pods;  // as it lists them; empty: they are gone, and the volume is yet to be detached
};

std::optional<Holders> holders_in(const std::string& message) {
  constexpr std::string_view kUsedBy = "Volume is already used by ";
  constexpr std::string_view kPods = "pod(s) ";
  const auto volume = text_between(message, "Multi-Attach error for volume \"", "\"");
  if (!volume) return std::nullopt;
  const std::size_t used = message.find(kUsedBy);
  if (used == std::string::npos) return Holders{*volume, ""};
  std::string pods = message.substr(used + kUsedBy.size());
  if (pods.starts_with(kPods)) pods.erase(0, kPods.size());
  return Holders{*volume, std::move(pods)};
}

// The workers of the job that hold it; none where anybody else does too.
std::vector<const Worker*> own_holders(const Situation& situation, const std::string& pods) {
  std::vector<const Worker*> own;
  for (std::size_t start = 0; start < pods.size();) {
    const std::size_t end = std::min(pods.find(", ", start), pods.size());
    const std::string name = pods.substr(start, end - start);
    const auto found = std::ranges::find_if(
        situation.workers, [&](const auto& entry) { return entry.second->name == name; });
    if (found == situation.workers.end()) return {};
    own.push_back(found->second);
    start = end + 2;
  }
  return own;
}

std::optional<Obstacle> explain_held(const Situation& situation, const Worker& worker) {
  const auto holders = holders_in(worker.message);
  if (!holders) return std::nullopt;
  std::vector<std::string> claims;
  for (const auto& [claim, volume] : claims_of(situation.observed.job)) claims.push_back(claim);
  if (claims.empty()) return std::nullopt;
  const std::string what = claims.size() == 1
                               ? "the PersistentVolumeClaim " + claims.front()
                               : fmt::format("one of the PersistentVolumeClaims {} (volume {})",
                                             fmt::join(claims, ", "), holders->volume);
  const std::string known = what + " can be attached to one node alone, and ";
  if (const auto own = own_holders(situation, holders->pods); !own.empty()) {
    return Obstacle{"ClaimInUse",
                    fmt::format("{}{} has it on {}; keep the workers on one node by "
                                "spec.worker.nodeSelector or affinity: {} is placed anew as soon "
                                "as the job changes",
                                known, own.front()->name, own.front()->node, worker.name)};
  }
  return Obstacle{"ClaimInUse", fmt::format("{}another {}; {} starts as soon as it is free", known,
                                            holders->pods.empty() ? "still has it"
                                                                  : "has it for " + holders->pods,
                                            worker.name)};
}

}  // namespace

Obstacle explain_stuck(const Situation& situation, const Worker& worker) {
  const std::string& reason = worker.reason;
  const std::string detail = worker.message.empty() ? "" : ": " + worker.message;
  // The scheduler's words.
  if (const auto claim = text_between(worker.message, "persistentvolumeclaim \"", "\" not found")) {
    return {"ClaimNotFound",
            fmt::format("there is no PersistentVolumeClaim {} in this namespace; workers start as "
                        "soon as there is",
                        *claim)};
  }
  if (worker.message.find("ReadWriteOncePod access mode") != std::string::npos) {
    return {"ClaimInUse",
            fmt::format("a PersistentVolumeClaim of {} may be used by one pod alone "
                        "(ReadWriteOncePod), and another pod uses it; it is placed as soon as "
                        "that pod has gone",
                        worker.name)};
  }
  if (reason == "FailedAttachVolume") {
    if (auto held = explain_held(situation, worker)) return *std::move(held);
    return {reason, fmt::format("a volume of {} cannot be attached to its node{}; it is tried "
                                "again until it can",
                                worker.name, detail)};
  }
  if (reason == "Unschedulable") {
    return {reason, fmt::format("no node can take {}{}; it is placed as soon as one can",
                                worker.name, detail)};
  }
  if (reason == "SchedulingGated") {
    return {reason, fmt::format("{} waits for its scheduling gates to be removed", worker.name)};
  }
  // A kubelet tells these two in turn, with different details: one reason and one sentence for
  // both.
  if (reason == "ErrImagePull" || reason == "ImagePullBackOff" || reason == "InvalidImageName" ||
      reason == "ErrImageNeverPull" || reason == "RegistryUnavailable") {
    return {"ImageNotAvailable",
            fmt::format("the image {} of {} cannot be had; the kubelet tries again until it can",
                        situation.observed.job.spec.worker.image, worker.name)};
  }
  return {reason, fmt::format("{} cannot be started{}; it is tried again until the cause goes",
                              worker.name, detail)};
}

}  // namespace tilewright::reconcile
