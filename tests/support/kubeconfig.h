// Writes a kubeconfig with one cluster and one user.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace tilewright::testing {

// `user` as in a kubeconfig: {"token": ...} or {"client-certificate": ..., "client-key": ...}.
// Throws std::runtime_error if the file cannot be written.
void write_kubeconfig(const std::filesystem::path& path, const std::string& server,
                      const std::filesystem::path& authority, const nlohmann::json& user);

}  // namespace tilewright::testing
