// How the trainer meets the other workers of its job: an interface, and the worker that is alone.
#pragma once

#include <memory>
#include <optional>

#include "common/base/exit_codes.h"
#include "common/rendezvous/types.h"
#include "worker/collectives/mesh.h"

namespace tilewright::train {

class Membership {
 public:
  virtual ~Membership() = default;
  // Waits for the next epoch and connects its workers; throws Failure. Null: the job is finished.
  virtual std::unique_ptr<collectives::Mesh> join(std::int64_t last_checkpoint_step) = 0;
  virtual void report(const rendezvous::Progress& progress) = 0;
  // The members are asked to end the epoch at a step boundary, or this process to stop.
  virtual bool should_leave() = 0;
  // Stopped by a signal: the code to exit with.
  virtual std::optional<ExitCode> stopped() = 0;
  virtual void finish() = 0;
};

}  // namespace tilewright::train
