// Tests the exactness rules of the linear layers: the bits do not depend on the number of threads,
// on other rows, or on the partition of the shards.
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

// Shards that span several chunks, odd lengths, single tokens, empty shards, and so many shards
// that one chunk holds a subtree of them.
const std::vector<std::vector<std::int32_t>> kShardings = {
    {0, 137, 276, 413, 552, 689, 828, 965, 1103},
    {0, 1, 2, 2, 3, 1000, 1001, 1001, 1103},
    {0, 0, 0, 0, 0, 0, 0, 0, 1103},
    {0, 1103, 1103, 1103, 1103, 1103, 1103, 1103, 1103},
    {0, 33, 64, 97, 97, 130, 161, 900, 1103},
    {0, 400, 700, 900, 1000, 1050, 1080, 1100, 1103},
    {0,   3,   40,  81,  122, 163, 163, 171, 180, 250, 300, 301, 302, 303, 304,  305, 306,
     310, 390, 400, 430, 460, 490, 520, 560, 600, 640, 700, 760, 820, 900, 1000, 1103},
};

template <typename Activation>
struct Inputs {
  std::vector<Activation> x = random_values<Activation>(kTokens * kK, 11);
  std::vector<Activation> dy = random_values<Activation>(kTokens * kN, 12);
  std::vector<float> bias = random_values<float>(kN, 13);
};

using LinearBits = GemmTest;
INSTANTIATE_TEST_SUITE_P(Isas, LinearBits, ::testing::ValuesIn(gemm_cases()), gemm_case_name);

TEST_P(LinearBits, AreTheSameForAnyNumberOfThreads) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    const Inputs<Activation> in;
    const Weight<Activation> weight(ops, kN, kK, 14);
    ThreadPool one(1);
    const auto y = forward(ops, one, weight, in.x, in.bias.data(), kTokens);
    const auto dx = backward_input(ops, one, weight, in.dy, kTokens);
    const auto g = backward_weight(ops, one, in.x, in.dy, kShardings[0], kK, kN);
    for (const int threads : {2, 3, 4}) {
      ThreadPool pool(threads);
      EXPECT_TRUE(same_bits(y, forward(ops, pool, weight, in.x, in.bias.data(), kTokens)));
      EXPECT_TRUE(same_bits(dx, backward_input(ops, pool, weight, in.dy, kTokens)));
      const auto other = backward_weight(ops, pool, in.x, in.dy, kShardings[0], kK, kN);
      EXPECT_TRUE(same_bits(g.dw, other.dw));
      EXPECT_TRUE(same_bits(g.dbias, other.dbias));
    }
  });
}

TEST_P(LinearBits, OfARowDoNotDependOnOtherRows) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    const Inputs<Activation> in;
    ThreadPool pool(2);
    const Weight<Activation> weight(ops, kN, kK, 14);
    const auto y = forward(ops, pool, weight, in.x, in.bias.data(), kTokens);
    const auto dx = backward_input(ops, pool, weight, in.dy, kTokens);
    std::int64_t begin = 0;
    for (const std::int64_t rows : {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 31, 200}) {
      const auto part = [&](const std::vector<Activation>& all, std::int64_t columns) {
        return std::vector<Activation>(all.begin() + begin * columns,
                                       all.begin() + (begin + rows) * columns);
      };
      EXPECT_TRUE(
          same_bits(part(y, kN), forward(ops, pool, weight, part(in.x, kK), in.bias.data(), rows)))
          << rows << " rows from " << begin;
      EXPECT_TRUE(same_bits(part(dx, kK), backward_input(ops, pool, weight, part(in.dy, kN), rows)))
          << rows << " rows from " << begin;
      begin += rows;
    }
  });
}

TEST_P(LinearBits, OfAGradientDoNotDependOnThePartitionOfShards) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    const Inputs<Activation> in;
    ThreadPool pool(2);
    for (const auto& [k, n] : {std::pair{kK, kN}, {kK, 2}, {30, 20}}) {
      const std::vector<Activation> x(in.x.begin(), in.x.begin() + kTokens * k);
      const std::vector<Activation> dy(in.dy.begin(), in.dy.begin() + kTokens * n);
      for (const auto& shards : kShardings) {
        SCOPED_TRACE(::testing::Message() << "shards from " << ::testing::PrintToString(shards));
        const auto whole = backward_weight(ops, pool, x, dy, shards, k, n);
        for (const std::size_t part : {1u, 2u, 4u}) {
          std::vector<Gradients> parts;
          for (std::size_t s = 0; s + 1 < shards.size(); s += part) {
            parts.push_back(backward_weight(ops, pool, x, dy, slice(shards, s, s + part), k, n));
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
  });
}

TEST_P(LinearBits, OfAShardDoNotDependOnItsPosition) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    const Inputs<Activation> in;
    ThreadPool pool(2);
    const auto rows = [](const std::vector<Activation>& all, std::int64_t columns,
                         std::int64_t begin, std::int64_t end) {
      return std::vector<Activation>(all.begin() + begin * columns, all.begin() + end * columns);
    };
    for (const auto& [begin, end] : {std::pair{0, 37}, {1, 40}, {13, 1013}, {1102, 1103}}) {
      const auto inside =
          backward_weight(ops, pool, in.x, in.dy, std::vector<std::int32_t>{begin, end}, kK, kN);
      const auto alone =
          backward_weight(ops, pool, rows(in.x, kK, begin, end), rows(in.dy, kN, begin, end),
                          std::vector<std::int32_t>{0, end - begin}, kK, kN);
      EXPECT_TRUE(same_bits(inside.dw, alone.dw));
      EXPECT_TRUE(same_bits(inside.dbias, alone.dbias));
    }
  });
}

TEST_P(LinearBits, OfAnEmptyShardAreExactlyZero) {
  with_ops([&]<typename Activation>(const Ops<Activation>& ops) {
    const Inputs<Activation> in;
    ThreadPool pool(2);
    for (const std::size_t shards : {1u, 2u, 8u, 128u}) {
      const auto g =
          backward_weight(ops, pool, in.x, in.dy, std::vector<std::int32_t>(shards + 1, 5), kK, kN);
      EXPECT_TRUE(same_bits(g.dw, std::vector<float>(g.dw.size(), 0.0f)));
      EXPECT_TRUE(same_bits(g.dbias, std::vector<float>(g.dbias.size(), 0.0f)));
    }
  });
}

// The product of two bf16 is exact in fp32, so the reference, AVX2 and AVX-512 add the same numbers
// in the same order.
class LinearBitsInBf16 : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, LinearBitsInBf16, ::testing::Values(Isa::kAvx2, Isa::kAvx512),
                         isa_name);

TEST_P(LinearBitsInBf16, MatchTheReferenceOnAvx2AndAvx512) {
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
  const auto [y_other, dx_other, g_other] = run(make_ops<bf16>(GetParam()));
  EXPECT_TRUE(same_bits(y, y_other));
  EXPECT_TRUE(same_bits(dx, dx_other));
  EXPECT_TRUE(same_bits(g.dw, g_other.dw));
  EXPECT_TRUE(same_bits(g.dbias, g_other.dbias));
}

}  // namespace
}  // namespace tilewright::kernels::testing
