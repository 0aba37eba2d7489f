// Where tests find the source tree, the built programs and a folder of their own.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright::testing {

// The root of the source tree.
std::filesystem::path source_dir();
// The built program `tilewright` or `tilewright-worker`.
std::filesystem::path program(const std::string& name);

// A new empty folder, removed with all it holds when the object goes.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tilewright::testing
