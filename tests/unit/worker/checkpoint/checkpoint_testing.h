// Builders for the tests of worker/checkpoint: files made byte by byte, and what a call throws.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "tests/support/paths.h"

namespace tilewright::checkpoint {

inline void put_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  ASSERT_TRUE(out.good()) << path;
}

// The bytes of a safetensors file as the format describes them, with any header whatever.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

// The names in a folder, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Expects `call` to throw a Failure of `code` whose sentence matches.
inline void expect_failure(const std::function<void()>& call, ExitCode code,
                           const ::testing::Matcher<std::string>& sentence) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), code) << failure.what();
    EXPECT_THAT(std::string(failure.what()), sentence);
    EXPECT_EQ(std::string(failure.what()).find('\n'), std::string::npos) << failure.what();
  }
}

}  // namespace tilewright::checkpoint
