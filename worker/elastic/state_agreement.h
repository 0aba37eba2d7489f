// Which state the workers of a new membership epoch continue from: a pure function of what each has
// in memory.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tilewright::elastic {

// How far a training has come. Ordered: a later one is more advanced. States at equal positions
// have the same bits, because the workers of an epoch have. Without --exact those of different
// epochs may have trained the same step with other sums, for example while the network was divided.
struct TrainingPosition {
  std::int64_t step = -1;   // completed optimizer steps; -1: there is no complete state
  int stage = 0;            // what has been done after that step; see train::TrainingProgress
  std::uint64_t epoch = 0;  // the membership epoch that trained or evaluated last, or read storage
  auto operator<=>(const TrainingPosition&) const = default;  // NOLINT: clang-tidy 14
  bool complete() const { return step >= 0; }
};

// What a worker reports at the beginning of a membership epoch.
struct StateReport {
  std::string settings;               // digest of all that determines the training
  TrainingPosition position;          // of the complete state in its memory
  std::int64_t checkpoint_step = -1;  // of the newest checkpoint that it knows of; -1: none
  std::string evaluation = {};        // digest of what else all workers must have alike
  bool operator==(const StateReport&) const = default;
};

enum class StateSource {
  kStorage,     // no worker has a state: the last checkpoint, else the starting weights
  kMemory,      // the most advanced state in the workers' memory
  kCheckpoint,  // a checkpoint that is newer than any state in memory, if it can be read
};

struct StateAgreement {
  StateSource source = StateSource::kStorage;
  TrainingPosition position;   // of the most advanced state in memory
  std::vector<int> senders;    // ranks that have it, ascending; see agree_on_state()
  std::vector<int> receivers;  // the other ranks, ascending; without senders all ranks
  // Ranks whose settings differ from those of the senders, or from rank 0's without senders. If
  // there are any, the epoch cannot train, and the fields above are empty.
  std::vector<int> inconsistent;
  std::int64_t checkpoint_step = -1;  // of the newest checkpoint that any worker knows of
  bool operator==(const StateAgreement&) const = default;
};

// `reports`: by rank, of all workers of the epoch, so that all come to the same result.
// `required_step`: of the newest checkpoint that the coordinator knows of; -1: none. A state of
// other settings than those of the most advanced one is not used. If states of different settings
// are equally advanced, that of the lowest rank decides.
StateAgreement agree_on_state(std::span<const StateReport> reports, std::int64_t required_step);

}  // namespace tilewright::elastic
