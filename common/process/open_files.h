// The limit of open files of this process.
#pragma once

namespace tilewright {

// Raises the soft limit to the hard one: a mesh has a connection per rank and stream, and poll(2)
// refuses more descriptors than the soft limit, which is 1024 for programs that use select(2).
void raise_open_files_limit();

}  // namespace tilewright
