// Identifies the build of the running program.
#pragma once

#include <string>

namespace tilewright {

// The GNU build ID of the program in hexadecimal: the linker's hash of its content. Empty if it was
// linked without --build-id.
std::string build_id();

}  // namespace tilewright
