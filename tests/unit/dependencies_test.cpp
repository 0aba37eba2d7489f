// Checks the module structure: the dependencies of CMake's targets form no cycle and follow the
// order of the module list, every #include has a declared dependency, and the README lists all
// top-level files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

// Module path -> the modules it depends on directly.
using Dependencies = std::map<std::string, std::set<std::string>>;

// The modules that CMake configured. tilewright_write_dependencies() writes a line
// "controller/policy: common/base controller/api" for each module, in the order of the list.
struct Modules {
  std::vector<std::string> order;
  Dependencies dependencies;
};

Modules declared_modules() {
  Modules modules;
  std::ifstream in(TILEWRIGHT_DEPENDENCIES_FILE);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string module;
    words >> module;
    if (module.empty()) continue;
    module.pop_back();  // the colon
    modules.order.push_back(module);
    std::set<std::string>& direct = modules.dependencies[module];
    for (std::string other; words >> other;) direct.insert(other);
  }
  return modules;
}

// The modules of one cycle in the order of its edges; empty: no cycle. Depth-first search.
std::vector<std::string> find_cycle(const Dependencies& dependencies) {
  std::set<std::string> done;
  std::vector<std::string> path;
  const auto visit = [&](const auto& self, const std::string& module) -> bool {
    const auto start = std::find(path.begin(), path.end(), module);
    if (start != path.end()) {
      path.erase(path.begin(), start);
      return true;
    }
    if (!done.insert(module).second) return false;
    path.push_back(module);
    const auto found = dependencies.find(module);
    if (found != dependencies.end()) {
      for (const std::string& other : found->second) {
        if (self(self, other)) return true;
      }
    }
    path.pop_back();
    return false;
  };
  for (const auto& [module, direct] : dependencies) {
    if (visit(visit, module)) return path;
  }
  return {};
}

std::string module_of(const std::string& path) {
  const auto first = path.find('/');
  const auto second = first == std::string::npos ? first : path.find('/', first + 1);
  return second == std::string::npos ? "" : path.substr(0, second);
}

std::vector<fs::path> sources() {
  std::vector<fs::path> files;
  for (const char* program : {"common", "controller", "worker"}) {
    const fs::path root = testing::source_dir() / program;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const auto extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".inl") {
        files.push_back(entry.path());
      }
    }
  }
  return files;
}

std::vector<std::string> matches_in(const fs::path& file, const std::regex& pattern) {
  std::vector<std::string> found;
  std::ifstream in(file);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_search(line, match, pattern)) found.push_back(match[1]);
  }
  return found;
}

TEST(Dependencies, FindCyclesOfAnyLength) {
  EXPECT_EQ(find_cycle({{"a", {"b"}}, {"b", {"c"}}, {"c", {}}}), std::vector<std::string>{});
  EXPECT_EQ(find_cycle({{"a", {"a"}}}), std::vector<std::string>{"a"});
  EXPECT_EQ(find_cycle({{"a", {"b"}}, {"b", {"c", "d"}}, {"c", {}}, {"d", {"e"}}, {"e", {"b"}}}),
            (std::vector<std::string>{"b", "d", "e"}));
}

TEST(Dependencies, FormNoCycleAndFollowTheModuleOrder) {
  const Modules modules = declared_modules();
  ASSERT_GT(modules.order.size(), 10U) << TILEWRIGHT_DEPENDENCIES_FILE << " lists no modules";
  std::string cycle;
  for (const std::string& module : find_cycle(modules.dependencies)) cycle += module + " -> ";
  EXPECT_EQ(cycle, "");
  std::set<std::string> above;
  for (const std::string& module : modules.order) {
    for (const std::string& other : modules.dependencies.at(module)) {
      EXPECT_TRUE(above.contains(other))
          << module << " depends on " << other << ", which CMakeLists.txt lists below it";
    }
    above.insert(module);
  }
}

TEST(Dependencies, WorkerAndControllerAreIndependent) {
  for (const auto& [module, direct] : declared_modules().dependencies) {
    for (const std::string& other : direct) {
      EXPECT_FALSE(module.starts_with("worker/") && other.starts_with("controller/"))
          << module << " -> " << other;
      EXPECT_FALSE(module.starts_with("controller/") && other.starts_with("worker/"))
          << module << " -> " << other;
      EXPECT_FALSE(module.starts_with("common/") && !other.starts_with("common/"))
          << module << " -> " << other;
    }
  }
}

TEST(Dependencies, CoverEveryInclude) {
  const Dependencies declared = declared_modules().dependencies;
  const std::regex own(R"(^\s*#\s*include\s*\"([^\"]+)\")");
  Dependencies unused = declared;
  int seen = 0;
  for (const fs::path& file : sources()) {
    const std::string path = fs::relative(file, testing::source_dir());
    const std::string module = module_of(path);
    ASSERT_TRUE(declared.contains(module)) << path << " belongs to no module of CMakeLists.txt";
    for (const std::string& include : matches_in(file, own)) {
      ++seen;
      const std::string other = module_of(include);
      unused[module].erase(other);
      EXPECT_TRUE(other == module || declared.at(module).contains(other))
          << path << " includes " << include << ", but " << module << " does not depend on "
          << other;
    }
  }
  EXPECT_GT(seen, 1000) << "the scan found too few includes";
  for (const auto& [module, others] : unused) {
    EXPECT_THAT(others, ::testing::IsEmpty()) << module << " includes nothing of these modules";
  }
}

TEST(Dependencies, IntrinsicsHeadersStayInTheKernels) {
  const std::regex intrinsics(R"(^\s*#\s*include\s*<(\w*intrin\.h)>)");
  for (const fs::path& file : sources()) {
    const std::string path = fs::relative(file, testing::source_dir());
    if (path.starts_with("worker/kernels/")) continue;
    for (const std::string& include : matches_in(file, intrinsics)) {
      ADD_FAILURE() << path << " includes <" << include << ">";
    }
  }
}

TEST(Dependencies, OnlyOneFileIncludesCpprestsdk) {
  const std::regex cpprest(R"(^\s*#\s*include\s*<((?:cpprest|pplx)/[^>]+)>)");
  std::set<std::string> users;
  for (const fs::path& file : sources()) {
    if (!matches_in(file, cpprest).empty()) {
      users.insert(fs::relative(file, testing::source_dir()).string());
    }
  }
  EXPECT_EQ(users, std::set<std::string>{"controller/client/transport.cpp"});
}

// They are functions of what the operator has observed, and of the time that it gives them.
TEST(Dependencies, PoliciesReadNoClockAndNoJson) {
  const std::regex forbidden(R"(\b(nlohmann|wall_now|monotonic_now|\w+_clock::now)\b)");
  int seen = 0;
  for (const fs::path& file : sources()) {
    const std::string path = fs::relative(file, testing::source_dir());
    if (!path.starts_with("controller/policy/")) continue;
    ++seen;
    EXPECT_THAT(matches_in(file, forbidden), ::testing::IsEmpty()) << path;
  }
  EXPECT_GT(seen, 20) << "the scan found too few files";
}

TEST(TopLevel, MatchesTheReadme) {
  std::ifstream in(testing::source_dir() / "README.md");
  const std::regex row(R"(^\| `([^`/]+)/?` \|)");
  std::set<std::string> listed;
  std::smatch match;
  bool map = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) map = line == "## Source tree";
    if (map && std::regex_search(line, match, row)) listed.insert(match[1]);
  }
  ASSERT_FALSE(listed.empty()) << "README.md has no table under \"## Source tree\"";
  // Created by git, by builds and by the programs.
  const std::set<std::string> generated = {".git", "build", ".cache", ".tilewright", "output"};
  for (const auto& entry : fs::directory_iterator(testing::source_dir())) {
    const std::string name = entry.path().filename();
    if (generated.contains(name)) continue;
    EXPECT_TRUE(listed.erase(name) == 1) << name << " is not in the README's list";
  }
  for (const std::string& name : listed) {
    ADD_FAILURE() << "README.md lists " << name << ", which does not exist";
  }
}

}  // namespace
}  // namespace tilewright
