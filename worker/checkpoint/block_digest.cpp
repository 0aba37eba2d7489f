#include "worker/checkpoint/block_digest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/sha256.h"
#include "worker/runtime/parallel.h"

namespace tilewright::checkpoint {

std::vector<std::string> block_digests(std::span<const NamedContent> contents,
                                       runtime::ThreadPool* pool) {
  std::vector<std::span<const std::byte>> blocks;
  for (const NamedContent& content : contents) {
    std::span<const std::byte> rest = content.bytes;
    do {  // an empty content has one empty block
      blocks.push_back(rest.first(std::min(rest.size(), kDigestBlock)));
      rest = rest.subspan(blocks.back().size());
    } while (!rest.empty());
  }
  std::vector<std::string> sums(blocks.size());
  runtime::for_each_index(pool, std::ssize(blocks), [&](std::int64_t i) {
    const std::span<const std::byte> block = blocks[static_cast<std::size_t>(i)];
    Sha256 sha;
    sha.update(block.data(), block.size());
    sums[static_cast<std::size_t>(i)] = sha.hex();
  });
  std::vector<std::string> digests;
  digests.reserve(contents.size());
  auto next = sums.begin();
  for (const NamedContent& content : contents) {
    const std::size_t count =
        std::max<std::size_t>(1, (content.bytes.size() + kDigestBlock - 1) / kDigestBlock);
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    digests.push_back(count == 1 ? *next
                                 : sha256_hex(fmt::format("{}", fmt::join(next, end, "\n"))));
    next = end;
  }
  return digests;
}

std::string digest_of_list(std::span<const NamedContent> contents, runtime::ThreadPool* pool) {
  const std::vector<std::string> digests = block_digests(contents, pool);
  std::string lines;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    lines += fmt::format("{}  {}\n", digests[i], contents[i].name);
  }
  return sha256_hex(lines);
}

std::string tensors_digest(const Tensors& tensors, runtime::ThreadPool* pool) {
  std::vector<NamedContent> contents;
  contents.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) contents.push_back({name, tensor.bytes});
  return digest_of_list(contents, pool);
}

}  // namespace tilewright::checkpoint
