// Assignments with their peers, as members receive them.
#pragma once

#include "common/rendezvous/membership.h"

namespace tilewright::testing {

inline rendezvous::Assignment full_assignment(rendezvous::Assignment assignment,
                                              const rendezvous::SharedPeers& peers) {
  assignment.peers = *peers;
  return assignment;
}
inline rendezvous::Assignment full_assignment(const rendezvous::Assign& assign) {
  return full_assignment(assign.assignment, assign.peers);
}
inline rendezvous::Assignment full_assignment(const rendezvous::State& state, int rank) {
  return full_assignment(assignment_of(state, rank), peers_of(state));
}

}  // namespace tilewright::testing
