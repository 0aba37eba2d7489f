#include "worker/elastic/process_manager.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "worker/elastic/pmi1.h"
#include "worker/elastic/pmix.h"

namespace tilewright::elastic {
namespace {

// The descriptor of PMI_FD, which no child of this process inherits.
FileDescriptor pmi_connection(const GetVariable& environment) {
  const std::string text = environment(env::kPmiFd);
  const auto fd = parse_number<int>(text, STDERR_FILENO + 1);
  struct stat status {};
  if (!fd || fstat(*fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("{} is \"{}\", expected the descriptor of an open socket: {} belongs "
                              "to processes that mpiexec starts directly",
                              env::kPmiFd, text, env::kPmiFd));
  }
  fcntl(*fd, F_SETFD, FD_CLOEXEC);
  return FileDescriptor(*fd);
}

}  // namespace

std::unique_ptr<ProcessManager> connect_process_manager(const LaunchedProcess& process,
                                                        const GetVariable& environment,
                                                        const net::Wait& wait) {
  switch (process.space) {
    case KeyValueSpace::kNone:
      return nullptr;
    case KeyValueSpace::kPmi1:
      return std::make_unique<Pmi1>(pmi_connection(environment), process.rank, wait);
    case KeyValueSpace::kPmix:
      return connect_pmix(process.rank);
  }
  return nullptr;
}

}  // namespace tilewright::elastic
