// Reads Arrow IPC streams, the files that `datasets` keeps in HF_DATASETS_CACHE.
// worker/columnar/README.md lists what is supported.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "worker/columnar/byte_reader.h"
#include "worker/columnar/table.h"

namespace tilewright::columnar {

// Reads the selected columns, all if `columns` is empty; "answers" selects all columns of this
// struct. Throws Failure(kData) that names the file and the column.
Table read_arrow_stream(const std::filesystem::path& path,
                        std::span<const std::string> columns = {});

// The same for the content of a file; `path` is for messages.
Table parse_arrow_stream(Bytes content, const std::filesystem::path& path,
                         std::span<const std::string> columns = {});

}  // namespace tilewright::columnar
