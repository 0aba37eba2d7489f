#include "common/rendezvous/worker_indices.h"

#include <gtest/gtest.h>

#include "common/rendezvous/types.h"

namespace tilewright::rendezvous {
namespace {

constexpr std::uint64_t kAgent = 100;

// The index that one agent gets; 0: none.
int ask(WorkerIndices& indices, std::uint64_t agent, const std::set<int>& used = {}) {
  indices.request(1, agent);
  return indices.answer(used).at(0).index.value_or(0);
}

TEST(WorkerIndices, AreGivenInTheOrderOfTheRequests) {
  WorkerIndices indices(3, 5);
  indices.request(8, kAgent + 1);
  indices.request(7, kAgent);
  const auto answers = indices.answer({});
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].request, 7U);
  EXPECT_EQ(answers[0].index, 3);
  EXPECT_EQ(answers[1].request, 8U);
  EXPECT_EQ(answers[1].index, 4);
  EXPECT_FALSE(indices.has_requests());
}

TEST(WorkerIndices, OfAnAgentStayTheSame) {
  WorkerIndices indices(1, 4);
  EXPECT_EQ(ask(indices, kAgent), 1);
  EXPECT_EQ(ask(indices, kAgent + 1), 2);
  EXPECT_EQ(ask(indices, kAgent), 1);
}

TEST(WorkerIndices, AreAboveThoseThatProcessesHaveHad) {
  WorkerIndices indices(1, 9);
  EXPECT_EQ(ask(indices, kAgent, {0, 4}), 5);
  EXPECT_EQ(ask(indices, kAgent + 1, {0}), 6) << "the process with index 4 may return";
  EXPECT_EQ(ask(indices, kAgent + 2, {6, 7}), 8);
}

TEST(WorkerIndices, EndAtTheMaximum) {
  WorkerIndices indices(kMaxWorkerIndex, 0);
  EXPECT_EQ(ask(indices, kAgent), kMaxWorkerIndex);
  EXPECT_EQ(ask(indices, kAgent + 1), 0);
  EXPECT_EQ(ask(indices, kAgent), kMaxWorkerIndex);
}

TEST(WorkerIndices, AWithdrawnRequestGetsNone) {
  WorkerIndices indices(1, 4);
  indices.request(7, kAgent);
  indices.withdraw(7);
  EXPECT_FALSE(indices.has_requests());
  EXPECT_TRUE(indices.answer({}).empty());
  EXPECT_EQ(ask(indices, kAgent + 1), 1);
}

// Three hosts, of which the first is known.
TEST(WorkerIndices, KnowAllHostsByTheirProcessesEarlierAnswersAndRequests) {
  const auto knows = [](const std::set<int>& used, const std::set<std::uint64_t>& requests,
                        const std::set<std::uint64_t>& given) {
    WorkerIndices indices(1, 3);
    for (const std::uint64_t agent : given) ask(indices, agent);
    std::uint64_t id = 0;
    for (const std::uint64_t agent : requests) indices.request(++id, agent);
    return indices.all_hosts_known(used);
  };
  EXPECT_FALSE(knows({}, {}, {}));
  EXPECT_FALSE(knows({0, 1}, {}, {})) << "the first host counts once";
  EXPECT_TRUE(knows({0, 1, 2}, {}, {}));
  EXPECT_TRUE(knows({}, {kAgent, kAgent + 1}, {}));
  EXPECT_TRUE(knows({2}, {kAgent}, {}));
  EXPECT_FALSE(knows({}, {kAgent}, {kAgent})) << "the same agent asks again";
  EXPECT_FALSE(knows({1}, {}, {kAgent})) << "the process of that agent";
  EXPECT_TRUE(knows({1}, {kAgent + 1}, {kAgent}));
}

}  // namespace
}  // namespace tilewright::rendezvous
