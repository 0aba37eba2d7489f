// MiniLM with two of its six layers, for tests whose time is spent in steps and checkpoints.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"

namespace tilewright::testing {

// Makes the directory `to` from model_dir(); `how`: files as copies or as create_symlinks.
inline void write_two_layers(const std::filesystem::path& to, std::filesystem::copy_options how) {
  std::filesystem::create_directory(to);
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::canonical(model_dir()))) {
    const std::filesystem::path name = entry.path().filename();
    if (!entry.is_regular_file() || name == "config.json") continue;
    std::filesystem::copy(entry.path(), to / name, how);
  }
  auto config = nlohmann::json::parse(read_text(model_dir() / "config.json"));
  config["num_hidden_layers"] = 2;
  std::ofstream(to / "config.json") << config;
}

}  // namespace tilewright::testing
