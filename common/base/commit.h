// The commit the programs were built from, beside the version: "bb57a10c2f31", with "-dirty" where
// the sources were changed since, "unknown" outside a git checkout. Linked by the programs alone
// (tilewright::commit), so that a new commit touches nothing else.
#pragma once

namespace tilewright {
extern const char* const kCommit;
}  // namespace tilewright
