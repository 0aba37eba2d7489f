// Detects launchers that start several processes without a rendezvous, such as mpirun and torchrun.
#pragma once

#include "worker/elastic/session.h"

namespace tilewright::elastic {

// Throws Failure(kUsage) if a launcher's variable counts more than one process of this job and the
// environment names no rendezvous: each process would train the whole job alone.
void check_launcher(const Environment& environment);

}  // namespace tilewright::elastic
