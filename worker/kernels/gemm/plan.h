// How the products of a linear layer are cut into blocks, one per task.
#pragma once

#include <cstdint>

namespace tilewright::kernels {

// A matrix [rows, columns] that is computed in register tiles of mr x nr. A block costs one unit
// per tile, and additionally `row_cost` per row of tiles and `column_cost` per column of tiles, for
// operands that are loaded or packed once per block.
struct TiledMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t mr = 1;
  std::int64_t nr = 1;
  double row_cost = 0;
  double column_cost = 0;
  bool operator==(const TiledMatrix&) const = default;
};

// The size of a block, a multiple of mr x nr. Blocks at the end of the matrix are smaller.
struct BlockSize {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t count(const TiledMatrix& matrix) const;
  bool operator==(const BlockSize&) const = default;
};

// The part of the threads' time that goes into tiles if each thread takes the next block when it
// has finished one: tiles / (threads x time of the slowest thread, in tiles).
double thread_use(const TiledMatrix& matrix, BlockSize block, int threads);

// The block size of at most `most` with the shortest time.
BlockSize fastest_blocks(const TiledMatrix& matrix, BlockSize most, int threads);

// `block`, which was measured on few threads, unless it leaves many threads idle; then the fastest
// one of at most its size. Each thread remembers its last answers, because a step asks the same for
// all layers, and the search takes up to 9 us, in which all other threads wait.
BlockSize keep_threads_busy(const TiledMatrix& matrix, BlockSize block, int threads);

}  // namespace tilewright::kernels
