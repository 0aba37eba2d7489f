#include "tests/support/kubeconfig.h"

#include <fstream>
#include <stdexcept>

namespace tilewright::testing {

void write_kubeconfig(const std::filesystem::path& path, const std::string& server,
                      const std::filesystem::path& authority, const nlohmann::json& user) {
  const nlohmann::json config = {
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"clusters",
       {{{"name", "test"},
         {"cluster", {{"server", server}, {"certificate-authority", authority.string()}}}}}},
      {"users", {{{"name", "test"}, {"user", user}}}},
      {"contexts", {{{"name", "test"}, {"context", {{"cluster", "test"}, {"user", "test"}}}}}},
      {"current-context", "test"}};
  std::ofstream out(path);
  out << config.dump(2) << '\n';  // JSON is YAML
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace tilewright::testing
