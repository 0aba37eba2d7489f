#include "common/host/host.h"

#include <unistd.h>

#include <array>
#include <climits>

#include "common/base/check.h"
#include "common/host/binding.h"
#include "common/host/cgroups.h"

namespace tilewright::host {

std::vector<int> allowed_cpus() {
  std::vector<int> cpus = thread_affinity();
  if (cpus.empty()) cpus = {0};
  return cpus;
}

Host read_host(std::vector<int> allowed, const std::filesystem::path& root) {
  TW_CHECK(!allowed.empty(), "no allowed CPU");
  Host host{read_topology(allowed, root), std::move(allowed), cpu_quota(root)};
  return host;
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

Host this_host() { return read_host(allowed_cpus()); }

}  // namespace tilewright::host
