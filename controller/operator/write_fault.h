// Fault injection for tests: kills or stops the controller before or after one of its writes to the
// API server. Disabled unless TILEWRIGHT_FAULT is set.
//
//   TILEWRIGHT_FAULT=before_write@N     kills the process with SIGKILL before its N-th write
//   TILEWRIGHT_FAULT=after_write@N      kills it after the API server's response to the N-th write
//   TILEWRIGHT_FAULT=pause_at_write@N   stops it with SIGSTOP after the write guard has permitted
//                                       the N-th write; SIGCONT continues with the write
//
// Writes of the Lease are not counted.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"
#include "controller/client/sender.h"

namespace tilewright::controller {

// Installs the hooks in `options`; does nothing if `text` is empty. Fails with kUsage.
Status install_write_fault(std::string_view text, kube::SenderOptions& options);

}  // namespace tilewright::controller
