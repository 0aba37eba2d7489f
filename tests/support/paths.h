// Locations that tests use: the source tree, the built programs, the model, files and temporary
// directories.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright::testing {

// The root of the source tree.
std::filesystem::path source_dir();
// The built program `tilewright` or `tilewright-worker`.
std::filesystem::path program(const std::string& name);

// A program that only tests use.
std::filesystem::path test_program(const std::string& name);

// The MiniLM model that tests train: TILEWRIGHT_MODEL_DIR, by default the output of `make model`.
std::filesystem::path model_dir();
// A message that says how to get the model if it is missing; otherwise empty.
std::string missing_model();
// Whether a missing prerequisite fails a test, as in CI, instead of skipping it.
bool prerequisites_required();

// The first `most` bytes of a file. Throws if it cannot be read.
std::string read_text(const std::filesystem::path& path, std::size_t most = std::string::npos);

// A new empty directory, removed with its content by the destructor.
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
