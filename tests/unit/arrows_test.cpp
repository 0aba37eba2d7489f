// Holds the includes of every source file against the arrows between rooms, and the top level
// against the README's list.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

// A room and all the rooms it may include. Arrows point down only.
const std::map<std::string, std::set<std::string>>& arrows() {
  static const std::map<std::string, std::set<std::string>> kArrows = {
      {"common/base", {}},
      {"common/contract", {"common/base"}},
      {"common/net", {"common/base"}},
      {"common/process", {"common/base"}},
      {"common/rendezvous", {"common/base", "common/contract", "common/net"}},
      {"controller/api", {"common/base", "common/contract"}},
      {"controller/kube",
       {"common/base", "common/contract", "common/net", "common/process", "controller/api"}},
      {"controller/queue", {"common/base"}},
      {"controller/reconcile",
       {"common/base", "common/contract", "common/rendezvous", "controller/api"}},
      {"controller/manager",
       {"common/base", "common/contract", "common/net", "common/rendezvous", "controller/api",
        "controller/kube", "controller/queue", "controller/reconcile"}},
      {"controller/local",
       {"common/base", "common/contract", "common/net", "common/process", "common/rendezvous",
        "controller/api", "controller/reconcile"}},
      {"controller/cli",
       {"common/base", "common/contract", "common/net", "common/rendezvous", "controller/api",
        "controller/kube", "controller/reconcile", "controller/manager", "controller/local"}},
      {"worker/runtime", {"common/base"}},
      {"worker/kernels", {"common/base", "worker/runtime"}},
      {"worker/nn", {"common/base", "worker/runtime", "worker/kernels"}},
      {"worker/text", {"common/base"}},
      {"worker/tasks", {"common/base", "worker/text"}},
      {"worker/collectives", {"common/base", "common/net", "worker/runtime"}},
      {"worker/checkpoint", {"common/base", "worker/runtime", "worker/nn"}},
      {"worker/elastic",
       {"common/base", "common/contract", "common/net", "common/process", "common/rendezvous"}},
      {"worker/metrics", {"common/base", "common/contract", "common/net", "common/rendezvous"}},
      {"worker/train",
       {"common/base", "common/contract", "common/net", "common/rendezvous", "worker/runtime",
        "worker/kernels", "worker/nn", "worker/text", "worker/tasks", "worker/collectives",
        "worker/checkpoint", "worker/elastic", "worker/metrics"}},
      {"worker/bench", {"common/base", "worker/runtime", "worker/kernels", "worker/nn"}},
      {"worker/cli",
       {"common/base", "common/contract", "common/net", "common/rendezvous", "worker/runtime",
        "worker/kernels", "worker/nn", "worker/text", "worker/tasks", "worker/collectives",
        "worker/checkpoint", "worker/elastic", "worker/metrics", "worker/train", "worker/bench"}},
  };
  return kArrows;
}

std::string room_of(const std::string& path) {
  const auto first = path.find('/');
  const auto second = first == std::string::npos ? first : path.find('/', first + 1);
  return second == std::string::npos ? "" : path.substr(0, second);
}

std::vector<fs::path> sources() {
  std::vector<fs::path> files;
  for (const char* program : {"common", "controller", "worker"}) {
    const fs::path root = testing::source_dir() / program;
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const auto extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".inl") {
        files.push_back(entry.path());
      }
    }
  }
  return files;
}

std::vector<std::string> includes_of(const fs::path& file, const std::regex& pattern) {
  std::vector<std::string> found;
  std::ifstream in(file);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_search(line, match, pattern)) found.push_back(match[1]);
  }
  return found;
}

TEST(Arrows, PointDownOnly) {
  const std::regex own(R"(^\s*#\s*include\s*\"([^\"]+)\")");
  int seen = 0;
  for (const fs::path& file : sources()) {
    const std::string path = fs::relative(file, testing::source_dir());
    const std::string room = room_of(path);
    ASSERT_TRUE(arrows().contains(room)) << path << " stands in no known room";
    for (const std::string& include : includes_of(file, own)) {
      ++seen;
      const std::string other = room_of(include);
      EXPECT_TRUE(other == room || arrows().at(room).contains(other))
          << path << " includes " << include << ": no arrow runs from " << room << " to " << other;
    }
  }
  EXPECT_GT(seen, 10) << "the scan found hardly any includes: is it looking in the right place?";
}

TEST(Arrows, AreFreeOfCircles) {
  for (const auto& [room, below] : arrows()) {
    for (const std::string& other : below) {
      ASSERT_TRUE(arrows().contains(other)) << room << " -> " << other;
      EXPECT_FALSE(arrows().at(other).contains(room)) << room << " <-> " << other;
    }
  }
}

TEST(Arrows, IntrinsicsStayInTheKernels) {
  const std::regex intrinsics(R"(^\s*#\s*include\s*<(\w*intrin\.h)>)");
  for (const fs::path& file : sources()) {
    const std::string path = fs::relative(file, testing::source_dir());
    if (path.starts_with("worker/kernels/")) continue;
    for (const std::string& include : includes_of(file, intrinsics)) {
      ADD_FAILURE() << path << " includes <" << include << ">";
    }
  }
}

TEST(TopLevel, IsWhatTheReadmeLists) {
  std::ifstream in(testing::source_dir() / "README.md");
  const std::regex row(R"(^\| `([^`/]+)/?` \|)");
  std::set<std::string> listed;
  std::smatch match;
  bool map = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) map = line == "## The house";
    if (map && std::regex_search(line, match, row)) listed.insert(match[1]);
  }
  ASSERT_FALSE(listed.empty()) << "README.md has no table under \"## The house\"";
  // What git or a build leaves there is no part of the house.
  const std::set<std::string> passing = {".git", "build", ".cache", ".tilewright", "output"};
  for (const auto& entry : fs::directory_iterator(testing::source_dir())) {
    const std::string name = entry.path().filename();
    if (passing.contains(name)) continue;
    EXPECT_TRUE(listed.erase(name) == 1) << name << " is not in the README's list";
  }
  for (const std::string& name : listed)
    ADD_FAILURE() << "README.md lists " << name << ": not there";
}

}  // namespace
}  // namespace tilewright
