// The connections that have not authenticated yet, and which of them closes for a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace tilewright::rendezvous {

class UnauthenticatedConnections {
 public:
  using Id = std::uint64_t;  // a later connection has a higher number

  UnauthenticatedConnections(std::size_t maximum, std::size_t maximum_per_source)
      : maximum_(maximum), maximum_per_source_(maximum_per_source) {}

  struct Evicted {
    Id id = 0;
    bool share_used = false;  // its source has used its share; otherwise all slots are in use
  };
  // Adds a connection. Returns the one to close for it: the oldest of its source if the source has
  // used its share, otherwise the oldest of all if no slot is free. A member needs its slot for one
  // round trip only, so the oldest connection is least likely to be one.
  std::optional<Evicted> add(Id id, const std::string& source);
  // Ignores a connection that is not here.
  void remove(Id id);
  std::size_t size() const { return sources_.size(); }

 private:
  const std::size_t maximum_;
  const std::size_t maximum_per_source_;
  std::map<Id, std::string> sources_;
  std::map<std::string, std::set<Id>> by_source_;
};

}  // namespace tilewright::rendezvous
