#include "common/contract/reference.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "common/base/files.h"
#include "common/contract/environment.h"
#include "common/contract/labels.h"
#include "common/contract/ports.h"
#include "tests/support/paths.h"

namespace tilewright {
namespace {

template <typename Rows>
void expect_unique_names(const Rows& rows) {
  std::set<std::string_view> names;
  for (const auto& row : rows) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(Reference, TheCommittedPageIsUpToDate) {
  const auto committed =
      read_file(testing::source_dir() / "docs/reference.md", 1 << 20, ExitCode::kInternal);
  ASSERT_TRUE(committed.ok()) << committed.error().message;
  EXPECT_EQ(*committed, reference_page()) << "docs/reference.md is stale: run make docs";
}

TEST(Reference, RowNamesAreUnique) {
  expect_unique_names(env::kVariables);
  expect_unique_names(kPorts);
  expect_unique_names(labels::kLabels);
  expect_unique_names(annotations::kAnnotations);
}

// docs/from-the-cpu-guides.md says what becomes of each flag and variable of the guides' manifests.
TEST(GuidePage, NamesTheFlagsAndVariablesOfTheManifests) {
  const auto text_of = [](const std::string& path) {
    return read_file(testing::source_dir() / path, 1 << 20, ExitCode::kInternal).or_throw();
  };
  const std::string page = text_of("docs/from-the-cpu-guides.md");
  const std::regex word("(--[a-z0-9_]+)|- name: ([A-Z][A-Z0-9_]+)");
  std::set<std::string> found;
  for (const char* manifest : {"bert-large", "distilbert"}) {
    const std::string text =
        text_of(std::string("tests/golden/guides/pytorchjob-") + manifest + ".yaml");
    for (std::sregex_iterator match(text.begin(), text.end(), word), end; match != end; ++match)
      found.insert((*match)[(*match)[1].matched ? 1 : 2].str());
  }
  EXPECT_GT(found.size(), 18U);
  for (const std::string& name : found)
    EXPECT_NE(page.find("`" + name), std::string::npos) << name << " is not on the page";
}

}  // namespace
}  // namespace tilewright
