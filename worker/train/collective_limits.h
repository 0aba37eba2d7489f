// Limits of the trainer's collective operations.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "common/base/clock.h"

namespace tilewright::train {

// Bounds how much longer one worker may take for a step than another. The death of a peer is
// detected much earlier, when its connection closes.
inline constexpr std::chrono::minutes kCollectiveTimeout{10};
inline MonotonicTime collective_deadline() { return monotonic_now() + kCollectiveTimeout; }

// A worker that gets the state during the steps waits for whole steps of the others.
inline constexpr std::chrono::hours kLongestStep{3};

// For work that can take hours, of which this worker has done its share between `begin` and `end`:
// another one may need ten times as long.
inline MonotonicTime collective_deadline(MonotonicTime begin, MonotonicTime end) {
  return end + std::max<Duration>(kCollectiveTimeout, 9 * (end - begin));
}

// The longest string that a rank broadcasts or contributes to a gather.
inline constexpr std::size_t kMaxCollectiveBytes = std::size_t{1} << 20;

// fp32 values of one rank in one operation. More are sent in pieces, each with a deadline of its
// own, because the time for all of them grows with their number and that of the workers.
inline constexpr std::size_t kPieceElements = std::size_t{16} << 20;

}  // namespace tilewright::train
