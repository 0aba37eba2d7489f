// The worker indices of the agents of a job that ask the coordinator for one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace tilewright::rendezvous {

class WorkerIndices {
 public:
  using RequestId = std::uint64_t;
  struct Answer {
    RequestId request = 0;
    std::optional<int> index;  // nullopt: kMaxWorkerIndex has been given
  };

  // Gives `first` and the indices after it. The job has `hosts` hosts at most; those below `first`
  // are known.
  WorkerIndices(int first, int hosts) : first_(first), next_(first), hosts_(hosts) {}

  // A request waits until it is answered or withdrawn; one that is not here is ignored.
  void request(RequestId id, std::uint64_t agent_id) { requests_.insert_or_assign(id, agent_id); }
  void withdraw(RequestId id) { requests_.erase(id); }
  bool has_requests() const { return !requests_.empty(); }

  // Whether `used`, the indices that processes of the job have, those given and the requests stand
  // for all hosts. Otherwise a host to which an earlier coordinator gave an index may not have
  // reported.
  bool all_hosts_known(const std::set<int>& used) const;

  // Answers all requests, in the order of their ids. The same agent gets the same index again. No
  // other index is given twice, so a process that looked dead never shares the one of another host.
  std::vector<Answer> answer(const std::set<int>& used);

 private:
  std::optional<int> index_of(std::uint64_t agent_id);

  int first_;
  int next_;
  int hosts_;
  std::map<std::uint64_t, int> given_;           // by agent
  std::map<RequestId, std::uint64_t> requests_;  // the agents
};

}  // namespace tilewright::rendezvous
