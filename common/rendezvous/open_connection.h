// Connects to the coordinator and proves the secret of a job. Private to this module.
#pragma once

#include <string>

#include "common/net/connect.h"
#include "common/net/secret.h"

namespace tilewright::rendezvous {

// The socket is ready for the messages of messages.h. Errors carry kPeerLost.
Result<net::Socket> open_connection(const net::Address& coordinator, const std::string& job_uid,
                                    const net::SecretKey& key, bool tls, const net::Wait& wait,
                                    net::Retry retry = net::Retry::kNo);

}  // namespace tilewright::rendezvous
