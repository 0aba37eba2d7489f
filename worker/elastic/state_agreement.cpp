#include "worker/elastic/state_agreement.h"

#include <algorithm>

namespace tilewright::elastic {

StateAgreement agree_on_state(std::span<const StateReport> reports, std::int64_t required_step) {
  StateAgreement agreement;
  if (reports.empty()) return agreement;
  // The first of the most advanced ones; without any state that of rank 0.
  const auto best = std::ranges::max_element(reports, {}, &StateReport::position);
  const auto world = static_cast<int>(reports.size());
  const auto of = [&](int rank) -> const StateReport& {
    return reports[static_cast<std::size_t>(rank)];
  };
  for (int rank = 0; rank < world; ++rank) {
    if (of(rank).settings != best->settings || of(rank).evaluation != best->evaluation) {
      agreement.inconsistent.push_back(rank);
    }
  }
  if (!agreement.inconsistent.empty()) return agreement;
  agreement.position = best->position;
  agreement.checkpoint_step = required_step;
  for (int rank = 0; rank < world; ++rank) {
    agreement.checkpoint_step = std::max(agreement.checkpoint_step, of(rank).checkpoint_step);
    const bool sends = best->position.complete() && of(rank).position == best->position;
    (sends ? agreement.senders : agreement.receivers).push_back(rank);
  }
  if (agreement.senders.empty()) return agreement;
  agreement.source = agreement.checkpoint_step > best->position.step ? StateSource::kCheckpoint
                                                                     : StateSource::kMemory;
  return agreement;
}

}  // namespace tilewright::elastic
