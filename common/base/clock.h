// Time: monotonic for every wait and deadline, wall time only for what people read.
#pragma once

#include <chrono>
#include <string>

namespace tilewright {

using Duration = std::chrono::steady_clock::duration;
using MonotonicTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

inline MonotonicTime monotonic_now() { return std::chrono::steady_clock::now(); }
inline WallTime wall_now() { return std::chrono::system_clock::now(); }

// RFC 3339 in UTC at whole seconds, as Kubernetes writes times: 2026-01-31T23:59:59Z.
std::string to_rfc3339(WallTime time);

// "1 h 02 min", "3 min 20 s", "4.5 s": for progress lines.
std::string to_words(std::chrono::duration<double> duration);

}  // namespace tilewright
