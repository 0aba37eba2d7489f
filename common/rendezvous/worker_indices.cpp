#include "common/rendezvous/worker_indices.h"

#include <algorithm>
#include <utility>

#include "common/rendezvous/types.h"

namespace tilewright::rendezvous {

bool WorkerIndices::all_hosts_known(const std::set<int>& used) const {
  std::set<int> known(used.lower_bound(first_), used.end());
  for (const auto& [agent_id, index] : given_) known.insert(index);
  std::set<std::uint64_t> waiting;
  for (const auto& [id, agent_id] : requests_)
    if (!given_.contains(agent_id)) waiting.insert(agent_id);
  return first_ + static_cast<int>(known.size() + waiting.size()) >= hosts_;
}

std::vector<WorkerIndices::Answer> WorkerIndices::answer(const std::set<int>& used) {
  if (!used.empty()) next_ = std::max(next_, *used.rbegin() + 1);
  std::vector<Answer> answers;
  for (const auto& [id, agent_id] : std::exchange(requests_, {}))
    answers.push_back({id, index_of(agent_id)});
  return answers;
}

std::optional<int> WorkerIndices::index_of(std::uint64_t agent_id) {
  if (const auto known = given_.find(agent_id); known != given_.end()) return known->second;
  if (next_ > kMaxWorkerIndex) return std::nullopt;
  return given_[agent_id] = next_++;
}

}  // namespace tilewright::rendezvous
