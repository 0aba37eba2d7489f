// How many streams a mesh has: one thread sends and sums less than a fast link or the memory of a
// large host carries.
#pragma once

#include "worker/collectives/mesh.h"

namespace tilewright::collectives {

// For a process that computes with `threads` threads. Fewer than eight cores have no time for more
// than one communication thread.
int default_streams(int threads);

// The number for all ranks: the smallest that one of them wants. Collective.
int agree_on_streams(Mesh& mesh, int wanted, MonotonicTime deadline);

// Adds streams up to the number that the ranks agree on. Throws as add_streams() does. Collective.
void open_streams(Mesh& mesh, int wanted, net::Listener& listener, const net::SecretKey& key,
                  MonotonicTime deadline, const net::WakeUp* cancel = nullptr);

}  // namespace tilewright::collectives
