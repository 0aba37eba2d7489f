// Named points where a test can make the controller die or stand still, by TILEWRIGHT_FAULT: before
// or after one of its writes to the API server. Nothing is hit unless the variable is set.
//
//   TILEWRIGHT_FAULT=before_write@N     kills the process with SIGKILL before its N-th write
//   TILEWRIGHT_FAULT=after_write@N      the same once the API server has answered it
//   TILEWRIGHT_FAULT=pause_at_write@N   stops it with SIGSTOP between its leave to write and its
//                                       N-th write, which follows on SIGCONT
//
// The lease's renewals are not counted.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"
#include "controller/kube/sender.h"

namespace tilewright::manager {

// Puts the hooks into the options, or nothing for an empty text. Errors carry kUsage.
Status install_write_fault(std::string_view text, kube::SenderOptions& options);

}  // namespace tilewright::manager
