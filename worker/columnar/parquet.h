// Reads Parquet files as the Hugging Face hub serves them. worker/columnar/README.md lists what is
// supported.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "worker/columnar/byte_reader.h"
#include "worker/columnar/selection.h"
#include "worker/columnar/table.h"

namespace tilewright::columnar {

// Reads the selected columns. Throws Failure(kData) that names the file and the column.
Table read_parquet(const std::filesystem::path& path, const Selection& selection = {});

// The same for the content of a file; `path` is for messages.
Table parse_parquet(Bytes content, const std::filesystem::path& path,
                    const Selection& selection = {});

}  // namespace tilewright::columnar
