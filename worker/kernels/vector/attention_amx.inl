// Attention of the heads of one example on AMX tiles. Formulas: ref/attention_ref.cpp.
//
// Tiles is the type that gemm/amx_steps.h describes. A tile register has 16 rows of 64 bytes; a
// dot adds 32 products to each of 16 x 16 sums. Operands are packed once per head into tiles of 512
// contiguous bf16:
//   rows    a left operand: 16 rows of 32 summed elements
//   pairs   a right operand: 16 pairs of summed elements of 16 columns each
// A column is 16 queries, a chunk 32 keys or queries, a square 2 x 2 tiles of sums. Scores are
// transposed, [keys, queries]: the statistics of a query are one lane, P and dS are rows of dV and
// dK unpacked, and pairs of keys of the transposed outputs O^T = V^T P^T and dQ^T = K^T dS^T.
//
// Vectors that load what tiles have just stored stall, so sums are used one step after they are
// stored.
namespace tilewright::kernels {
namespace {

inline constexpr std::int64_t kTileRows = 16;   // rows of a tile, and columns of its sums
inline constexpr std::int64_t kTileDepth = 32;  // summed elements of a dot
inline constexpr std::int64_t kTileSize = 512;  // bf16 of an operand's tile
inline constexpr std::int64_t kSumsSize = 256;  // floats of a tile of sums
inline constexpr std::int64_t kSquareSize = 4 * kSumsSize;  // floats of 2 x 2 tiles of sums
inline constexpr std::int64_t kTileBytes = 64;              // bytes of a row
inline constexpr std::int64_t kTilePairs = 8;               // pairs of keys in 16 rows
inline constexpr std::int64_t kOutputTiles = 4;  // outputs that stay in tile registers 0 to 3
static_assert(kTileRows == kMaskColumns);
// Queries of backward whose P and dS stay in scratch until they are multiplied to dV and dK.
inline constexpr std::int64_t kQueryBlock = 128;
inline constexpr std::int64_t kBlockChunks = kQueryBlock / kTileDepth;

// Numbers of tiles of a head.
struct TileCounts {
  TileCounts(std::int64_t keys, std::int64_t D)
      : chunks(ceil_div(keys, kTileDepth)), depth(ceil_div(D, kTileDepth)), outputs(2 * depth) {}
  std::int64_t chunks;   // of 32 keys
  std::int64_t depth;    // tiles along a head's summed elements
  std::int64_t outputs;  // tiles along a head's outputs
};

// ---- Packing. Elements beyond the given rows and columns are zero.

template <bool kWhole>
inline __m512i load_bf16(const bf16* p, std::int64_t n) {
  if constexpr (kWhole) return _mm512_loadu_si512(p);
  if (n >= kTileDepth) return _mm512_loadu_si512(p);
  return _mm512_maskz_loadu_epi16((1u << n) - 1u, p);
}
template <bool kWhole>
inline __m256i load_half(const bf16* p, std::int64_t n) {
  if constexpr (kWhole) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>(n >= kTileRows ? 0xffffu : (1u << n) - 1u),
                                  p);
}
inline void store_tile_row(bf16* p, __m512i row) { _mm512_storeu_si512(p, row); }

// 16 rows of 32 elements. kWhole, here and below: the source has all rows and columns of the tile.
template <bool kWhole>
inline void pack_rows_tile(const bf16* src, std::int64_t stride, std::int64_t rows, std::int64_t n,
                           bf16* tile) {
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    store_tile_row(tile + r * kTileDepth, kWhole || r < rows
                                              ? load_bf16<kWhole>(src + r * stride, n)
                                              : _mm512_setzero_si512());
  }
}

// The transpose of 16 rows of 32 elements, as pairs of elements.
template <bool kWhole>
inline void pack_transposed_pairs(const bf16* src, std::int64_t stride, std::int64_t rows,
                                  std::int64_t n, bf16* tile) {
  Vec block[kTileRows];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    block[r] = kWhole || r < rows ? _mm512_castsi512_ps(load_bf16<kWhole>(src + r * stride, n))
                                  : broadcast(0.0f);
  }
  transpose(block);
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    store_tile_row(tile + r * kTileDepth, _mm512_castps_si512(block[r]));
  }
}

// The pairs (first[i], second[i]) of 16 elements.
inline __m512i interleave(__m256i first, __m256i second) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
}
template <bool kWhole>
inline __m512i pair_of_rows(const bf16* src, std::int64_t stride, std::int64_t row,
                            std::int64_t rows, std::int64_t n) {
  if constexpr (kWhole) {
    return interleave(load_half<true>(src + row * stride, n),
                      load_half<true>(src + (row + 1) * stride, n));
  }
  const __m256i zero = _mm256_setzero_si256();
  return interleave(row < rows ? load_half<false>(src + row * stride, n) : zero,
                    row + 1 < rows ? load_half<false>(src + (row + 1) * stride, n) : zero);
}

// 16 pairs of rows of 16 elements.
template <bool kWhole>
inline void pack_pairs_tile(const bf16* src, std::int64_t stride, std::int64_t rows, std::int64_t n,
                            bf16* tile) {
  for (std::int64_t p = 0; p < kTileRows; ++p) {
    store_tile_row(tile + p * kTileDepth, pair_of_rows<kWhole>(src, stride, 2 * p, rows, n));
  }
}

// The transpose of 32 rows of 16 elements.
template <bool kWhole>
inline void pack_transposed_rows(const bf16* src, std::int64_t stride, std::int64_t rows,
                                 std::int64_t n, bf16* tile) {
  Vec block[kTileRows];
#pragma GCC unroll 16
  for (int p = 0; p < kTileRows; ++p) {
    block[p] = _mm512_castsi512_ps(pair_of_rows<kWhole>(src, stride, 2 * p, rows, n));
  }
  transpose(block);
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    store_tile_row(tile + r * kTileDepth, _mm512_castps_si512(block[r]));
  }
}

// Packs `rows` rows of D elements as [rows / 16][depth] tiles of rows.
inline void pack_head_rows(const bf16* src, std::int64_t stride, std::int64_t rows,
                           std::int64_t row_tiles, std::int64_t D, std::int64_t depth, bf16* out) {
  for (std::int64_t t = 0; t < row_tiles; ++t) {
    for (std::int64_t k = 0; k < depth; ++k, out += kTileSize) {
      const bf16* from = src + t * kTileRows * stride + k * kTileDepth;
      const std::int64_t left = rows - t * kTileRows;
      const std::int64_t n = D - k * kTileDepth;
      left >= kTileRows&& n >= kTileDepth ? pack_rows_tile<true>(from, stride, left, n, out)
                                          : pack_rows_tile<false>(from, stride, left, n, out);
    }
  }
}
// Packs 16 rows as [depth] tiles of pairs along D.
inline void pack_column(const bf16* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
                        std::int64_t depth, bf16* out) {
  for (std::int64_t k = 0; k < depth; ++k, out += kTileSize) {
    const std::int64_t n = D - k * kTileDepth;
    rows >= kTileRows&& n >= kTileDepth
        ? pack_transposed_pairs<true>(src + k * kTileDepth, stride, rows, n, out)
        : pack_transposed_pairs<false>(src + k * kTileDepth, stride, rows, n, out);
  }
}
template <bool kTranspose, bool kWhole>
inline void pack_chunk(const bf16* src, std::int64_t stride, std::int64_t rows, std::int64_t n,
                       bf16* tile) {
  kTranspose ? pack_transposed_rows<kWhole>(src, stride, rows, n, tile)
             : pack_pairs_tile<kWhole>(src, stride, rows, n, tile);
}
// Packs `rows` rows as [rows / 32][outputs] tiles: pairs of rows, or their transpose as rows.
template <bool kTranspose>
void pack_chunks(const bf16* src, std::int64_t stride, std::int64_t rows, std::int64_t D,
                 std::int64_t outputs, bf16* out) {
  for (std::int64_t i = 0; i < rows; i += kTileDepth) {
    for (std::int64_t o = 0; o < outputs; ++o, out += kTileSize) {
      const bf16* from = src + i * stride + o * kTileRows;
      const std::int64_t n = D - o * kTileRows;
      if (n <= 0) {
        __builtin_memset(static_cast<void*>(out), 0, kTileSize * sizeof(bf16));
      } else if (rows - i >= kTileDepth && n >= kTileRows) {
        pack_chunk<kTranspose, true>(from, stride, rows - i, n, out);
      } else {
        pack_chunk<kTranspose, false>(from, stride, rows - i, n, out);
      }
    }
  }
}

// ---- Products.

// Sums kSum = rows times pairs over `depth` tiles.
template <int kSum, class Tiles>
inline void multiply_tiles(Tiles& tiles, const bf16* rows, const bf16* pairs, std::int64_t depth) {
  tiles.template zero<kSum>();
  for (std::int64_t k = 0; k < depth; ++k) {
    tiles.template load<6>(rows + k * kTileSize, kTileBytes);
    tiles.template load<7>(pairs + k * kTileSize, kTileBytes);
    tiles.template dot<kSum, 6, 7>();
  }
}

// Sums 0 to count - 1, of outputs, for one chunk of summed elements.
template <class Tiles>
inline void clear_outputs(Tiles& tiles) {
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
}
template <class Tiles>
inline void add_outputs(Tiles& tiles, const bf16* rows, const bf16* pairs, std::int64_t count) {
  tiles.template load<7>(pairs, kTileBytes);
  tiles.template load<6>(rows, kTileBytes);
  tiles.template dot<0, 6, 7>();
  tiles.template load<6>(rows + kTileSize, kTileBytes);
  tiles.template dot<1, 6, 7>();
  if (count == 2) return;
  tiles.template load<6>(rows + 2 * kTileSize, kTileBytes);
  tiles.template dot<2, 6, 7>();
  tiles.template load<6>(rows + 3 * kTileSize, kTileBytes);
  tiles.template dot<3, 6, 7>();
}
template <class Tiles>
inline void store_outputs(Tiles& tiles, float* sums, std::int64_t count) {
  tiles.template store<0>(sums, kTileBytes);
  tiles.template store<1>(sums + kSumsSize, kTileBytes);
  if (count == 2) return;
  tiles.template store<2>(sums + 2 * kSumsSize, kTileBytes);
  tiles.template store<3>(sums + 3 * kSumsSize, kTileBytes);
}
// The outputs beyond the first four of a column, from its stored pairs.
template <class Tiles>
void add_further_outputs(Tiles& tiles, const bf16* rows, const bf16* pairs, std::int64_t chunks,
                         std::int64_t outputs, float* sums) {
  for (std::int64_t o = kOutputTiles; o < outputs; o += kOutputTiles) {
    const std::int64_t count = smaller(outputs - o, kOutputTiles);
    clear_outputs(tiles);
    for (std::int64_t c = 0; c < chunks; ++c) {
      add_outputs(tiles, rows + (c * outputs + o) * kTileSize, pairs + c * kTileSize, count);
    }
    store_outputs(tiles, sums + o * kSumsSize, count);
  }
}

// A square of 2 x 2 tiles of sums, registers 0 to 3: adds two tiles of rows times two tiles of
// pairs.
template <class Tiles>
inline void add_square(Tiles& tiles, const bf16* rows, std::int64_t next_rows, const bf16* pairs,
                       std::int64_t next_pairs) {
  tiles.template load<4>(rows, kTileBytes);
  tiles.template load<6>(pairs, kTileBytes);
  tiles.template dot<0, 4, 6>();
  tiles.template load<7>(pairs + next_pairs, kTileBytes);
  tiles.template dot<1, 4, 7>();
  tiles.template load<5>(rows + next_rows, kTileBytes);
  tiles.template dot<2, 5, 6>();
  tiles.template dot<3, 5, 7>();
}

// Rounds the transposed outputs of 16 queries, times a factor for each, to rows of D elements. The
// tiles of sums are sums_step floats apart.
inline void write_transposed(const float* sums, std::int64_t sums_step, Vec factors,
                             std::int64_t rows, std::int64_t D, bf16* to, std::int64_t stride) {
  for (std::int64_t d = 0; d < D; d += kTileRows, sums += sums_step) {
    Vec block[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) block[r] = load(sums + r * kLanes) * factors;
    transpose(block);
    if (rows >= kTileRows && D - d >= kTileRows) {
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) store(to + r * stride + d, block[r]);
    } else {
      const std::int64_t n = smaller(D - d, kTileRows);
      for (std::int64_t r = 0; r < smaller(rows, kTileRows); ++r) {
        store_first(to + r * stride + d, block[r], n);
      }
    }
  }
}

// ---- Vector arithmetic.

// Natural logarithm of finite x > 0, normal, as log_of of math/math.inl.
inline Vec logarithm(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i above =
      _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f3504f3)), 23);
  const Vec m = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(above, 23)));
  const Vec n = _mm512_cvtepi32_ps(above);
  const Vec s = (m - broadcast(1.0f)) / (m + broadcast(1.0f));
  const Vec u = s * s;
  Vec series = mul_add(u, broadcast(0.111111111f), broadcast(0.142857143f));
  series = mul_add(u, series, broadcast(0.2f));
  series = mul_add(u, series, broadcast(0.333333333f)) * u;
  const Vec twice = s + s;
  const Vec small = mul_add(n, broadcast(1.42860677e-6f), mul_add(twice, series, twice));
  return mul_add(n, broadcast(0.693145751953125f), small);
}

// Stores in `pairs` the numerators of the softmax of two keys, zero where dropped.
struct Softmax {
  Vec scale;  // of the scores, times log2 e
  Vec largest;
  Vec sums[2];
  Vec numerator(const float* s) const { return exp2_for_bf16((load(s) - largest) * scale); }
  template <bool kDropout>
  void add(const float* s, std::int64_t count, const std::uint32_t* masks, bf16* pairs) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < count; ++i) {
      const Vec first = numerator(s + 2 * i * kLanes);
      const Vec second = numerator(s + (2 * i + 1) * kLanes);
      sums[0] = sums[0] + first;
      sums[1] = sums[1] + second;
      const __m512i two = round_two(first, second, kDropout ? masks[i] : ~0u);
      store_tile_row(pairs + i * kTileDepth, pairs_of_two(two));
    }
  }
  // The last keys of an example, `keys` of 16.
  template <bool kDropout>
  void add_last(const float* s, std::int64_t keys, const std::uint32_t* masks, bf16* pairs) {
    const std::int64_t whole = keys > 0 ? keys / 2 : 0;
    for (std::int64_t i = 0; i < whole; ++i) {
      add<kDropout>(s + 2 * i * kLanes, 1, masks + i, pairs + i * kTileDepth);
    }
    for (std::int64_t i = whole; i < kTilePairs; ++i) {
      __m512i two = _mm512_setzero_si512();
      if (2 * i < keys) {
        const Vec first = numerator(s + 2 * i * kLanes);
        sums[0] = sums[0] + first;
        two = round_two(first, broadcast(0.0f), kDropout ? masks[i] : ~0u);
      }
      store_tile_row(pairs + i * kTileDepth, pairs_of_two(two));
    }
  }
};

inline Vec raise_maximum(Vec top, const float* s, std::int64_t rows) {
  if (rows >= kTileRows) {
    Vec other = load(s + kLanes);
    top = maximum(top, load(s));
#pragma GCC unroll 14
    for (int r = 2; r < kTileRows; r += 2) {
      top = maximum(top, load(s + r * kLanes));
      other = maximum(other, load(s + (r + 1) * kLanes));
    }
    return maximum(top, other);
  }
  for (std::int64_t r = 0; r < rows; ++r) top = maximum(top, load(s + r * kLanes));
  return top;
}

// Step `step` of `steps` in which the rows 0 to S - 1 of several matrices are fetched. All of them
// at once would occupy every line fill buffer.
struct PrefetchStep {
  PrefetchStep(std::int64_t step, std::int64_t steps, std::int64_t S)
      : begin(S * step / steps), rows(S * (step + 1) / steps - begin) {}
  // Q, K and V of the next head.
  void next_head(const Head<bf16>& h) const {
    for (std::int64_t part = 0; part < 3; ++part) next(h.q + part * h.width, h.stride, h.D);
  }
  void next(const bf16* p, std::int64_t stride, std::int64_t D) const {
    prefetch_rows(p + begin * stride + D, stride, rows, D);
  }
  std::int64_t begin, rows;
};

// ---- Forward.

struct ForwardSpace {
  ForwardSpace(std::byte* base, std::int64_t keys_count, std::int64_t D)
      : counts(keys_count, D),
        scratch(base),
        keys(scratch.take<bf16>(2 * counts.chunks * counts.depth * kTileSize)),
        values(scratch.take<bf16>(counts.chunks * counts.outputs * kTileSize)),
        queries{scratch.take<bf16>(counts.depth * kTileSize),
                scratch.take<bf16>(counts.depth * kTileSize)},
        scores{scratch.take<float>(2 * counts.chunks * kSumsSize),
               scratch.take<float>(2 * counts.chunks * kSumsSize)},
        pairs(scratch.take<bf16>(counts.chunks * kTileSize)),
        outputs(scratch.take<float>(round_up(counts.outputs, kOutputTiles) * kSumsSize)),
        masks(scratch.take<std::uint32_t>(kMaskNumbers * counts.chunks * kTileRows)) {}
  TileCounts counts;
  Scratch scratch;
  bf16* keys;            // [chunks * 2][depth] tiles: rows
  bf16* values;          // [chunks][outputs] tiles: rows of V^T
  bf16* queries[2];      // [depth] tiles: pairs along D of a column of queries
  float* scores[2];      // [keys][16] of a column
  bf16* pairs;           // [chunks] tiles: P^T of a column
  float* outputs;        // [outputs] tiles of sums: O^T of a column
  std::uint32_t* masks;  // of a block of 64 queries
};

template <bool kDropout, class Tiles>
void attention_forward_head(Tiles& tiles, const AttentionForward<bf16>& a,
                            const DropoutStream& stream, std::int64_t example, std::int64_t head,
                            Range queries, bool another, std::byte* scratch) {
  const Head<bf16> h(a, example, head);
  const ForwardSpace w(scratch, h.keys, h.D);
  const TileCounts& n = w.counts;
  const std::int64_t first_outputs = smaller(n.outputs, kOutputTiles);
  const bool keeps_pairs = n.outputs > kOutputTiles;
  const std::int64_t mask_pairs = n.chunks * kTileRows;
  const Range columns{queries.begin / kTileRows, ceil_div(queries.end, kTileRows)};
  bf16* const context = a.context + h.context_offset;
  pack_head_rows(h.k, h.stride, h.keys, 2 * n.chunks, h.D, n.depth, w.keys);
  pack_chunks<true>(h.v, h.stride, h.keys, h.D, n.outputs, w.values);
  const auto pack_queries = [&](std::int64_t column) {
    pack_column(h.q + column * kTileRows * h.stride, h.stride, h.S - column * kTileRows, h.D,
                n.depth, w.queries[column % 2]);
  };
  // Scores of 32 keys: registers 4 and 5.
  const auto multiply_scores = [&](std::int64_t column, std::int64_t chunk) {
    const bf16* keys = w.keys + 2 * chunk * n.depth * kTileSize;
    tiles.template zero<4>();
    tiles.template zero<5>();
    for (std::int64_t k = 0; k < n.depth; ++k) {
      tiles.template load<7>(w.queries[column % 2] + k * kTileSize, kTileBytes);
      tiles.template load<6>(keys + k * kTileSize, kTileBytes);
      tiles.template dot<4, 6, 7>();
      tiles.template load<6>(keys + (n.depth + k) * kTileSize, kTileBytes);
      tiles.template dot<5, 6, 7>();
    }
  };
  const auto store_scores = [&](std::int64_t column, std::int64_t chunk) {
    float* to = w.scores[column % 2] + 2 * chunk * kSumsSize;
    tiles.template store<4>(to, kTileBytes);
    tiles.template store<5>(to + kSumsSize, kTileBytes);
  };
  const auto raise = [&](Vec top, std::int64_t column, std::int64_t chunk) {
    const float* s = w.scores[column % 2] + 2 * chunk * kSumsSize;
    const std::int64_t rows = h.keys - chunk * kTileDepth;
    return raise_maximum(raise_maximum(top, s, rows), s + kSumsSize, rows - kTileRows);
  };
  // The outputs of a column are rounded while the next column is computed.
  Vec factors = broadcast(0.0f);
  std::int64_t written = columns.begin;
  const auto write_column = [&](std::int64_t column) {
    if (written == column) return;
    written = column;
    const std::int64_t i = (column - 1) * kTileRows;
    write_transposed(w.outputs, kSumsSize, factors, h.S - i, h.D, context + i * h.width, h.width);
  };

  const Vec lowest = broadcast(-__builtin_inff());
  const Vec scale = broadcast(h.scale * kLog2E);
  Vec top = lowest;
  pack_queries(columns.begin);
  for (std::int64_t c = 0; c < n.chunks; ++c) {
    multiply_scores(columns.begin, c);
    store_scores(columns.begin, c);
    if (c > 0) top = raise(top, columns.begin, c - 1);
  }
  top = raise(top, columns.begin, n.chunks - 1);
  for (std::int64_t q = columns.begin; q < columns.end; ++q) {
    if (kDropout && q % kMaskNumbers == 0) {
      BlockMasks(stream, a.example[example], head, q / kMaskNumbers)
          .draw(0, h.keys, mask_pairs, w.masks);
    }
    const std::uint32_t* masks = w.masks + q % kMaskNumbers * mask_pairs;
    const bool next = q + 1 < columns.end;
    if (next) pack_queries(q + 1);
    Vec next_top = lowest;
    Softmax softmax{scale, top, {broadcast(0.0f), broadcast(0.0f)}};
    clear_outputs(tiles);
    const auto add_chunk = [&](std::int64_t c) {
      add_outputs(tiles, w.values + c * n.outputs * kTileSize,
                  w.pairs + (keeps_pairs ? c : c % 2) * kTileSize, first_outputs);
    };
    for (std::int64_t c = 0; c < n.chunks; ++c) {
      const float* s = w.scores[q % 2] + 2 * c * kSumsSize;
      bf16* const pairs = w.pairs + (keeps_pairs ? c : c % 2) * kTileSize;
      const std::uint32_t* mask = masks + c * kTileRows;
      const std::int64_t rows = h.keys - c * kTileDepth;
      const bool whole = rows >= kTileDepth;
      if (next) multiply_scores(q + 1, c);
      const PrefetchStep fetch((q - columns.begin) * n.chunks + c,
                               (columns.end - columns.begin) * n.chunks, h.S);
      if (another) fetch.next_head(h);

      if (whole) {
        softmax.add<kDropout>(s, kTilePairs, mask, pairs);
      } else {
        softmax.add_last<kDropout>(s, smaller(rows, kTileRows), mask, pairs);
      }
      if (next) store_scores(q + 1, c);
      if (c > 0) add_chunk(c - 1);
      if (whole) {
        softmax.add<kDropout>(s + kSumsSize, kTilePairs, mask + kTilePairs,
                              pairs + kTilePairs * kTileDepth);
      } else {
        softmax.add_last<kDropout>(s + kSumsSize, rows - kTileRows, mask + kTilePairs,
                                   pairs + kTilePairs * kTileDepth);
      }
      if (next && c > 0) next_top = raise(next_top, q + 1, c - 1);
      if (c == 0) write_column(q);
    }
    add_chunk(n.chunks - 1);
    if (next) next_top = raise(next_top, q + 1, n.chunks - 1);
    store_outputs(tiles, w.outputs, first_outputs);
    if (keeps_pairs) {
      add_further_outputs(tiles, w.values, w.pairs, n.chunks, n.outputs, w.outputs);
    }
    const Vec sum = softmax.sums[0] + softmax.sums[1];
    factors = broadcast(stream.scale) / sum;
    const std::int64_t i = q * kTileRows;
    const Vec log_sum_exp = mul_add(top, broadcast(h.scale), logarithm(sum));
    store_first(h.log_sum_exp + i, log_sum_exp, smaller(h.S - i, kTileRows));
    top = next_top;
  }
  write_column(columns.end);
}

template <class Tiles>
void attention_forward_on_tiles(const AttentionForward<bf16>& a, const DropoutStream& stream,
                                std::int64_t example, Range heads, Range queries,
                                std::byte* scratch) {
  Tiles tiles;
  for_heads(heads, [&](std::int64_t head, bool another) {
    stream.threshold == 0
        ? attention_forward_head<false>(tiles, a, stream, example, head, queries, another, scratch)
        : attention_forward_head<true>(tiles, a, stream, example, head, queries, another, scratch);
  });
}

// ---- Backward.

struct BackwardSpace {
  BackwardSpace(std::byte* base, std::int64_t S, std::int64_t D) : BackwardSpace(base, S, S, D) {}
  BackwardSpace(std::byte* base, std::int64_t S, std::int64_t keys_count, std::int64_t D)
      : counts(keys_count, D),
        query_chunks(ceil_div(S, kTileDepth)),
        block_chunks(smaller(query_chunks, kBlockChunks)),
        scratch(base),
        keys(scratch.take<bf16>(2 * counts.chunks * counts.depth * kTileSize)),
        values(scratch.take<bf16>(2 * counts.chunks * counts.depth * kTileSize)),
        keys_t(scratch.take<bf16>(counts.chunks * counts.outputs * kTileSize)),
        queries(scratch.take<bf16>(2 * query_chunks * counts.depth * kTileSize)),
        d_outs(scratch.take<bf16>(2 * query_chunks * counts.depth * kTileSize)),
        query_pairs(scratch.take<bf16>(query_chunks * counts.outputs * kTileSize)),
        d_out_pairs(scratch.take<bf16>(query_chunks * counts.outputs * kTileSize)),
        out_rows(scratch.take<bf16>(counts.depth * kTileSize)),
        products(scratch.take<float>(2 * query_chunks * kSumsSize)),
        deltas(scratch.take<float>(2 * query_chunks * kTileRows)),
        scores(scratch.take<float>(4 * kSquareSize)),
        kept(scratch.take<bf16>(2 * counts.chunks * block_chunks * kTileSize)),
        d_scores(scratch.take<bf16>(2 * counts.chunks * block_chunks * kTileSize)),
        pairs(scratch.take<bf16>(2 * counts.chunks * kTileSize)),
        outputs(scratch.take<float>(counts.depth * kSquareSize)),
        masks(scratch.take<std::uint32_t>(kQueryBlock / kTileRows * counts.chunks * kTileRows)),
        sums(scratch.take<float>(2 * kSquareSize)),
        d_keys(scratch.take<float>(S > kQueryBlock ? 2 * counts.chunks * counts.outputs * kSumsSize
                                                   : 0)),
        d_values(scratch.take<float>(
            S > kQueryBlock ? 2 * counts.chunks * counts.outputs * kSumsSize : 0)) {}
  TileCounts counts;
  std::int64_t query_chunks;  // of 32 queries
  std::int64_t block_chunks;  // of 32 queries in a block
  Scratch scratch;
  bf16* keys;            // [chunks * 2][depth] tiles: rows
  bf16* values;          // likewise
  bf16* keys_t;          // [chunks][outputs] tiles: rows of K^T
  bf16* queries;         // [query_chunks * 2][depth] tiles: pairs along D
  bf16* d_outs;          // likewise
  bf16* query_pairs;     // [query_chunks][outputs] tiles: pairs of queries
  bf16* d_out_pairs;     // likewise
  bf16* out_rows;        // [depth] tiles: rows of O of a column
  float* products;       // a tile for each column: O dO^T, whose diagonal is sum_j P dP
  float* deltas;         // [query_chunks * 32]: sum_j P dP without the scale of dropout
  float* scores;         // scores and dP of 32 keys and 32 queries, twice
  bf16* kept;            // [chunks * 2][block_chunks] tiles: rows of P^T after dropout
  bf16* d_scores;        // likewise, dS^T
  bf16* pairs;           // [chunks][2] tiles: dS^T of 32 queries, pairs of keys
  float* outputs;        // [depth] squares of sums: dQ^T of 32 queries
  std::uint32_t* masks;  // of a block of queries
  float* sums;           // 32 x 32, twice
  float* d_keys;         // [chunks * outputs / 2][4] tiles, with several blocks of queries
  float* d_values;       // likewise
};

// P and dS of 16 queries and successive pairs of keys.
struct ScoreGradients {
  Vec scale;   // of the scores, times log2 e
  Vec offset;  // minus the log-sum-exp, times log2 e
  Vec delta;
  // The bound is for scores so large that the log-sum-exp is rounded by more than one.
  Vec probability(const float* s) const {
    return exp2_for_bf16(minimum(broadcast(0.0f), mul_add(load(s), scale, offset)));
  }
  template <bool kDropout>
  Vec gradient(Vec p, const float* d, std::uint32_t kept) const {
    if constexpr (!kDropout) return p * (load(d) - delta);
    const Vec minus = broadcast(0.0f) - delta;
    return p * _mm512_mask_sub_ps(minus, mask_from_bits(kept), load(d), delta);
  }
  template <bool kDropout>
  void write(const float* s, const float* d, std::int64_t count, const std::uint32_t* masks,
             bf16* kept, bf16* d_scores, bf16* pairs) const {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t mask = kDropout ? masks[i] : ~0u;
      const Vec p0 = probability(s + 2 * i * kLanes);
      const Vec p1 = probability(s + (2 * i + 1) * kLanes);
      const Vec g0 = gradient<kDropout>(p0, d + 2 * i * kLanes, mask & 0xffffu);
      const Vec g1 = gradient<kDropout>(p1, d + (2 * i + 1) * kLanes, mask >> 16);
      bf16* const row = kept + 2 * i * kTileDepth;
      store_rows(row, row + kTileDepth, round_two(p0, p1, mask));
      store_gradients(round_two(g0, g1), d_scores + 2 * i * kTileDepth, pairs + i * kTileDepth);
    }
  }
  static void store_gradients(__m512i two, bf16* rows, bf16* pairs) {
    store_rows(rows, rows + kTileDepth, two);
    store_tile_row(pairs, pairs_of_two(two));
  }
  // The last keys of an example, `keys` of 16. The other rows of P and dS are not used.
  template <bool kDropout>
  void write_last(const float* s, const float* d, std::int64_t keys, const std::uint32_t* masks,
                  bf16* kept, bf16* d_scores, bf16* pairs) const {
    const std::int64_t whole = keys > 0 ? keys / 2 : 0;
    for (std::int64_t i = 0; i < whole; ++i) {
      write<kDropout>(s + 2 * i * kLanes, d + 2 * i * kLanes, 1, masks + i,
                      kept + 2 * i * kTileDepth, d_scores + 2 * i * kTileDepth,
                      pairs + i * kTileDepth);
    }
    for (std::int64_t i = whole; i < kTilePairs; ++i) {
      const Vec zero = broadcast(0.0f);
      if (2 * i >= keys) {
        store_tile_row(pairs + i * kTileDepth, _mm512_setzero_si512());
        continue;
      }
      const std::uint32_t mask = kDropout ? masks[i] : ~0u;
      const Vec p = probability(s + 2 * i * kLanes);
      const Vec g = gradient<kDropout>(p, d + 2 * i * kLanes, mask & 0xffffu);
      bf16* const row = kept + 2 * i * kTileDepth;
      store_rows(row, row + kTileDepth, round_two(p, zero, mask));
      store_gradients(round_two(g, zero), d_scores + 2 * i * kTileDepth, pairs + i * kTileDepth);
    }
  }
};

template <bool kDropout, class Tiles>
class BackwardHead {
 public:
  BackwardHead(Tiles& tiles, const AttentionBackward<bf16>& b, const DropoutStream& stream,
               std::int64_t example, std::int64_t head, std::byte* scratch)
      : tiles_(tiles),
        stream_(stream),
        example_(b.forward.example[example]),
        head_(head),
        h_(b.forward, example, head),
        w_(scratch, h_.S, h_.keys, h_.D),
        n_(w_.counts),
        context_(b.forward.context + h_.context_offset),
        d_context_(b.d_context + h_.context_offset),
        dq_(b.d_qkv + h_.offset),
        dk_(dq_ + h_.width),
        dv_(dk_ + h_.width) {}

  void run(bool another) {
    another_ = another;
    pack();
    compute_deltas();
    for (std::int64_t i = 0; i < h_.S; i += kQueryBlock) run_block(i / kTileDepth);
    for (std::int64_t j = h_.keys; j < h_.S; ++j) {
      __builtin_memset(static_cast<void*>(dk_ + j * h_.stride), 0, row_bytes());
      __builtin_memset(static_cast<void*>(dv_ + j * h_.stride), 0, row_bytes());
    }
  }

 private:
  std::size_t row_bytes() const { return static_cast<std::size_t>(h_.D) * sizeof(bf16); }

  void pack() {
    pack_head_rows(h_.k, h_.stride, h_.keys, 2 * n_.chunks, h_.D, n_.depth, w_.keys);
    pack_head_rows(h_.v, h_.stride, h_.keys, 2 * n_.chunks, h_.D, n_.depth, w_.values);
    pack_chunks<true>(h_.k, h_.stride, h_.keys, h_.D, n_.outputs, w_.keys_t);
    for (std::int64_t q = 0; q < 2 * w_.query_chunks; ++q) {
      const std::int64_t i = q * kTileRows;
      const std::int64_t at = q * n_.depth * kTileSize;
      pack_column(h_.q + i * h_.stride, h_.stride, h_.S - i, h_.D, n_.depth, w_.queries + at);
      pack_column(d_context_ + i * h_.width, h_.width, h_.S - i, h_.D, n_.depth, w_.d_outs + at);
    }
    pack_chunks<false>(h_.q, h_.stride, h_.S, h_.D, n_.outputs, w_.query_pairs);
    pack_chunks<false>(d_context_, h_.width, h_.S, h_.D, n_.outputs, w_.d_out_pairs);
  }
  void prefetch(std::int64_t step, std::int64_t steps) const {
    const PrefetchStep fetch(step, steps, h_.S);

    if (!another_) return;
    fetch.next_head(h_);
    fetch.next(d_context_, h_.width, h_.D);
    fetch.next(context_, h_.width, h_.D);
  }

  // sum_j P dP = dO . O, from the same tile products as dP: without dropout, the bits are the same
  // for a single key.
  void compute_deltas() {
    for (std::int64_t q = 0; q < 2 * w_.query_chunks; ++q) {
      const std::int64_t i = q * kTileRows;
      pack_head_rows(context_ + i * h_.width, h_.width, h_.S - i, 1, h_.D, n_.depth, w_.out_rows);
      multiply_tiles<4>(tiles_, w_.out_rows, w_.d_outs + q * n_.depth * kTileSize, n_.depth);
      tiles_.template store<4>(w_.products + q * kSumsSize, kTileBytes);
    }
    const __m512i diagonal =
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(kTileRows + 1));
    const Vec unscale = broadcast(1.0f) / broadcast(stream_.scale);
    for (std::int64_t q = 0; q < 2 * w_.query_chunks; ++q) {
      const Vec sum = _mm512_i32gather_ps(diagonal, w_.products + q * kSumsSize, 4);
      store(w_.deltas + q * kTileRows, sum * unscale);
    }
  }

  // The square of 32 keys and 32 queries of a product along D, stored in `to`.
  void multiply_square(const bf16* rows, const bf16* pairs, float* to) {
    clear_outputs(tiles_);
    const std::int64_t next = n_.depth * kTileSize;
    for (std::int64_t k = 0; k < next; k += kTileSize) {
      add_square(tiles_, rows + k, next, pairs + k, next);
    }
    store_outputs(tiles_, to, kOutputTiles);
  }
  void multiply_scores(std::int64_t query_chunk, std::int64_t chunk, float* to) {
    const std::int64_t step = 2 * n_.depth * kTileSize;
    multiply_square(w_.keys + chunk * step, w_.queries + query_chunk * step, to);
    multiply_square(w_.values + chunk * step, w_.d_outs + query_chunk * step, to + kSquareSize);
  }
  float* scores_of(std::int64_t square) const { return w_.scores + square % 2 * 2 * kSquareSize; }

  void write_queries(std::int64_t query_chunk) {
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t i = query_chunk * kTileDepth + half * kTileRows;
      write_transposed(w_.outputs + half * kSumsSize, 2 * kSumsSize,
                       broadcast(h_.scale * stream_.scale), h_.S - i, h_.D, dq_ + i * h_.stride,
                       h_.stride);
    }
  }

  void run_block(std::int64_t first_chunk) {
    const std::int64_t chunks = smaller(w_.query_chunks - first_chunk, kBlockChunks);
    const std::int64_t pairs = n_.chunks * kTileRows;
    if (kDropout) {
      for (std::int64_t q = 0; q < 2 * chunks; q += kMaskNumbers) {
        BlockMasks(stream_, example_, head_, (2 * first_chunk + q) / kMaskNumbers)
            .draw(0, h_.keys, pairs, w_.masks + q * pairs);
      }
    }
    std::int64_t square = 0;
    multiply_scores(first_chunk, 0, scores_of(0));
    for (std::int64_t k = 0; k < chunks; ++k) {
      for (std::int64_t c = 0; c < n_.chunks; ++c, ++square) {
        // Loads from tiles that were stored just before would stall.
        if (c + 1 < n_.chunks) {
          multiply_scores(first_chunk + k, c + 1, scores_of(square + 1));
        } else if (k + 1 < chunks) {
          multiply_scores(first_chunk + k + 1, 0, scores_of(square + 1));
        }
        use_scores(first_chunk, k, c, scores_of(square));
        prefetch((first_chunk + k) * n_.chunks + c, w_.query_chunks * n_.chunks);
        if (c == 0 && k > 0) write_queries(first_chunk + k - 1);
      }
      add_queries();
    }
    write_queries(first_chunk + chunks - 1);
    const bool first = first_chunk == 0;
    const bool last = first_chunk + chunks == w_.query_chunks;
    add_block(w_.kept, w_.d_out_pairs, first_chunk, chunks, first, last, w_.d_values, stream_.scale,
              dv_);
    add_block(w_.d_scores, w_.query_pairs, first_chunk, chunks, first, last, w_.d_keys,
              h_.scale * stream_.scale, dk_);
  }

  // P and dS of chunk k of the block of queries and chunk c of keys.
  void use_scores(std::int64_t first_chunk, std::int64_t k, std::int64_t c, const float* scores) {
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t q = 2 * k + half;
      const std::int64_t i = first_chunk * kTileDepth + q * kTileRows;
      const std::int64_t queries = smaller(h_.S - i, kTileRows);
      const Vec lse = load_first(h_.log_sum_exp + i, queries > 0 ? queries : 0);
      const ScoreGradients gradients{broadcast(h_.scale * kLog2E), lse * broadcast(-kLog2E),
                                     load(w_.deltas + i)};
      bf16* const pairs = w_.pairs + (2 * c + half) * kTileSize;
      for (std::int64_t part = 0; part < 2; ++part) {
        const std::int64_t t = 2 * c + part;
        const float* const s = scores + t % 2 * 2 * kSumsSize + half * kSumsSize;
        const std::uint32_t* masks = w_.masks + (q * 2 * n_.chunks + t) * kTilePairs;
        const std::int64_t at = (t * w_.block_chunks + k) * kTileSize + half * kTileRows;
        bf16* const to = pairs + part * kTilePairs * kTileDepth;
        const std::int64_t rows = h_.keys - t * kTileRows;
        if (rows >= kTileRows) {
          gradients.template write<kDropout>(s, s + kSquareSize, kTilePairs, masks, w_.kept + at,
                                             w_.d_scores + at, to);
        } else {
          gradients.template write_last<kDropout>(s, s + kSquareSize, rows, masks, w_.kept + at,
                                                  w_.d_scores + at, to);
        }
      }
    }
  }

  // dQ^T of 32 queries.
  void add_queries() {
    for (std::int64_t d = 0; d < n_.depth; ++d) {
      clear_outputs(tiles_);
      for (std::int64_t c = 0; c < n_.chunks; ++c) {
        add_square(tiles_, w_.keys_t + (c * n_.outputs + 2 * d) * kTileSize, kTileSize,
                   w_.pairs + 2 * c * kTileSize, kTileSize);
      }
      store_outputs(tiles_, w_.outputs + d * kSquareSize, kOutputTiles);
    }
  }

  // Adds the products of a block of queries to dV or dK, 32 keys and 32 outputs at a time. The last
  // block's sums go to `to`, with the factor.
  void add_block(const bf16* rows, const bf16* pairs, std::int64_t first_chunk, std::int64_t chunks,
                 bool first, bool last, float* stored, float factor, bf16* to) {
    const std::int64_t groups = n_.chunks * n_.depth;
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t c = g / n_.depth;
      const std::int64_t d = g % n_.depth;
      float* const partial = stored + g * kSquareSize;
      if (first) {
        clear_outputs(tiles_);
      } else {
        load_sums(partial);
      }
      for (std::int64_t k = 0; k < chunks; ++k) {
        add_square(tiles_, rows + (2 * c * w_.block_chunks + k) * kTileSize,
                   w_.block_chunks * kTileSize,
                   pairs + ((first_chunk + k) * n_.outputs + 2 * d) * kTileSize, kTileSize);
      }
      if (!last) {
        store_outputs(tiles_, partial, kOutputTiles);
        continue;
      }
      store_outputs(tiles_, w_.sums + g % 2 * kSquareSize, kOutputTiles);
      if (g > 0) write_group(g - 1, factor, to);
    }
    if (last) write_group(groups - 1, factor, to);
  }
  void load_sums(const float* from) {
    tiles_.template load<0>(from, kTileBytes);
    tiles_.template load<1>(from + kSumsSize, kTileBytes);
    tiles_.template load<2>(from + 2 * kSumsSize, kTileBytes);
    tiles_.template load<3>(from + 3 * kSumsSize, kTileBytes);
  }
  void write_group(std::int64_t g, float factor, bf16* to) const {
    const float* const sums = w_.sums + g % 2 * kSquareSize;
    const Vec factors = broadcast(factor);
    const std::int64_t d = g % n_.depth * kTileDepth;
    const std::int64_t first = g / n_.depth * kTileDepth;
    const std::int64_t n = smaller(h_.D - d, kTileDepth);
    const auto columns = static_cast<__mmask32>(n == kTileDepth ? ~0u : (1u << n) - 1u);
    const std::int64_t rows = smaller(h_.keys - first, kTileDepth);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const at = sums + r / kTileRows * 2 * kSumsSize + r % kTileRows * kLanes;
      _mm512_mask_storeu_epi16(to + (first + r) * h_.stride + d, columns,
                               round_two(load(at) * factors, load(at + kSumsSize) * factors));
    }
  }

  Tiles& tiles_;
  bool another_ = false;  // whether another head follows in memory
  const DropoutStream& stream_;
  std::int32_t example_;
  std::int64_t head_;
  Head<bf16> h_;
  BackwardSpace w_;
  TileCounts n_;
  const bf16* context_;
  const bf16* d_context_;
  bf16* dq_;
  bf16* dk_;
  bf16* dv_;
};

template <class Tiles>
void attention_backward_on_tiles(const AttentionBackward<bf16>& b, const DropoutStream& stream,
                                 std::int64_t example, Range heads, std::byte* scratch) {
  Tiles tiles;
  for_heads(heads, [&](std::int64_t head, bool another) {
    if (stream.threshold == 0) {
      BackwardHead<false, Tiles>(tiles, b, stream, example, head, scratch).run(another);
    } else {
      BackwardHead<true, Tiles>(tiles, b, stream, example, head, scratch).run(another);
    }
  });
}

// A batch's longest example needs the most, except that one block of queries needs no sums; its
// operands are smaller than those of a longer example.
inline std::size_t attention_scratch_on_tiles(std::int64_t max_seqlen, std::int64_t head_size) {
  const std::size_t forward = ForwardSpace(nullptr, max_seqlen, head_size).scratch.used();
  const std::size_t backward = BackwardSpace(nullptr, max_seqlen, head_size).scratch.used();
  return forward > backward ? forward : backward;
}

template <class Tiles>
constexpr void set_attention_on_tiles(KernelTable<bf16>& table) {
  table.attention_forward = attention_forward_on_tiles<Tiles>;
  table.attention_backward = attention_backward_on_tiles<Tiles>;
  table.attention_scratch = attention_scratch_on_tiles;
}

}  // namespace
}  // namespace tilewright::kernels
