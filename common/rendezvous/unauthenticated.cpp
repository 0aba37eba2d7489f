#include "common/rendezvous/unauthenticated.h"

namespace tilewright::rendezvous {

std::optional<UnauthenticatedConnections::Evicted> UnauthenticatedConnections::add(
    Id id, const std::string& source) {
  std::optional<Evicted> evicted;
  const auto same_source = by_source_.find(source);
  if (same_source != by_source_.end() && same_source->second.size() >= maximum_per_source_) {
    evicted = Evicted{*same_source->second.begin(), true};
  } else if (sources_.size() >= maximum_) {
    evicted = Evicted{sources_.begin()->first, false};
  }
  if (evicted) remove(evicted->id);
  sources_.emplace(id, source);
  by_source_[source].insert(id);
  return evicted;
}

void UnauthenticatedConnections::remove(Id id) {
  const auto found = sources_.find(id);
  if (found == sources_.end()) return;
  const auto same_source = by_source_.find(found->second);
  same_source->second.erase(id);
  if (same_source->second.empty()) by_source_.erase(same_source);
  sources_.erase(found);
}

}  // namespace tilewright::rendezvous
