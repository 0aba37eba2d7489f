// A hub with the models and data sets of tests/golden/guides, and trainings that use it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/hub_server.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"
#include "tests/support/scoped_variable.h"

namespace tilewright::testing {

inline std::filesystem::path hub_files() { return source_dir() / "tests/golden/guides/data"; }

// The names without an organisation are aliases, as on the hub.
inline std::unique_ptr<HubServer> make_hub() {
  auto hub = std::make_unique<HubServer>();
  hub->add_directory(hub_files());
  const auto model = HubServer::Type::kModel, dataset = HubServer::Type::kDataset;
  hub->add_alias(model, "distilbert-base-uncased", "distilbert/distilbert-base-uncased");
  hub->add_alias(model, "bert-base-cased", "google-bert/bert-base-cased");
  hub->add_alias(dataset, "squad", "rajpurkar/squad");
  hub->add_alias(dataset, "squad_v2", "rajpurkar/squad_v2");
  hub->add_alias(dataset, "glue", "nyu-mll/glue");
  return hub;
}

inline std::vector<std::string> split_words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Runs `tilewright-worker train`, or another command, with an empty cache in a temporary directory.
class HubTraining : public ::testing::Test {
 protected:
  HubTraining() {
    for (const char* name : {"HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
                             "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_CACHE",
                             "HF_DATASETS_OFFLINE", "HF_TOKEN_PATH"}) {
      unsetenv(name);
    }
    use(*hub_);
    use_cache("cache");
  }

  // The hub of runs to come.
  void use(const HubServer& hub) { endpoint_.emplace("HF_ENDPOINT", hub.endpoint()); }
  void use_cache(const std::string& name) { home_.emplace("HF_HOME", (folder() / name).string()); }

  const std::filesystem::path& folder() const { return temporary_.path(); }
  int run(std::vector<std::string> words, const std::string& command = "train") {
    words.insert(words.begin(), command);
    RunningProgram running(program("tilewright-worker"), words, folder());
    const int code = running.wait();
    output_ = running.output();
    return code;
  }
  // The words of `line`; "/tmp/" becomes the temporary directory.
  int run(const std::string& line, const std::string& command = "train") {
    std::vector<std::string> words = split_words(line);
    for (std::string& word : words) {
      if (word.starts_with(source_dir().string() + "/")) continue;  // the clone may be in /tmp
      if (word.starts_with("/tmp/")) word = (folder() / word.substr(5)).string();
    }
    return run(words, command);
  }
  // The SHA-256 of the weights that a run printed.
  static std::string digest_in(const std::string& output) {
    std::smatch match;
    const std::regex pattern("output: SHA-256 ([0-9a-f]{64})");
    if (!std::regex_search(output, match, pattern)) ADD_FAILURE() << output;
    return match.empty() ? "" : match[1].str();
  }
  std::string digest() const { return digest_in(output_); }
  std::filesystem::path path(const std::string& name) const { return folder() / name; }
  nlohmann::json json(const std::string& name) const {
    const auto root = nlohmann::json::parse(read_text(path(name)), nullptr, false);
    EXPECT_FALSE(root.is_discarded()) << name;
    return root;
  }
  std::vector<std::string> files_of(const std::string& name) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path(name))) {
      files.push_back(entry.path().filename());
    }
    return files;
  }

  TemporaryDirectory temporary_;
  std::unique_ptr<HubServer> hub_ = make_hub();
  std::optional<ScopedVariable> endpoint_, home_;
  std::string output_;
};

}  // namespace tilewright::testing
