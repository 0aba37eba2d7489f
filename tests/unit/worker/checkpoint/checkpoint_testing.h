// Helpers for the tests of worker/checkpoint: files with given bytes, and expected Failures.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "tests/support/paths.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/checkpoint/ownership_marker.h"
#include "worker/checkpoint/safetensors_header.h"

namespace tilewright::checkpoint {

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  ASSERT_TRUE(out.good()) << path;
}

// The bytes of a safetensors file with any header, also an invalid one.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

// The elements of a tensor of this type.
template <typename Element>
std::vector<Element> values_of(const Tensor& tensor) {
  std::vector<Element> values(static_cast<std::size_t>(tensor.size()));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// The names in a directory, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A writer that has acquired the directory, in the membership epoch if there is one.
inline OutputWriter own(const std::filesystem::path& directory,
                        std::optional<std::uint64_t> membership_epoch = {},
                        const std::string& job_uid = "uid-1") {
  return acquire_output_dir(directory, {job_uid, membership_epoch});
}

// The entries of an output directory except the ownership marker, sorted.
inline std::vector<std::string> content_of(const std::filesystem::path& directory) {
  std::vector<std::string> names = names_in(directory);
  std::erase(names, kOwnershipMarkerFile);
  return names;
}

// Expects `call` to throw a Failure of `code` whose message matches.
inline void expect_failure(const std::function<void()>& call, ExitCode code,
                           const ::testing::Matcher<std::string>& message) {
  try {
    call();
    ADD_FAILURE() << "no Failure was thrown";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), code) << failure.what();
    EXPECT_THAT(std::string(failure.what()), message);
    EXPECT_EQ(std::string(failure.what()).find('\n'), std::string::npos) << failure.what();
  }
}

}  // namespace tilewright::checkpoint
