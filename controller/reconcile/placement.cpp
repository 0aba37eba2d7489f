#include "controller/reconcile/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tilewright::reconcile {
namespace {

bool matches(const Node& node, const std::map<std::string, std::string>& selector) {
  return std::ranges::all_of(selector, [&](const auto& wanted) {
    const auto label = node.labels.find(wanted.first);
    return label != node.labels.end() && label->second == wanted.second;
  });
}

bool has_room(const Node& node, const std::map<std::string, api::Quantity>& resources) {
  return std::ranges::all_of(resources, [&](const auto& wanted) {
    const auto there = node.allocatable.find(wanted.first);
    return there != node.allocatable.end() && there->second.milli >= wanted.second.milli;
  });
}

std::string in_words(const std::map<std::string, api::Quantity>& amounts) {
  std::vector<std::string> parts;
  for (const auto& [name, amount] : amounts) {
    parts.push_back(fmt::format("{} {}", name, amount.text));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The most that any of them has to give of what the worker asks for.
std::map<std::string, api::Quantity> most_of(const std::vector<const Node*>& nodes,
                                             const std::map<std::string, api::Quantity>& wanted) {
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

std::optional<Obstacle> find_no_node(const api::TrainJob& job, const std::vector<Node>& nodes) {
  // An autoscaler may have taken all of them away.
  if (nodes.empty()) return std::nullopt;
  const api::Worker& worker = job.spec.worker;
  std::vector<const Node*> candidates;
  for (const Node& node : nodes) {
    if (matches(node, worker.node_selector)) candidates.push_back(&node);
  }
  if (candidates.empty()) {
    std::vector<std::string> labels;
    for (const auto& [name, value] : worker.node_selector) {
      labels.push_back(fmt::format("{}={}", name, value));
    }
    return Obstacle{"NoSuchNode",
                    fmt::format("none of {} nodes has the labels that spec.worker.nodeSelector "
                                "wants ({}); workers start as soon as one has",
                                nodes.size(), fmt::join(labels, ", "))};
  }
  std::erase_if(candidates, [](const Node* node) { return node->cordoned; });
  if (candidates.empty()) {
    return Obstacle{"NodesCordoned",
                    "all nodes that could take a worker are cordoned; workers start as soon as "
                    "one is not"};
  }
  const auto fits = [&](const Node* node) { return has_room(*node, worker.resources); };
  if (std::ranges::any_of(candidates, fits)) return std::nullopt;
  return Obstacle{
      "LargerThanAnyNode",
      fmt::format("a worker asks for {}; a node of those that could take one ({} of {}) has at "
                  "most {}; lower spec.worker.resources, or add a node that is large enough",
                  in_words(worker.resources), candidates.size(), nodes.size(),
                  in_words(most_of(candidates, worker.resources)))};
}

}  // namespace tilewright::reconcile
