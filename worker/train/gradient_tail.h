// The numbers that the ranks exchange behind the loss of the gradient.
#pragma once

#include <cstdint>

namespace tilewright::train {

// Indices of the elements. Each is a sum over the ranks, so all ranks get the same value and decide
// the same after the step. They are exchanged as fp32, also if the gradient is rounded to bf16.
struct GradientTail {
  std::int64_t begin = 0;  // behind the loss
  int world = 0;

  // The numbers of ranks that ask to stop, that ask to leave, and that have sent their part of the
  // transfer.
  std::int64_t stop_requests() const { return begin; }
  std::int64_t leaving() const { return begin + 1; }
  std::int64_t senders_done() const { return begin + 2; }
  // The seconds that the rank has computed. Only that rank adds another number than 0, so the sum
  // is exact.
  std::int64_t compute_seconds(int rank) const { return begin + kCounts + rank; }
  std::int64_t end() const { return begin + size(world); }

  // Elements for this many ranks.
  static constexpr std::int64_t size(std::int64_t world) { return kCounts + world; }

 private:
  static constexpr std::int64_t kCounts = 3;
};

}  // namespace tilewright::train
