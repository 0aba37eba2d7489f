#include "controller/policy/placement.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/contract/instruction_sets.h"

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
    if (wanted.second.milli <= 0) return true;
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

// Empty for an unknown instruction set.
std::string_view node_label_of(std::string_view isa) {
  const auto found = std::ranges::find(kInstructionSets, isa, &InstructionSet::name);
  return found == std::end(kInstructionSets) ? "" : found->node_label;
}

bool has_label(const Node& node, const std::string& label) {
  const auto found = node.labels.find(label);
  return found != node.labels.end() && found->second == "true";
}

bool allows(const NodeConstraint& constraint, const Node& node) {
  return std::ranges::find(constraint.excluded_nodes, node.name) ==
             constraint.excluded_nodes.end() &&
         (constraint.required_label.empty() || has_label(node, constraint.required_label));
}

}  // namespace

NodeConstraint node_constraint_of(const api::TrainJob& job, const api::TrainJobStatus& status,
                                  const std::vector<Node>* nodes) {
  NodeConstraint constraint;
  if (!api::is_exact(job) || status.instruction_set.empty()) return constraint;
  constraint.excluded_nodes = status.excluded_nodes;
  const std::string label(node_label_of(status.instruction_set));
  const auto labelled = [&](const Node& node) { return has_label(node, label); };
  if (!label.empty() && nodes != nullptr && std::ranges::any_of(*nodes, labelled)) {
    constraint.required_label = label;
  }
  return constraint;
}

bool has_other_node(const api::TrainJob& job, const NodeConstraint& constraint,
                    const std::string& lacking, const std::vector<Node>& nodes) {
  return std::ranges::any_of(nodes, [&](const Node& node) {
    return node.name != lacking && !node.cordoned && allows(constraint, node) &&
           matches(node, job.spec.worker.node_selector) &&
           has_capacity(node, job.spec.worker.resources);
  });
}

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
