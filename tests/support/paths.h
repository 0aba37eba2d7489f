// What tests find around them: the source tree, the built programs, the model, files, and a folder
// of their own.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright::testing {

// The root of the source tree.
std::filesystem::path source_dir();
// The built program `tilewright` or `tilewright-worker`.
std::filesystem::path program(const std::string& name);

// The MiniLM that tests train: TILEWRIGHT_MODEL_DIR, or where `make model` puts it.
std::filesystem::path model_dir();
// What to do about it where it is not there; empty where it is.
std::string missing_model();
// Whether what a test lacks is a failure, as in CI, and not a reason to skip it.
bool must_run_all();

// The bytes of a file, at most so many. Throws where it cannot be read.
std::string read_text(const std::filesystem::path& path, std::size_t most = std::string::npos);

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
