// The inside of the server: connections, jobs and the loop; for this room only.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "common/base/file_descriptor.h"
#include "common/net/tls.h"
#include "common/rendezvous/connection.h"
#include "common/rendezvous/server.h"

namespace tilewright::rendezvous {

// One lock guards everything; the loop's thread holds it except while it waits for sockets. Every
// piece of work under it is short: no call waits.
class Server::Impl {
 public:
  Impl(const Options& options, net::Listener listener, std::shared_ptr<Logger> log);
  ~Impl();

  const net::Address& address() const { return listener_.local_address(); }
  Status add_job(JobSpec spec);
  void remove_job(const std::string& uid, const std::optional<std::string>& sentence);
  Status expect(const std::string& uid, const Expect& expect);
  std::optional<Snapshot> snapshot(const std::string& uid) const;
  const net::WakeUp& changes() const { return changes_; }
  std::vector<std::string> take_changed();

 private:
  using ConnectionId = std::uint64_t;  // 0: the listener; 1: the bell

  struct Job {
    std::string uid;
    net::SecretKey key;
    bool tls = false;
    net::TlsKey tls_key;
    State state;
    std::optional<Progress> progress;  // as in Snapshot
    std::map<MemberId, ConnectionId> connections;
    std::deque<Loss> losses;
    std::uint64_t number_of_losses = 0;
    std::uint64_t refused = 0;
    std::optional<MonotonicTime> deadline;
  };

  void run();
  void serve_deadlines();
  MonotonicTime next_wake() const;
  void accept_all();
  void watch_listener(std::uint32_t events);
  void read_from(ConnectionId id);
  void flush(ConnectionId id);
  void watch(ConnectionId id, const Connection& connection, bool add);
  const net::TlsKey* find_tls_key(std::string_view identity) const;
  void take_message(ConnectionId id, Connection& connection, const std::string& text);
  bool take_join(ConnectionId id, Connection& connection, Job& job, const Join& join);
  void close(ConnectionId id, const std::string& reason);
  void end_softly(Connection& connection);
  void apply(Job& job, const Event& event);
  void take_down(Job& job, const Heartbeat& beat);
  void perform(Job& job, const Action& action);
  void send(Job& job, const MemberId& to, const ServerMessage& message, bool last = false);
  void changed(const Job& job);
  Job* find_job(const std::string& uid);

  const Options options_;
  net::Listener listener_;
  std::shared_ptr<Logger> log_;
  FileDescriptor epoll_;
  net::WakeUp bell_;
  net::WakeUp changes_;

  mutable std::mutex mutex_;
  std::map<std::string, Job> jobs_;
  std::map<ConnectionId, Connection> connections_;
  std::set<ConnectionId> dirty_;  // something to send or to close
  std::set<std::string> changed_;
  ConnectionId next_id_ = 2;
  std::size_t strangers_ = 0;
  std::optional<MonotonicTime> listen_again_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tilewright::rendezvous
