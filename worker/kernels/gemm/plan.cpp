#include "worker/kernels/gemm/plan.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "worker/kernels/integers.h"

namespace tilewright::kernels {
namespace {

double block_cost(const TiledMatrix& matrix, std::int64_t row_tiles, std::int64_t column_tiles) {
  return static_cast<double>(row_tiles * column_tiles) +
         matrix.row_cost * static_cast<double>(row_tiles) +
         matrix.column_cost * static_cast<double>(column_tiles);
}

}  // namespace

std::int64_t BlockSize::count(const TiledMatrix& matrix) const {
  return ceil_div(matrix.rows, rows) * ceil_div(matrix.columns, columns);
}

double thread_use(const TiledMatrix& matrix, BlockSize block, int threads) {
  const std::int64_t row_tiles = ceil_div(matrix.rows, matrix.mr);
  const std::int64_t column_tiles = ceil_div(matrix.columns, matrix.nr);
  const std::int64_t blocks = block.count(matrix);
  if (blocks <= 0) return 1;
  // All blocks count as whole ones: the smaller ones at the end shorten the time of few threads.
  const std::int64_t rounds = ceil_div(blocks, threads);
  const std::int64_t slowest = rounds * (block.rows / matrix.mr) * (block.columns / matrix.nr);
  return std::min(1.0, static_cast<double>(row_tiles * column_tiles) /
                           (static_cast<double>(threads) * static_cast<double>(slowest)));
}

BlockSize fastest_blocks(const TiledMatrix& matrix, BlockSize most, int threads) {
  const std::int64_t row_tiles = std::max<std::int64_t>(ceil_div(matrix.rows, matrix.mr), 1);
  const std::int64_t column_tiles = std::max<std::int64_t>(ceil_div(matrix.columns, matrix.nr), 1);
  const std::int64_t least_rows = ceil_div(matrix.rows, most.rows);
  const std::int64_t least_columns = ceil_div(matrix.columns, most.columns);
  BlockSize best;
  double best_cost = 0;
  const auto consider = [&](std::int64_t row_blocks, std::int64_t column_blocks) {
    row_blocks = std::clamp(row_blocks, std::max<std::int64_t>(least_rows, 1), row_tiles);
    const std::int64_t rows = ceil_div(row_tiles, row_blocks);
    const std::int64_t columns = ceil_div(column_tiles, column_blocks);
    const std::int64_t rounds =
        ceil_div(ceil_div(row_tiles, rows) * ceil_div(column_tiles, columns), threads);
    const double cost = static_cast<double>(rounds) * block_cost(matrix, rows, columns);
    if (best.rows != 0 && cost >= best_cost) return;
    best_cost = cost;
    best = {rows * matrix.mr, columns * matrix.nr};
  };
  // Candidates fill the threads once to four times.
  for (std::int64_t columns = std::max<std::int64_t>(least_columns, 1); columns <= column_tiles;
       ++columns) {
    for (int rounds = 1; rounds <= 4; ++rounds) consider(rounds * threads / columns, columns);
    consider(least_rows, columns);
  }
  return best;
}

namespace {

BlockSize find_busy_blocks(const TiledMatrix& matrix, BlockSize block, int threads) {
  constexpr double kEnough = 0.85;
  TiledMatrix tiles_only = matrix;
  tiles_only.row_cost = tiles_only.column_cost = 0;
  BlockSize best = block;
  for (const TiledMatrix& weighted : {matrix, tiles_only}) {
    if (thread_use(matrix, best, threads) >= kEnough) return best;
    const BlockSize other = fastest_blocks(weighted, block, threads);
    if (thread_use(matrix, other, threads) > thread_use(matrix, best, threads)) best = other;
  }
  return best;
}

struct BusyBlocks {
  TiledMatrix matrix;
  BlockSize most;
  int threads = 0;
  BlockSize found;
};

}  // namespace

BlockSize keep_threads_busy(const TiledMatrix& matrix, BlockSize block, int threads) {
  constexpr std::size_t kRemembered = 32;  // a step of BERT has 12 different products
  thread_local std::array<BusyBlocks, kRemembered> remembered;
  thread_local std::size_t oldest = 0;
  const auto known = std::ranges::find_if(remembered, [&](const BusyBlocks& one) {
    return one.threads == threads && one.most == block && one.matrix == matrix;
  });
  if (known != remembered.end()) return known->found;
  const BlockSize found = find_busy_blocks(matrix, block, threads);
  remembered[oldest] = {matrix, block, threads, found};
  oldest = (oldest + 1) % kRemembered;
  return found;
}

}  // namespace tilewright::kernels
