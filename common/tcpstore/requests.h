// Carries out a client's request on its store.
#pragma once

#include <string>

#include "common/tcpstore/protocol.h"
#include "common/tcpstore/store.h"

namespace tilewright::tcpstore {

// A longer reply is an Error with kMemory: a few bytes of MULTI_GET can ask for any number of
// copies of a value.
inline constexpr std::size_t kMaxReplyBytes = 16 << 20;

// Appends the reply to `reply`; a wait that continues has none yet, and the byte of a wait that
// ends (kStopWaiting) is sent to the clients of Store::take_woken(). An Error, as of Store, ends
// the connection: the protocol has no replies for errors.
Status execute(Store& store, Store::Client client, Request request, std::string& reply);

}  // namespace tilewright::tcpstore
