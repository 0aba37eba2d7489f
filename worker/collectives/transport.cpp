#include "worker/collectives/transport.h"

#include "common/net/wait.h"

namespace tilewright::collectives {

void TcpTransport::send_last(int peer, std::span<iovec> buffers) {
  if (!buffers.empty()) (void)socket(peer).try_write(buffers);  // the peer also sees the end
  socket(peer).shutdown_write();
}

void TcpTransport::wait(std::vector<pollfd>& fds, MonotonicTime deadline) {
  poll(fds.data(), fds.size(), net::poll_timeout(deadline));
}

}  // namespace tilewright::collectives
