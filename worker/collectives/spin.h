// How long a thread that has nothing else to do tries again before it sleeps.
#pragma once

#include "common/base/clock.h"

namespace tilewright::collectives {

// Waking a thread of another process took 50 to 100 us on virtual machines, during which its peer
// waits, too. A thread that spins yields its core to others.
inline constexpr Duration kSpinTime = std::chrono::microseconds(200);

}  // namespace tilewright::collectives
