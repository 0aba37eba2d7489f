// The inside of the client: its state and the thread that speaks with the coordinator; for this
// room only.
#pragma once

#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "common/net/message.h"
#include "common/rendezvous/client.h"
#include "common/rendezvous/messages.h"

namespace tilewright::rendezvous {

class Client::Impl {
 public:
  Impl(Options options, net::SecretKey key, std::shared_ptr<Logger> log);
  ~Impl();

  Result<Assignment> join(std::int64_t last_checkpoint_step, const net::Wait& wait);
  void report(Progress progress);
  const net::WakeUp& epoch_bell() const { return epoch_bell_; }
  void on_epoch_end(EpochEndHandler handler);
  bool reform_asked() const;
  std::string reason() const;
  bool connected() const;
  Status finish(const net::Wait& wait);
  void leave(const std::string& reason, const net::Wait& wait);

 private:
  enum class Stage { kIdle, kJoining, kInEpoch, kEnded, kFinishing, kFinished, kRefused };

  // The thread.
  void run();
  bool wait_for_work();
  Status serve_connection();
  Status connect(net::Socket& socket);
  void back_off();
  Status send_due(net::Socket& socket, bool first);
  Status send(net::Socket& socket, const ClientMessage& message);
  Status receive(net::Socket& socket, net::MessageReader& reader);
  void handle(const ServerMessage& message);
  void end_epoch(const std::string& reason);

  // Lets go of the lock until the condition holds or the wait ends; whether it holds.
  template <typename Condition>
  net::Ready await(std::unique_lock<std::mutex>& lock, const net::Wait& wait, Condition condition);

  void call_handler();  // under handler_mutex_

  // Under mutex_.
  void give_up_epoch();
  MemberId who() const { return {options_.seat, options_.incarnation}; }
  Epoch epoch() const;
  Join registration() const;

  const Options options_;
  const net::SecretKey key_;
  const std::shared_ptr<Logger> log_;
  net::WakeUp wake_;       // there is something to send
  net::WakeUp stop_bell_;  // the client goes
  net::WakeUp epoch_bell_;
  net::WakeUp progressed_;  // the stage or the connection has changed

  std::mutex handler_mutex_;  // taken before mutex_
  EpochEndHandler handler_;

  mutable std::mutex mutex_;
  Stage stage_ = Stage::kIdle;
  std::optional<Assignment> held_;  // also in kEnded, until join() gives it up
  bool taken_ = false;              // join() has returned it
  Epoch after_epoch_ = 0;
  std::int64_t last_checkpoint_step_ = -1;
  Progress progress_;
  bool join_to_send_ = false;
  bool finish_to_send_ = false;
  std::optional<std::string> leave_to_send_;
  bool reform_asked_ = false;
  bool job_finished_ = false;
  std::string reason_;
  std::string trouble_ = "no try has been made";  // of the last try to connect
  bool connected_ = false;
  bool stop_ = false;

  // Of the thread alone.
  std::mt19937_64 jitter_;
  Duration backoff_{};
  MonotonicTime last_heard_;
  MonotonicTime next_heartbeat_;
  std::thread thread_;
};

}  // namespace tilewright::rendezvous
