// A hub on this machine, an empty cache, and options with short waits.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "tests/support/hub_server.h"
#include "tests/support/paths.h"
#include "tests/support/scoped_variable.h"
#include "worker/hub/dataset.h"
#include "worker/hub/model.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::hub {

inline const std::string kConfigText = R"({"model_type": "bert"})";
inline const std::string kVocabText = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n";

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// Bytes that differ between places of a file and between files.
inline std::string pattern(std::size_t size, std::uint64_t seed = 1) {
  std::string bytes(size, '\0');
  runtime::SplitMix64 random(seed);
  for (char& byte : bytes) byte = static_cast<char>(random.next() >> 56);
  return bytes;
}

class HubTest : public ::testing::Test {
 protected:
  using Server = testing::HubServer;
  using Fault = testing::HubFault;
  static constexpr Server::Type kModelType = Server::Type::kModel;
  static constexpr Server::Type kDatasetType = Server::Type::kDataset;

  HubTest() {
    options_.endpoint = server_.endpoint();
    options_.cache_dir = folder_.path() / "hub";
    options_.datasets_cache = folder_.path() / "datasets";
    options_.limits.first_pause = std::chrono::milliseconds(1);
    options_.limits.max_pause = std::chrono::milliseconds(4);
    options_.progress = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }

  // A model of three files, one of them large.
  void add_model(const std::string& name = "google-bert/bert-base-uncased") {
    server_.add_file(kModelType, name, "config.json", kConfigText);
    server_.add_file(kModelType, name, "vocab.txt", kVocabText);
    server_.add_file(kModelType, name, "model.safetensors", weights_);
  }

  std::filesystem::path resolve(const std::string& name = "google-bert/bert-base-uncased",
                                const std::string& revision = "main") {
    return resolve_model({.name_or_path = name, .revision = revision}, options_);
  }

  // The failure of `call`, which must fail.
  static Error failure_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Failure& failure) {
      return failure.error();
    }
    ADD_FAILURE() << "expected a Failure";
    return {};
  }

  // Every file, link and directory of the cache as relative paths, sorted.
  std::vector<std::string> cached_paths() const {
    namespace fs = std::filesystem;
    std::vector<std::string> paths;
    if (!fs::exists(options_.cache_dir)) return paths;
    for (const auto& entry : fs::recursive_directory_iterator(options_.cache_dir)) {
      if (!entry.is_directory()) {
        paths.push_back(entry.path().lexically_relative(options_.cache_dir));
      }
    }
    std::ranges::sort(paths);
    return paths;
  }

  bool reported(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        lines_, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

  const testing::ScopedVariable no_proxy_{"no_proxy", "127.0.0.1"};
  testing::TemporaryDirectory folder_;
  Server server_;
  HubOptions options_;
  const std::string weights_ = pattern(200'000);
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace tilewright::hub
