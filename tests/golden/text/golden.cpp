#include "tests/golden/text/golden.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

static_assert(std::endian::native == std::endian::little, "hashes are over little-endian numbers");

namespace tilewright::testing {

nlohmann::json golden_hashes() {
  return nlohmann::json::parse(read_text(source_dir() / "tests/golden/text/token_hashes.json"));
}

std::filesystem::path data_dir() {
  const char* given = std::getenv("TILEWRIGHT_DATA_DIR");
  const bool named = given != nullptr && *given != '\0';
  return named ? std::filesystem::path(given) : source_dir().parent_path() / "shared/data";
}

void SequenceHash::sequence(std::span<const std::int32_t> ids) {
  const auto length = static_cast<std::int32_t>(ids.size());
  sha_.update(&length, sizeof length);
  sha_.update(ids.data(), ids.size_bytes());
}

std::vector<std::int32_t> token_types(std::size_t tokens, std::size_t first_segment) {
  std::vector<std::int32_t> types(tokens, 1);
  std::fill_n(types.begin(), first_segment, 0);
  return types;
}

void SequenceHash::text(std::string_view bytes) {
  const auto length = static_cast<std::int32_t>(bytes.size());
  sha_.update(&length, sizeof length);
  sha_.update(bytes.data(), bytes.size());
}

}  // namespace tilewright::testing
