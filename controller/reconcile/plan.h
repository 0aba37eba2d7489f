// What is to be done next for one job: the answer of reconcile(), carried out by a runtime.
//
// The order of carrying out: the status first, and nothing else if it could not be written (a
// worker's end must stand in the status before the worker is deleted; the frozen sizes before the
// first worker exists); then deletions; then the membership; then companions, creations and the
// removal of companions; events last.
// Everything may fail or be cut short anywhere: the next reconcile starts from what is.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/api/status.h"
#include "controller/reconcile/observed.h"

namespace tilewright::reconcile {

struct WorkerCreation {
  std::string name;  // deterministic, so that two creations of one index exclude each other
  int index = 0;
  bool operator==(const WorkerCreation&) const = default;
};

struct WorkerDeletion {
  std::string name;
  int index = 0;
  std::string uid;     // a precondition: another incarnation of that name is left alone
  bool force = false;  // without waiting for its node's answer, which will never come
  std::string why;
  bool operator==(const WorkerDeletion&) const = default;
};

// What the gang scheduler is asked for.
struct Gang {
  std::int64_t min_member = 0;
  std::string queue;
  std::string priority_class;
  std::optional<std::int64_t> schedule_timeout_seconds;
  bool operator==(const Gang&) const = default;
};

// What the coordinator of the rendezvous is told; numbers are processes.
struct Membership {
  int min_world = 1;
  int max_world = 1;
  int expected = 1;  // an epoch forms as soon as so many are there
  // How long an epoch may wait for the expected ones before it forms with fewer.
  std::chrono::seconds patience{0};
  bool operator==(const Membership&) const = default;
};

struct Event {
  bool warning = false;
  std::string reason;
  std::string message;
  bool operator==(const Event&) const = default;
};

struct Plan {
  std::optional<api::TrainJobStatus> status;  // nothing: the observed one still holds
  std::vector<WorkerDeletion> deletions;
  std::vector<Companion> ensure;
  std::vector<Companion> remove;
  std::vector<WorkerCreation> creations;  // by index
  std::optional<Gang> gang;               // with Companion::kPodGroup
  std::optional<Membership> membership;   // nothing: joiners are told that the job is over
  std::vector<Event> events;
  bool finished = false;    // the job's phase is final
  bool delete_job = false;  // its time to live is over
  std::optional<WallTime::duration> requeue_after;

  bool operator==(const Plan&) const = default;
};

}  // namespace tilewright::reconcile
