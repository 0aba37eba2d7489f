// A proxy between a client and the API server that injects faults: rejected or truncated requests,
// wrong statuses, delays, missing responses and interrupted watches.
#pragma once

#include <openssl/ssl.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/certificates.h"
#include "tests/support/control_plane.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/client/scripted_server.h"

namespace tilewright::testing {

struct ProxiedRequest {
  std::string method;
  std::string resource;  // pods, trainjobs/status
  std::string name;      // of the object, also in a create; empty: a collection
  bool watch = false;
  int occurrence = 1;  // from 1, per method, resource, name and watch

  bool is_write() const { return method != "GET"; }
};

struct Fault {
  enum class Kind {
    kNone,
    kReject,         // not forwarded; responds with `status`
    kWrongStatus,    // forwarded; responds with `status` whatever the result
    kReset,          // not forwarded; resets the connection
    kResetAfter,     // forwarded; resets the connection before the response
    kTruncate,       // forwarded; resets the connection within the response body
    kDelayResponse,  // forwarded; delays the response by `pause`
    kDuplicate,      // forwarded twice; returns the second response
    // For watches, after `events` complete events:
    kBreakStream,   // resets the connection within the next event
    kEndStream,     // ends the stream cleanly before the next event
    kExpireStream,  // sends an ERROR event (410) instead of the next event
    kDelayEvents,   // delays each event by `pause`
    kRepeatEvents,  // sends each event twice
  };
  Kind kind = Kind::kNone;
  int status = 0;
  std::chrono::milliseconds pause{0};
  int events = 0;
};

class FaultyProxy {
 public:
  // Chooses the fault of a request; called concurrently.
  using Script = std::function<Fault(const ProxiedRequest&)>;

  FaultyProxy(const ControlPlane& control_plane, Script script);
  ~FaultyProxy();
  FaultyProxy(const FaultyProxy&) = delete;
  FaultyProxy& operator=(const FaultyProxy&) = delete;

  // A kubeconfig with the proxy's address. The proxy ignores credentials and forwards all requests
  // as the administrator.
  const std::filesystem::path& kubeconfig() const { return kubeconfig_; }
  // Number of injected faults by kind.
  std::map<Fault::Kind, int> faults() const;

 private:
  class Upstream;
  using Connection = kube::ScriptedConnection;
  using Request = kube::ScriptedRequest;

  ProxiedRequest describe(const Request& request);
  Upstream& upstream_of(int connection);
  void serve(Connection& connection, const Request& request);
  void forward(Connection& connection, const Request& request, const Fault& fault);
  void forward_watch(Connection& connection, const Request& request, const Fault& fault);
  void pause(std::chrono::milliseconds duration) const;
  void count_fault(Fault::Kind kind);

  const Script script_;
  const std::string server_;
  const std::filesystem::path server_ca_certificate_;
  const CertificatePaths admin_certificate_;
  TemporaryDirectory folder_;
  CertificateAuthority authority_{folder_.path()};
  const std::filesystem::path kubeconfig_ = folder_.path() / "kubeconfig";
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls_;
  net::WakeUp stop_;
  mutable std::mutex mutex_;
  std::map<int, std::unique_ptr<Upstream>> upstreams_;  // by client connection
  std::map<std::tuple<std::string, std::string, std::string, bool>, int> occurrences_;
  std::map<Fault::Kind, int> faults_;
  std::unique_ptr<kube::ScriptedServer> listener_;  // last: its threads use all of the above
};

// Chooses faults pseudo-randomly. The choice depends only on the seed, the request and its
// occurrence, so a seed gives the same faults in every run, independent of thread timing.
class RandomFaults {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::vector<Fault> write_faults, read_faults, watch_faults;
    int percent = 50;         // of the requests to which a fault applies
    int max_occurrences = 4;  // later occurrences get no fault, so that the test ends
  };
  explicit RandomFaults(Options options) : options_(std::move(options)) {}

  Fault operator()(const ProxiedRequest& request) const;

 private:
  Options options_;
};

}  // namespace tilewright::testing
