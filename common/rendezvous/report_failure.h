// How an agent that does not serve the rendezvous tells the coordinator that its part of the job
// has failed for good.
#pragma once

#include <string>

#include "common/net/address.h"
#include "common/net/secret.h"
#include "common/net/wait.h"

namespace tilewright::rendezvous {

// The coordinator ends the job, unless it continues without the processes of `worker_index`: other
// processes train, they suffice, and none of these has trained. Errors carry kPeerLost: no
// coordinator, no answer.
Status report_failure(const net::Address& coordinator, const std::string& job_uid,
                      const net::SecretKey& key, bool tls, int worker_index,
                      const std::string& reason, const net::Wait& wait);

}  // namespace tilewright::rendezvous
