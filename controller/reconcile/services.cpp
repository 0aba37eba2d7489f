#include "controller/reconcile/services.h"

namespace tilewright::reconcile {
namespace {

std::set<Companion> wanted(const Observed& observed) {
  std::set<Companion> companions = observed.runtime.companions;
  if (!observed.job.spec.run_policy.scheduling_policy) companions.erase(Companion::kPodGroup);
  return companions;
}

}  // namespace

void plan_companions(const Situation& situation, Plan& plan) {
  const Observed& observed = situation.observed;
  for (const Companion companion : wanted(observed)) {
    if (!observed.companions.contains(companion)) plan.ensure.push_back(companion);
  }
}

void remove_companions(const Situation& situation, Plan& plan) {
  const Observed& observed = situation.observed;
  for (const Companion companion : wanted(observed)) {
    if (!observed.removed_companions.contains(companion)) plan.remove.push_back(companion);
  }
}

}  // namespace tilewright::reconcile
