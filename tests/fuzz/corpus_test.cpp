// Runs each harness on its corpus: seeds, and the inputs that once found a fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/fuzz/harness.h"
#include "tests/support/paths.h"

namespace tilewright::fuzz {
namespace {

namespace fs = std::filesystem;

class FuzzCorpus : public ::testing::TestWithParam<NamedHarness> {};

TEST_P(FuzzCorpus, KeepsTheInvariants) {
  const fs::path folder = testing::source_dir() / "tests/fuzz/corpus" / GetParam().name;
  std::vector<fs::path> inputs;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    inputs.push_back(entry.path());
  }
  ASSERT_FALSE(inputs.empty()) << folder;
  std::ranges::sort(inputs);
  for (const fs::path& input : inputs) {
    SCOPED_TRACE(input.filename().string());
    const std::string content = testing::read_text(input);
    // A copy of exactly this size, so that valgrind sees a read past its end.
    const std::vector<std::uint8_t> bytes(content.begin(), content.end());
    // A violated invariant aborts; the message names no file.
    RecordProperty("input", input.filename().string());
    EXPECT_EQ(GetParam().run(bytes.data(), bytes.size()), 0);
  }
}

// Inputs without a file: nothing, and one byte of each value.
TEST_P(FuzzCorpus, AcceptsShortInputs) {
  EXPECT_EQ(GetParam().run(nullptr, 0), 0);
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    EXPECT_EQ(GetParam().run(&byte, 1), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzCorpus, ::testing::ValuesIn(kHarnesses),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace tilewright::fuzz
