#include "tests/golden/text/golden.h"

#include <bit>
#include <cstdlib>
#include <fstream>

#include "tests/support/paths.h"

static_assert(std::endian::native == std::endian::little, "hashes are over little-endian numbers");

namespace tilewright::testing {
namespace {

std::filesystem::path folder(const char* variable, const std::filesystem::path& otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? std::filesystem::path(value) : otherwise;
}

}  // namespace

nlohmann::json golden_hashes() {
  std::ifstream in(source_dir() / "tests/golden/text/token_hashes.json");
  return nlohmann::json::parse(in);
}

std::filesystem::path model_dir() {
  return folder("TILEWRIGHT_MODEL_DIR", source_dir() / ".cache/models/all-minilm-l6-v2");
}

std::filesystem::path data_dir() {
  return folder("TILEWRIGHT_DATA_DIR", source_dir().parent_path() / "shared/data");
}

void SequenceHash::sequence(std::span<const std::int32_t> ids) {
  const auto length = static_cast<std::int32_t>(ids.size());
  sha_.update(&length, sizeof length);
  sha_.update(ids.data(), ids.size_bytes());
}

void SequenceHash::text(std::string_view bytes) {
  const auto length = static_cast<std::int32_t>(bytes.size());
  sha_.update(&length, sizeof length);
  sha_.update(bytes.data(), bytes.size());
}

}  // namespace tilewright::testing
