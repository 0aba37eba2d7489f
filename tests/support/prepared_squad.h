// SQuAD as the datasets library leaves it in its cache: the Arrow files of
// tests/golden/guides/arrow, which have the rows of the hub's Parquet files there.
#pragma once

#include <filesystem>
#include <fstream>

#include "tests/support/paths.h"

namespace tilewright::testing {

// `cache`: HF_DATASETS_CACHE.
inline void write_prepared_squad(const std::filesystem::path& cache) {
  const std::filesystem::path prepared = cache / "squad/plain_text/0.0.0/c11c";
  std::filesystem::create_directories(prepared);
  for (const char* name : {"squad-train.arrow", "squad-validation.arrow"}) {
    std::filesystem::copy_file(source_dir() / "tests/golden/guides/arrow" / name, prepared / name);
  }
  std::ofstream(prepared / "dataset_info.json") << R"({"config_name": "plain_text", "splits": {
      "train": {"name": "train", "num_examples": 24},
      "validation": {"name": "validation", "num_examples": 8}}})";
}

}  // namespace tilewright::testing
