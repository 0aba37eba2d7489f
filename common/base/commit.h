// The commit of the build, for --version: "bb57a10c2f31", with "-dirty" if the sources have changed
// since, "unknown" outside a git checkout. Only the programs link it (tilewright::commit), so that
// a new commit relinks the programs and recompiles no module.
#pragma once

namespace tilewright {
extern const char* const kCommit;
}  // namespace tilewright
