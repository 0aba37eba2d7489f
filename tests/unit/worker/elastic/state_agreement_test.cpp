#include "worker/elastic/state_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tilewright::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StateReport at(std::int64_t step, int stage = 0, std::uint64_t epoch = 1) {
  return {"settings", {step, stage, epoch}, -1};
}
StateReport joiner() { return {"settings", {}, -1}; }

TEST(StateAgreement, TakesTheMostAdvancedState) {
  const StateReport reports[] = {joiner(), at(7), at(8), at(7), at(8)};
  const StateAgreement agreement = agree_on_state(reports, -1);
  EXPECT_EQ(agreement.source, StateSource::kMemory);
  EXPECT_EQ(agreement.position, (TrainingPosition{8, 0, 1}));
  EXPECT_THAT(agreement.senders, ElementsAre(2, 4));
  EXPECT_THAT(agreement.receivers, ElementsAre(0, 1, 3));
  EXPECT_THAT(agreement.inconsistent, IsEmpty());
}

// Rank 1 has trained step 8 without ranks 2 and 4; its bits may differ from theirs.
TEST(StateAgreement, SendsStatesOfOneEpochOnly) {
  const StateReport reports[] = {joiner(), at(8, 0, 3), at(8, 0, 4), at(7, 0, 5), at(8, 0, 4)};
  const StateAgreement agreement = agree_on_state(reports, -1);
  EXPECT_EQ(agreement.position, (TrainingPosition{8, 0, 4}));
  EXPECT_THAT(agreement.senders, ElementsAre(2, 4));
  EXPECT_THAT(agreement.receivers, ElementsAre(0, 1, 3));
}

TEST(StateAgreement, AnEvaluatedStepIsMoreAdvanced) {
  const StateReport reports[] = {at(8), at(8, 1), joiner()};
  const StateAgreement agreement = agree_on_state(reports, 4);
  EXPECT_THAT(agreement.senders, ElementsAre(1));
  EXPECT_THAT(agreement.receivers, ElementsAre(0, 2));
}

TEST(StateAgreement, SendsNothingIfAllHaveTheSameState) {
  const StateReport reports[] = {at(8), at(8)};
  const StateAgreement agreement = agree_on_state(reports, 8);
  EXPECT_EQ(agreement.source, StateSource::kMemory);
  EXPECT_THAT(agreement.senders, ElementsAre(0, 1));
  EXPECT_THAT(agreement.receivers, IsEmpty());
}

TEST(StateAgreement, ReadsTheCheckpointIfNobodyHasAState) {
  const StateReport reports[] = {joiner(), joiner()};
  const StateAgreement agreement = agree_on_state(reports, 40);
  EXPECT_EQ(agreement.source, StateSource::kStorage);
  EXPECT_EQ(agreement.checkpoint_step, 40);
  EXPECT_THAT(agreement.senders, IsEmpty());
  EXPECT_THAT(agreement.receivers, ElementsAre(0, 1));
}

TEST(StateAgreement, ReadsACheckpointThatIsNewerThanAnyState) {
  StateReport with_checkpoint = joiner();
  with_checkpoint.checkpoint_step = 9;
  const StateReport reports[] = {at(8), with_checkpoint};
  EXPECT_EQ(agree_on_state(reports, -1).source, StateSource::kCheckpoint);
  EXPECT_THAT(agree_on_state(reports, -1).senders, ElementsAre(0)) << "if it cannot be read";
  EXPECT_EQ(agree_on_state(std::span(reports).first(1), 9).source, StateSource::kCheckpoint);
  EXPECT_EQ(agree_on_state(std::span(reports).first(1), 8).source, StateSource::kMemory);
}

TEST(StateAgreement, NamesTheWorkersWithOtherSettingsThanTheSurvivors) {
  StateReport other = joiner();
  other.settings = "other settings";
  const StateReport reports[] = {other, at(8), joiner(), at(7)};
  const StateAgreement agreement = agree_on_state(reports, 4);
  EXPECT_THAT(agreement.inconsistent, ElementsAre(0));
  EXPECT_THAT(agreement.senders, IsEmpty());
  const StateReport fresh[] = {joiner(), joiner(), other};
  EXPECT_THAT(agree_on_state(fresh, -1).inconsistent, ElementsAre(2)) << "than rank 0";
}

TEST(StateAgreement, NamesTheWorkersWithAnotherEvaluation) {
  StateReport other = joiner();
  other.evaluation = "other evaluation data";
  const StateReport reports[] = {other, at(8), joiner()};
  EXPECT_THAT(agree_on_state(reports, 4).inconsistent, ElementsAre(0));
  EXPECT_THAT(agree_on_state(reports, 4).senders, IsEmpty());
}

// Random reports: the agreement keeps the most advanced state, never chooses a state that no worker
// has, and does not depend on the ranks.
TEST(StateAgreementProperty, HoldsForRandomReports) {
  std::mt19937_64 random(20);
  const auto pick = [&](int below) {
    return std::uniform_int_distribution<int>(0, below - 1)(random);
  };
  for (int round = 0; round < 100'000; ++round) {
    std::vector<StateReport> reports(1 + static_cast<std::size_t>(pick(6)));
    for (StateReport& report : reports) {
      report.settings = pick(12) == 0 ? "other" : "settings";
      if (pick(3) > 0) report.position = {pick(4), pick(3), pick(4) == 0 ? 1U : 2U};
      report.checkpoint_step = pick(4) == 0 ? pick(5) : -1;
    }
    const std::int64_t required = pick(3) == 0 ? pick(5) : -1;
    const StateAgreement agreement = agree_on_state(reports, required);

    TrainingPosition best;
    std::int64_t checkpoint = required;
    for (const StateReport& report : reports) {
      best = std::max(best, report.position);
      checkpoint = std::max(checkpoint, report.checkpoint_step);
    }
    const bool equal_settings = std::ranges::all_of(reports, [&](const StateReport& report) {
      return report.settings == reports.front().settings;
    });
    ASSERT_EQ(agreement.inconsistent.empty(), equal_settings);
    if (!equal_settings) {
      ASSERT_LT(agreement.inconsistent.size(), reports.size()) << "one worker keeps its settings";
      ASSERT_TRUE(agreement.senders.empty() && agreement.receivers.empty());
      for (const int rank : agreement.inconsistent) {
        // A worker with the most advanced state is told to leave only by one that has it too.
        if (reports[static_cast<std::size_t>(rank)].position < best) continue;
        ASSERT_TRUE(std::ranges::any_of(reports, [&](const StateReport& report) {
          return report.position == best &&
                 report.settings != reports[static_cast<std::size_t>(rank)].settings;
        }));
      }
      continue;
    }
    ASSERT_EQ(agreement.position, best);
    ASSERT_EQ(agreement.checkpoint_step, checkpoint);
    ASSERT_EQ(agreement.senders.size() + agreement.receivers.size(), reports.size());
    ASSERT_TRUE(std::ranges::is_sorted(agreement.senders));
    ASSERT_TRUE(std::ranges::is_sorted(agreement.receivers));
    const auto of = [&](int rank) { return reports[static_cast<std::size_t>(rank)]; };
    for (const int rank : agreement.senders) {
      ASSERT_EQ(of(rank).position, best);
    }
    for (const int rank : agreement.receivers) {
      ASSERT_TRUE(of(rank).position < best || !best.complete());
    }
    ASSERT_EQ(agreement.senders.empty(), !best.complete());
    const StateSource expected = !best.complete()         ? StateSource::kStorage
                                 : checkpoint > best.step ? StateSource::kCheckpoint
                                                          : StateSource::kMemory;
    ASSERT_EQ(agreement.source, expected);

    // Other ranks for the same workers: the same source and position.
    std::vector<StateReport> shuffled = reports;
    std::ranges::shuffle(shuffled, random);
    const StateAgreement other = agree_on_state(shuffled, required);
    ASSERT_EQ(other.source, agreement.source);
    ASSERT_EQ(other.position, agreement.position);
    ASSERT_EQ(other.senders.empty(), agreement.senders.empty());

    // The loss of a worker that others equal changes nothing.
    if (agreement.senders.size() < 2) continue;
    reports.erase(reports.begin() + agreement.senders.front());
    ASSERT_EQ(agree_on_state(reports, checkpoint).position, best);
    ASSERT_EQ(agree_on_state(reports, checkpoint).source, agreement.source);
  }
}

}  // namespace
}  // namespace tilewright::elastic
