// Barrier, broadcast, gather and all-gather over a mesh. All ranks call the same operations in the
// same order, never during a step of a Reducer. Each operation returns its result by the deadline
// or throws Failure(kPeerLost) that names a rank.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/collectives/mesh.h"

namespace tilewright::collectives {

// Returns when every rank has called it.
void barrier(Mesh& mesh, MonotonicTime deadline);

// Copies the root's bytes to every rank. `bytes` has the same size on all ranks; another size is a
// Failure.
void broadcast(Mesh& mesh, int root, std::span<std::byte> bytes, MonotonicTime deadline);

// Returns the root's `text` on every rank; other ranks' `text` is ignored. A text of more than
// max_bytes is a Failure.
std::string broadcast_string(Mesh& mesh, int root, std::string_view text, std::size_t max_bytes,
                             MonotonicTime deadline);

// Returns the texts of all ranks, by rank, on the root, and nothing elsewhere. A text of more than
// max_bytes is a Failure.
std::vector<std::string> gather(Mesh& mesh, int root, std::string_view text, std::size_t max_bytes,
                                MonotonicTime deadline);

// Returns the texts of all ranks, by rank. A text of more than max_bytes is a Failure.
std::vector<std::string> all_gather(Mesh& mesh, std::string_view text, std::size_t max_bytes,
                                    MonotonicTime deadline);

// Whether this is so on all ranks.
bool all_of_ranks(Mesh& mesh, bool own, MonotonicTime deadline);

// Returns the bits of all ranks, by rank; each rank has one for every rank.
std::vector<std::vector<bool>> all_gather_bits(Mesh& mesh, const std::vector<bool>& bits,
                                               MonotonicTime deadline);

}  // namespace tilewright::collectives
