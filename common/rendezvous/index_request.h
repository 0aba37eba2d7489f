// How an agent without a node rank gets the worker index of its processes from the coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/net/address.h"
#include "common/net/secret.h"
#include "common/net/wait.h"

namespace tilewright::rendezvous {

// Waits for a coordinator at the address, and asks again if the connection breaks or the
// coordinator is unavailable; `on_retry` then hears why, each reason once in a row. `agent_id` is
// random; the same agent gets the same index again. Errors: kPeerLost (no coordinator, no answer,
// another secret, cancelled), kUnsupported (refused, with the reason).
Result<int> request_worker_index(const net::Address& coordinator, const std::string& job_uid,
                                 const net::SecretKey& key, bool tls, std::uint64_t agent_id,
                                 const net::Wait& wait,
                                 const std::function<void(const std::string&)>& on_retry = {});

}  // namespace tilewright::rendezvous
