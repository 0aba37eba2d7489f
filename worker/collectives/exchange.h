// The small collective operations of a mesh: barrier, broadcast, gathering byte strings. All ranks
// call the same ones in the same order, never while a step of a Reducer runs. Each ends by its
// deadline: with the result, or with Failure(kPeerLost) that names a rank.
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

// The root's bytes on every rank; `bytes` has the same size everywhere (a mismatch is a Failure).
void broadcast(Mesh& mesh, int root, std::span<std::byte> bytes, MonotonicTime deadline);

// The root's text on every rank; more than max_bytes is a Failure. `text` counts on the root only.
std::string broadcast_text(Mesh& mesh, int root, std::string_view text, std::size_t max_bytes,
                           MonotonicTime deadline);

// Every rank's text on every rank, by rank; max_bytes bounds each.
std::vector<std::string> all_gather(Mesh& mesh, std::string_view text, std::size_t max_bytes,
                                    MonotonicTime deadline);

}  // namespace tilewright::collectives
