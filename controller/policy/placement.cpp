#include "controller/policy/placement.h"

#include <algorithm>

namespace tilewright::policy {
namespace {

bool matches(const Node& node, const std::map<std::string, std::string>& selector) {
  return std::ranges::all_of(selector, [&](const auto& wanted) {
    const auto label = node.labels.find(wanted.first);
    return label != node.labels.end() && label->second == wanted.second;
  });
}

bool has_capacity(const Node& node, const std::map<std::string, api::Quantity>& resources) {
  return std::ranges::all_of(resources, [&](const auto& wanted) {
    const auto there = node.allocatable.find(wanted.first);
    return there != node.allocatable.end() && there->second.milli >= wanted.second.milli;
  });
}

// The largest allocatable amount of each requested resource, not necessarily of one node.
std::map<std::string, api::Quantity> max_allocatable(
    const std::vector<const Node*>& nodes, const std::map<std::string, api::Quantity>& wanted) {
  std::map<std::string, api::Quantity> most;
  for (const auto& [name, amount] : wanted) {
    api::Quantity& best = most[name] = {"0", 0};
    for (const Node* node : nodes) {
      const auto there = node->allocatable.find(name);
      if (there != node->allocatable.end() && there->second.milli > best.milli) {
        best = there->second;
      }
    }
  }
  return most;
}

}  // namespace

std::optional<BlockedReason> find_unschedulable_reason(const api::TrainJob& job,
                                                       const std::vector<Node>& nodes) {
  // An autoscaler may have removed all nodes.
  if (nodes.empty()) return std::nullopt;
  const api::Worker& worker = job.spec.worker;
  std::vector<const Node*> candidates;
  for (const Node& node : nodes) {
    if (matches(node, worker.node_selector)) candidates.push_back(&node);
  }
  if (candidates.empty()) return blocked::NoMatchingNode{nodes.size()};
  std::erase_if(candidates, [](const Node* node) { return node->cordoned; });
  if (candidates.empty()) return blocked::NodesCordoned{};
  const auto fits = [&](const Node* node) { return has_capacity(*node, worker.resources); };
  if (std::ranges::any_of(candidates, fits)) return std::nullopt;
  return blocked::LargerThanAnyNode{candidates.size(), nodes.size(),
                                    max_allocatable(candidates, worker.resources)};
}

}  // namespace tilewright::policy
