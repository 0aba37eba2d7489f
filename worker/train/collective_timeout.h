// The timeout of the trainer's collective operations.
#pragma once

#include <chrono>

namespace tilewright::train {

// Bounds how much longer one worker may take for a step or an evaluation than another. The death of
// a peer is detected much earlier, when its connection closes.
inline constexpr std::chrono::minutes kCollectiveTimeout{10};

}  // namespace tilewright::train
