// Posts events from a thread of its own, so that no reconcile waits for one.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/log.h"
#include "controller/kube/client.h"
#include "controller/reconcile/plan.h"

namespace tilewright::manager {

// An object of events.k8s.io/v1 about the job. Its name follows from what it says and of which
// version of the job, so that the same event posted twice is one.
nlohmann::json build_event(const api::TrainJob& job, const reconcile::Event& event,
                           const std::string& reporting_instance, WallTime now);

class Recorder {
 public:
  // Events that wait; beyond that the oldest is dropped: they are for people, not for decisions.
  static constexpr std::size_t kMaxWaiting = 4096;

  // `client` must outlive it. `instance` is the name of this replica.
  Recorder(kube::Client& client, std::shared_ptr<const kube::WriteGuard> guard,
           std::string instance, std::shared_ptr<Logger> log);
  // Posts what waits, for as long as the guard permits, then joins the thread.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void record(const api::TrainJob& job, const reconcile::Event& event);

 private:
  void run();
  void post(const nlohmann::json& event);

  kube::Client& client_;
  const std::shared_ptr<const kube::WriteGuard> guard_;
  const std::string instance_;
  const std::shared_ptr<Logger> log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<nlohmann::json> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tilewright::manager
