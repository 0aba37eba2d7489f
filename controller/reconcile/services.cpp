#include "controller/reconcile/services.h"

namespace tilewright::reconcile {

void plan_companions(const Situation& situation, Plan& plan) {
  const Observed& observed = situation.observed;
  for (const Companion companion : observed.runtime.companions) {
    const bool wanted = companion != Companion::kPodGroup ||
                        observed.job.spec.run_policy.scheduling_policy.has_value();
    if (wanted && !observed.companions.contains(companion)) plan.ensure.push_back(companion);
  }
}

}  // namespace tilewright::reconcile
