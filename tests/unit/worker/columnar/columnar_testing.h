// Helpers for the tests of worker/columnar: the files of tests/golden/columnar/data, and expected
// failures.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "tests/support/paths.h"
#include "worker/columnar/arrow_stream.h"
#include "worker/columnar/parquet.h"

namespace tilewright::columnar {

inline const Location kPlace("FILE");

inline std::filesystem::path data_file(const std::string& name) {
  return tilewright::testing::source_dir() / "tests/golden/columnar/data" / name;
}

inline Table read_table(const std::filesystem::path& path,
                        const std::vector<std::string>& columns = {}) {
  return path.extension() == ".parquet" ? read_parquet(path, {columns, {}})
                                        : read_arrow_stream(path, {columns, {}});
}

// Parses bytes that are on the heap without anything after them, so that the address sanitizer
// sees every read past their end.
inline Table parse_table(const std::string& bytes, const std::string& name) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  const std::vector<std::byte> exact(begin, begin + bytes.size());
  return name.ends_with(".parquet") ? parse_parquet(exact, name) : parse_arrow_stream(exact, name);
}

// The message of the Failure(kData) of `action`; empty if it succeeds.
inline std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData) << failure.what();
    return failure.what();
  }
  return {};
}

}  // namespace tilewright::columnar
