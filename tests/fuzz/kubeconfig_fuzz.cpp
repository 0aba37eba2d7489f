#include "controller/client/kubeconfig.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {

int fuzz_kubeconfig(const std::uint8_t* data, std::size_t size) {
  const auto path = write_scratch("kubeconfig", as_text(data, size));
  const auto config = kube::config_from_kubeconfig({path}, {});
  if (!config.ok()) check_message(config.error().message, true);
  return 0;
}

}  // namespace tilewright::fuzz
