// Hosts that are network namespaces of this machine, connected by links of a given rate to one
// switch. The namespaces have no names: the kernel removes them, with links and switch, when this
// object and the processes in them have ended, however they end.
#pragma once

#include <string>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/net/connect.h"

namespace tilewright::bench {

class EmulatedNetwork {
 public:
  // Throws Failure(kUnsupported), which says what is missing, if this process cannot make one.
  static void check_supported();

  // `bits_per_second`: of each link, in both directions.
  EmulatedNetwork(int hosts, double bits_per_second);

  // A listener on a host's address. It can be used by any process.
  net::Listener listen(int host) const;
  // Moves the calling thread, and the threads that it starts later, to a host.
  void enter(int host) const;

 private:
  void connect(int host, double bits_per_second) const;

  FileDescriptor switch_;
  std::vector<FileDescriptor> hosts_;
};

}  // namespace tilewright::bench
