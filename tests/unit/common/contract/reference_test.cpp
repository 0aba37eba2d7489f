#include "common/contract/reference.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tilewright
