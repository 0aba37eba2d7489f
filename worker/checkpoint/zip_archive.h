// The directory of a ZIP archive whose entries are stored, not compressed, as torch.save writes it.
//
// Own code instead of libzip, which copies the data of an entry and does not tell its offset: the
// weights are used where they lie in the mapped file. Source of the format: PKWARE's APPNOTE.TXT
// 6.3.10, with ZIP64 (4.5.3, 4.3.14). CRC-32 is not checked, because torch.save can be configured
// to write none and torch.load does not read it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::checkpoint {

// Name -> data; both are views into the archive.
using ZipEntries = std::map<std::string_view, std::span<const std::byte>>;

// BERT-large has 400 entries.
inline constexpr std::size_t kMaxZipEntries = 100'000;

// `content` is the whole archive. Throws Failure with `code`; the message names `path` and the
// entry.
ZipEntries read_zip(std::span<const std::byte> content, const std::filesystem::path& path,
                    ExitCode code);

}  // namespace tilewright::checkpoint
