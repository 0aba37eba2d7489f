#include "tests/support/paths.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace tilewright::testing {

std::filesystem::path source_dir() { return TILEWRIGHT_SOURCE_DIR; }

std::filesystem::path program(const std::string& name) {
  return std::filesystem::path(TILEWRIGHT_BINARY_DIR) / "bin" / name;
}

std::filesystem::path test_program(const std::string& name) {
  return std::filesystem::path(TILEWRIGHT_BINARY_DIR) / "tests" / name;
}

std::filesystem::path model_dir() {
  const char* given = std::getenv("TILEWRIGHT_MODEL_DIR");
  const bool named = given != nullptr && *given != '\0';
  return named ? std::filesystem::absolute(given) : source_dir() / ".cache/models/all-minilm-l6-v2";
}

std::string missing_model() {
  if (std::filesystem::exists(model_dir() / "model.safetensors")) return "";
  return model_dir().string() + " is missing: `make model` fetches it, or set TILEWRIGHT_MODEL_DIR";
}

bool prerequisites_required() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string_view(ci) == "true";
}

std::string read_text(const std::filesystem::path& path, std::size_t most) {
  std::string text(std::min<std::uintmax_t>(most, std::filesystem::file_size(path)), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return text;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = std::filesystem::temp_directory_path() / "tilewright-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tilewright::testing
