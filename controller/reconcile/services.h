// The objects beside the workers: the key's Secret, the Service, the NetworkPolicy, the PodGroup.
#pragma once

#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

// Those that this runtime makes and this job needs, and nobody has made yet.
void plan_companions(const Situation& situation, Plan& plan);

// All of them, also those of which nobody knows whether they exist: another leader may have made
// them.
void remove_companions(const Situation& situation, Plan& plan);

}  // namespace tilewright::reconcile
