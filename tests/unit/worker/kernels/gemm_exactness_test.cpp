// Which bits the linear layers promise: none may depend on threads, on other rows or on who sums a
// subtree of the shards.
#include <gtest/gtest.h>

#include "tests/unit/worker/kernels/gemm_support.h"

namespace tilewright::kernels::testing {
namespace {

constexpr std::int64_t kK = 70;
constexpr std::int64_t kN = 97;
constexpr std::int64_t kTokens = 1103;

std::vector<std::int32_t> slice(const std::vector<std::int32_t>& offsets, std::size_t begin,
                                std::size_t end) {
  return {offsets.begin() + static_cast<std::ptrdiff_t>(begin),
          offsets.begin() + static_cast<std::ptrdiff_t>(end) + 1};
}

// Long shards that span several chunks, odd lengths, single tokens, empty ones, and so many that a
// chunk holds a subtree of them.
const std::vector<std::vector<std::int32_t>> kShardings = {
    {0, 137, 276, 413, 552, 689, 828, 965, 1103},
    {0, 1, 2, 2, 3, 1000, 1001, 1001, 1103},
    {0, 0, 0, 0, 0, 0, 0, 0, 1103},
    {0, 1103, 1103, 1103, 1103, 1103, 1103, 1103, 1103},
    {0, 33, 64, 97, 97, 130, 161, 900, 1103},
    {0,   3,   40,  81,  122, 163, 163, 171, 180, 250, 300, 301, 302, 303, 304,  305, 306,
     310, 390, 400, 430, 460, 490, 520, 560, 600, 640, 700, 760, 820, 900, 1000, 1103},
};

template <typename T>
class LinearBits : public ::testing::Test {
 protected:
  std::vector<T> x_ = random_values<T>(kTokens * kK, 11);
  std::vector<T> dy_ = random_values<T>(kTokens * kN, 12);
  std::vector<float> bias_ = random_values<float>(kN, 13);
};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(LinearBits, Types);

TYPED_TEST(LinearBits, AreTheSameForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const auto& [name, ops] : tables<T>()) {
    SCOPED_TRACE(name);
    const Weight<T> weight(ops, kN, kK, 14);
    ThreadPool one(1);
    const auto y = forward(ops, one, weight, this->x_, this->bias_.data(), kTokens);
    const auto dx = backward_input(ops, one, weight, this->dy_, kTokens);
    const auto g = backward_weight(ops, one, this->x_, this->dy_, kShardings[0], kK, kN);
    for (const int threads : {2, 3, 4}) {
      ThreadPool pool(threads);
      EXPECT_TRUE(same_bits(y, forward(ops, pool, weight, this->x_, this->bias_.data(), kTokens)));
      EXPECT_TRUE(same_bits(dx, backward_input(ops, pool, weight, this->dy_, kTokens)));
      const auto other = backward_weight(ops, pool, this->x_, this->dy_, kShardings[0], kK, kN);
      EXPECT_TRUE(same_bits(g.dw, other.dw));
      EXPECT_TRUE(same_bits(g.dbias, other.dbias));
    }
  }
}

TYPED_TEST(LinearBits, OfARowDoNotDependOnTheRowsBesideIt) {
  using T = TypeParam;
  ThreadPool pool(2);
  for (const auto& [name, ops] : tables<T>()) {
    SCOPED_TRACE(name);
    const Weight<T> weight(ops, kN, kK, 14);
    const auto y = forward(ops, pool, weight, this->x_, this->bias_.data(), kTokens);
    const auto dx = backward_input(ops, pool, weight, this->dy_, kTokens);
    std::int64_t begin = 0;
    for (const std::int64_t rows : {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 31, 200}) {
      const auto part = [&](const std::vector<T>& all, std::int64_t columns) {
        return std::vector<T>(all.begin() + begin * columns,
                              all.begin() + (begin + rows) * columns);
      };
      EXPECT_TRUE(same_bits(
          part(y, kN), forward(ops, pool, weight, part(this->x_, kK), this->bias_.data(), rows)))
          << rows << " rows from " << begin;
      EXPECT_TRUE(
          same_bits(part(dx, kK), backward_input(ops, pool, weight, part(this->dy_, kN), rows)))
          << rows << " rows from " << begin;
      begin += rows;
    }
  }
}

TYPED_TEST(LinearBits, OfAGradientDoNotDependOnWhoSumsASubtree) {
  using T = TypeParam;
  ThreadPool pool(2);
  for (const auto& [name, ops] : tables<T>()) {
    for (const auto& shards : kShardings) {
      SCOPED_TRACE(::testing::Message()
                   << name << " shards from " << ::testing::PrintToString(shards));
      const auto whole = backward_weight(ops, pool, this->x_, this->dy_, shards, kK, kN);
      for (const std::size_t part : {1u, 2u, 4u}) {
        std::vector<Gradients> parts;
        for (std::size_t s = 0; s + 1 < shards.size(); s += part) {
          parts.push_back(
              backward_weight(ops, pool, this->x_, this->dy_, slice(shards, s, s + part), kK, kN));
        }
        while (parts.size() > 1) {
          std::vector<Gradients> pairs;
          for (std::size_t i = 0; i < parts.size(); i += 2) {
            Gradients sum = parts[i];
            for (std::size_t e = 0; e < sum.dw.size(); ++e) sum.dw[e] += parts[i + 1].dw[e];
            for (std::size_t e = 0; e < sum.dbias.size(); ++e) {
              sum.dbias[e] += parts[i + 1].dbias[e];
            }
            pairs.push_back(std::move(sum));
          }
          parts = std::move(pairs);
        }
        EXPECT_TRUE(same_bits(whole.dw, parts[0].dw)) << part << " shards at a time";
        EXPECT_TRUE(same_bits(whole.dbias, parts[0].dbias)) << part << " shards at a time";
      }
    }
  }
}

TYPED_TEST(LinearBits, OfAShardDoNotDependOnWhereItStands) {
  using T = TypeParam;
  ThreadPool pool(2);
  const auto rows = [](const std::vector<T>& all, std::int64_t columns, std::int64_t begin,
                       std::int64_t end) {
    return std::vector<T>(all.begin() + begin * columns, all.begin() + end * columns);
  };
  for (const auto& [name, ops] : tables<T>()) {
    SCOPED_TRACE(name);
    for (const auto& [begin, end] : {std::pair{0, 37}, {1, 40}, {13, 1013}, {1102, 1103}}) {
      const auto inside = backward_weight(ops, pool, this->x_, this->dy_,
                                          std::vector<std::int32_t>{begin, end}, kK, kN);
      const auto alone = backward_weight(ops, pool, rows(this->x_, kK, begin, end),
                                         rows(this->dy_, kN, begin, end),
                                         std::vector<std::int32_t>{0, end - begin}, kK, kN);
      EXPECT_TRUE(same_bits(inside.dw, alone.dw));
      EXPECT_TRUE(same_bits(inside.dbias, alone.dbias));
    }
  }
}

TYPED_TEST(LinearBits, OfAnEmptyShardAreExactlyZero) {
  using T = TypeParam;
  ThreadPool pool(2);
  for (const auto& [name, ops] : tables<T>()) {
    SCOPED_TRACE(name);
    for (const std::size_t shards : {1u, 2u, 8u, 128u}) {
      const auto g = backward_weight(ops, pool, this->x_, this->dy_,
                                     std::vector<std::int32_t>(shards + 1, 5), kK, kN);
      EXPECT_TRUE(same_bits(g.dw, std::vector<float>(g.dw.size(), 0.0f)));
      EXPECT_TRUE(same_bits(g.dbias, std::vector<float>(g.dbias.size(), 0.0f)));
    }
  }
}

// Products of two bf16 are exact in fp32, so these three add the same numbers in the same order.
TEST(LinearBitsInBf16, AreThoseOfThePlainLoopsOnAvx2AndAvx512) {
  ThreadPool pool(2);
  const auto x = random_values<bf16>(kTokens * kK, 11);
  const auto dy = random_values<bf16>(kTokens * kN, 12);
  const auto run = [&](const Ops<bf16>& ops) {
    const Weight<bf16> weight(ops, kN, kK, 14);
    return std::tuple(forward(ops, pool, weight, x, nullptr, kTokens),
                      backward_input(ops, pool, weight, dy, kTokens),
                      backward_weight(ops, pool, x, dy, kShardings[1], kK, kN));
  };
  const auto [y, dx, g] = run(make_ops<bf16>(Isa::kRef));
  for (const Isa isa : runtime::detect_cpu().isas) {
    if (isa != Isa::kAvx2 && isa != Isa::kAvx512) continue;
    SCOPED_TRACE(runtime::name(isa));
    const auto [y_other, dx_other, g_other] = run(make_ops<bf16>(isa));
    EXPECT_TRUE(same_bits(y, y_other));
    EXPECT_TRUE(same_bits(dx, dx_other));
    EXPECT_TRUE(same_bits(g.dw, g_other.dw));
    EXPECT_TRUE(same_bits(g.dbias, g_other.dbias));
  }
}

}  // namespace
}  // namespace tilewright::kernels::testing
