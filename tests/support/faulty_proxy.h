// A proxy between a client and the API server that passes requests on, badly where a test says so:
// answers that are untrue, half sent, late or missing, watches that end in the middle.
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
#include "tests/unit/controller/kube/scripted_server.h"

namespace tilewright::testing {

struct ProxiedRequest {
  std::string method;
  std::string resource;  // pods, trainjobs/status
  std::string name;      // of the object, also of one that is to be created; empty: of a collection
  bool watch = false;
  int occurrence = 1;  // of the same method, resource and name, a watch apart; from 1

  bool is_write() const { return method != "GET"; }
};

struct Fault {
  enum class Kind {
    kNone,
    kRefuse,      // answered with `status`: the API server never hears of it
    kLie,         // passed on, and answered with `status` whatever came of it
    kReset,       // the connection breaks: the API server never hears of it
    kResetAfter,  // passed on, then the connection breaks without an answer
    kHalf,        // passed on; the connection breaks within the answer's body
    kStall,       // passed on; the answer waits for `pause`
    kTwice,       // passed on twice; the second answer is given
    // Of watches, after `events` events went by whole:
    kCut,     // the connection breaks within the next event
    kEnd,     // the stream ends in good order instead of the next event
    kExpire,  // an ERROR event of 410 comes instead of the next event
    kDelay,   // each event waits for `pause`
    kRepeat,  // each event comes twice
  };
  Kind kind = Kind::kNone;
  int status = 0;
  std::chrono::milliseconds pause{0};
  int events = 0;
};

class FaultyProxy {
 public:
  // What is to become of a request; called from many threads at once.
  using Script = std::function<Fault(const ProxiedRequest&)>;

  FaultyProxy(const ControlPlane& control_plane, Script script);
  ~FaultyProxy();
  FaultyProxy(const FaultyProxy&) = delete;
  FaultyProxy& operator=(const FaultyProxy&) = delete;

  // With its address, and credentials that it does not ask for: it passes everything on as the
  // administrator's.
  const std::filesystem::path& kubeconfig() const { return kubeconfig_; }
  // Faults that came to pass.
  std::map<Fault::Kind, int> faults() const;

 private:
  class Upstream;
  using Connection = kube::ScriptedConnection;
  using Request = kube::ScriptedRequest;

  ProxiedRequest describe(const Request& request);
  Upstream& upstream_of(int connection);
  void serve(Connection& connection, const Request& request);
  void pass_on(Connection& connection, const Request& request, const Fault& fault);
  void pass_watch_on(Connection& connection, const Request& request, const Fault& fault);
  void pause(std::chrono::milliseconds duration) const;
  void came_to_pass(Fault::Kind kind);

  const Script script_;
  const std::string server_;
  const std::filesystem::path authority_of_server_;
  const CertificatePaths administrator_;
  TemporaryDirectory folder_;
  CertificateAuthority authority_{folder_.path()};
  const std::filesystem::path kubeconfig_ = folder_.path() / "kubeconfig";
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls_;
  net::WakeUp stop_;
  mutable std::mutex mutex_;
  std::map<int, std::unique_ptr<Upstream>> upstreams_;  // by connection
  std::map<std::tuple<std::string, std::string, std::string, bool>, int> occurrences_;
  std::map<Fault::Kind, int> faults_;
  std::unique_ptr<kube::ScriptedServer> listener_;  // last: its threads use all of the above
};

// Lets faults of a list befall requests as a seed says. What befalls a request depends on nothing
// but the seed, the request and how often it came, so that a seed means the same in every run,
// whatever the threads do.
class RandomFaults {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::vector<Fault> of_writes, of_reads, of_watches;
    int percent = 50;    // of the requests of a kind that has faults
    int most_times = 4;  // a request that came more often than this is spared, so that all ends
  };
  explicit RandomFaults(Options options) : options_(std::move(options)) {}

  Fault operator()(const ProxiedRequest& request) const;

 private:
  Options options_;
};

}  // namespace tilewright::testing
