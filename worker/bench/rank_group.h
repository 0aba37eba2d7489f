// The ranks of a benchmark of exchanges: child processes that are connected by a mesh, and a
// gradient whose sum they can check.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/net/connect.h"
#include "common/net/secret.h"
#include "worker/collectives/mesh.h"

namespace tilewright::bench {

// The addresses and the secret, made before the ranks are started.
class RankGroup {
 public:
  explicit RankGroup(std::vector<net::Listener> listeners)
      : key_(net::SecretKey::random()), listeners_(std::move(listeners)) {}
  collectives::MeshConfig config(int rank, collectives::SharedMemory shared_memory) const;
  // Called by each rank.
  std::unique_ptr<collectives::Mesh> connect(int rank, collectives::SharedMemory shared_memory,
                                             int streams);

 private:
  net::SecretKey key_;
  std::vector<net::Listener> listeners_;
};

// Runs `body` for each rank in a child process, which ends with this one, and returns the texts by
// rank. No other thread may run. Throws the Failure of the rank that failed first, or
// Failure(kInternal) if a process is killed.
std::vector<std::string> run_ranks(int ranks, const std::function<std::string(int rank)>& body);

// So that sums over up to 256 ranks are exact in fp32.
inline constexpr int kSummandBits = 16;

// Fills a gradient with integers below 2^bits, which differ between ranks and places.
void fill_summands(std::span<float> values, int rank, int bits = kSummandBits);

// Throws Failure(kInternal) if one of the values 0, stride, 2 stride, ... is not the sum of the
// ranks' summands.
void check_sums(std::span<const float> values, int ranks, std::int64_t stride,
                int bits = kSummandBits);

}  // namespace tilewright::bench
