// SHA-256 of large contents, computed on several threads.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "worker/checkpoint/tensor.h"
#include "worker/runtime/thread_pool.h"

namespace tilewright::checkpoint {

inline constexpr std::size_t kDigestBlock = std::size_t{4} << 20;

struct NamedContent {
  std::string name;
  std::span<const std::byte> bytes;
};

// Returns the SHA-256 of each content or, if it has more than kDigestBlock bytes, that of the lines
// of its blocks' SHA-256 without the last newline. The blocks are hashed on all threads of `pool`
// (null: this thread).
std::vector<std::string> block_digests(std::span<const NamedContent> contents,
                                       runtime::ThreadPool* pool);

// The SHA-256 of the lines that sha256sum would print for these digests and names.
std::string digest_of_list(std::span<const NamedContent> contents, runtime::ThreadPool* pool);
// That of the tensors' data, in the order of their names. Their dtypes and shapes are not in it.
std::string tensors_digest(const Tensors& tensors, runtime::ThreadPool* pool);

}  // namespace tilewright::checkpoint
