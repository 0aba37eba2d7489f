#include "tests/support/faulty_proxy.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string_view>
#include <utility>

#include "tests/support/kubeconfig.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;
using Kind = Fault::Kind;

// Longer than any watch of a test.
constexpr long kTimeoutSeconds = 600;

const char* reason_of(int status, const std::string& method) {
  switch (status) {
    case 409:
      return method == "POST" ? "AlreadyExists" : "Conflict";
    case 410:
      return "Expired";
    case 429:
      return "TooManyRequests";
    case 503:
      return "ServiceUnavailable";
    default:
      return "InternalError";
  }
}

json status_of(int status, const std::string& method) {
  return {{"kind", "Status"},
          {"apiVersion", "v1"},
          {"status", "Failure"},
          {"message", "the proxy of a test says so"},
          {"reason", reason_of(status, method)},
          {"code", status}};
}

// FNV-1a with a final bit mix: equal on all platforms.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdULL;
  return hash ^ (hash >> 33);
}

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    const auto end = std::min(path.find('/'), path.size());
    parts.emplace_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return parts;
}

}  // namespace

// A connection to the API server that is reused for the next request.
class FaultyProxy::Upstream {
 public:
  // Receives the response: the head once, then the body in pieces. Returning false aborts it.
  struct Sink {
    std::function<void(int status)> head;
    std::function<bool(std::string_view bytes)> body;
  };

  Upstream(std::string server, const std::filesystem::path& authority,
           const CertificatePaths& certificate)
      : server_(std::move(server)),
        authority_(authority),
        certificate_(certificate),
        easy_(curl_easy_init()),
        multi_(curl_multi_init()) {
    if (easy_ == nullptr || multi_ == nullptr) throw std::runtime_error("libcurl does not start");
  }
  ~Upstream() {
    curl_easy_cleanup(easy_);
    curl_multi_cleanup(multi_);
  }
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  // Returns false if the response is incomplete: the API server disconnected, the sink aborted, or
  // the client of the socket `client` disconnected.
  bool send(const Request& request, int client, const Sink& sink) {
    curl_easy_reset(easy_);
    const std::string url = server_ + request.target;
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_CAINFO, authority_.c_str());
    set(CURLOPT_SSLCERT, certificate_.certificate.c_str());
    set(CURLOPT_SSLKEY, certificate_.key.c_str());
    set(CURLOPT_NOPROXY, "*");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TIMEOUT, kTimeoutSeconds);
    if (!request.body.empty()) {
      set(CURLOPT_POSTFIELDS, request.body.c_str());
      set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    }
    curl_slist* headers = curl_slist_append(nullptr, "Expect:");
    for (const char* name : {"content-type", "accept", "user-agent"}) {
      const auto header = request.headers.find(name);
      if (header == request.headers.end()) continue;
      headers = curl_slist_append(headers, (header->first + ": " + header->second).c_str());
    }
    set(CURLOPT_HTTPHEADER, headers);
    Transfer transfer{sink, easy_};
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, &transfer);
    const bool whole = perform(client);
    curl_slist_free_all(headers);
    return whole;
  }

 private:
  struct Transfer {
    const Sink& sink;
    CURL* easy;
  };
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* target) {
    const std::string_view line(data, size * count);
    auto& transfer = *static_cast<Transfer*>(target);
    if (line == "\r\n") {
      long status = 0;
      curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
      transfer.sink.head(static_cast<int>(status));
    }
    return line.size();
  }
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* target) {
    const std::string_view bytes(data, size * count);
    return static_cast<Transfer*>(target)->sink.body(bytes) ? bytes.size() : bytes.size() + 1;
  }
  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(easy_, option, value);
  }
  bool perform(int client) {
    constexpr int kPollMilliseconds = 1000;
    bool whole = false;
    curl_multi_add_handle(multi_, easy_);
    for (int running = 1; running > 0;) {
      curl_multi_perform(multi_, &running);
      if (running == 0) break;
      // A client sends nothing during the response; readable means that it disconnected.
      curl_waitfd leaving{client, CURL_WAIT_POLLIN, 0};
      curl_multi_poll(multi_, &leaving, 1, kPollMilliseconds, nullptr);
      if (leaving.revents != 0) break;
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      whole = message->msg == CURLMSG_DONE && message->data.result == CURLE_OK;
    }
    curl_multi_remove_handle(multi_, easy_);
    return whole;
  }

  const std::string server_;
  const std::filesystem::path authority_;
  const CertificatePaths certificate_;
  CURL* const easy_;
  CURLM* const multi_;
};

FaultyProxy::FaultyProxy(const ControlPlane& control_plane, Script script)
    : script_(std::move(script)),
      server_(control_plane.url()),
      server_ca_certificate_(control_plane.authority()),
      admin_certificate_(control_plane.admin_certificate()),
      tls_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free) {
  const CertificatePaths own = authority_.issue_server("proxy", {"IP:127.0.0.1"});
  if (SSL_CTX_use_certificate_file(tls_.get(), own.certificate.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_use_PrivateKey_file(tls_.get(), own.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    throw std::runtime_error("the proxy's certificate is no good");
  }
  listener_ = std::make_unique<kube::ScriptedServer>(
      [this](Connection& connection, const Request& request) { serve(connection, request); },
      tls_.get());
  write_kubeconfig(kubeconfig_, listener_->url(), authority_.certificate(),
                   {{"token", "not-asked-for"}});
}

FaultyProxy::~FaultyProxy() {
  stop_.signal();
  listener_.reset();
}

std::map<Kind, int> FaultyProxy::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

void FaultyProxy::count_fault(Kind kind) {
  const std::lock_guard lock(mutex_);
  ++faults_[kind];
}

void FaultyProxy::pause(std::chrono::milliseconds duration) const {
  net::sleep_until(net::within(duration, &stop_));
}

// /api/v1/namespaces/NS/pods/NAME/status, /apis/GROUP/VERSION/nodes?watch=true
ProxiedRequest FaultyProxy::describe(const Request& request) {
  ProxiedRequest described;
  described.method = request.method;
  const auto query = std::min(request.target.find('?'), request.target.size());
  described.watch = request.target.find("watch=1", query) != std::string::npos ||
                    request.target.find("watch=true", query) != std::string::npos;
  std::vector<std::string> parts = split(std::string_view(request.target).substr(0, query));
  parts.erase(parts.begin(), parts.begin() + (parts.front() == "api" ? 2 : 3));
  if (parts.size() > 2 && parts.front() == "namespaces")
    parts.erase(parts.begin(), parts.begin() + 2);
  if (!parts.empty()) described.resource = parts[0];
  if (parts.size() > 1) described.name = parts[1];
  if (parts.size() > 2) described.resource += "/" + parts[2];
  if (request.method == "POST") {
    const json object = json::parse(request.body, nullptr, false);
    described.name = object.value(json::json_pointer("/metadata/name"), "");
  }
  // Their names contain UIDs, which differ in every run.
  if (described.resource == "secrets" || described.resource == "events") described.name.clear();
  const std::lock_guard lock(mutex_);
  described.occurrence =
      ++occurrences_[{described.method, described.resource, described.name, described.watch}];
  return described;
}

FaultyProxy::Upstream& FaultyProxy::upstream_of(int connection) {
  const std::lock_guard lock(mutex_);
  auto& upstream = upstreams_[connection];
  if (!upstream) {
    upstream = std::make_unique<Upstream>(server_, server_ca_certificate_, admin_certificate_);
  }
  return *upstream;
}

void FaultyProxy::serve(Connection& connection, const Request& request) {
  const ProxiedRequest described = describe(request);
  const Fault fault = script_(described);
  switch (fault.kind) {
    case Kind::kReject:
      count_fault(fault.kind);
      return connection.answer(fault.status, status_of(fault.status, request.method).dump(),
                               fault.status == 429 ? "Retry-After: 1\r\n" : "");
    case Kind::kReset:
      count_fault(fault.kind);
      return connection.reset();
    default:
      return described.watch ? forward_watch(connection, request, fault)
                             : forward(connection, request, fault);
  }
}

void FaultyProxy::forward(Connection& connection, const Request& request, const Fault& fault) {
  int status = 0;
  std::string body;
  const Upstream::Sink sink{[&](int code) { status = code; },
                            [&](std::string_view bytes) {
                              body += bytes;
                              return true;
                            }};
  for (int times = fault.kind == Kind::kDuplicate ? 2 : 1; times > 0; --times) {
    body.clear();
    if (!upstream_of(request.connection).send(request, connection.fd(), sink)) {
      return connection.hang_up();
    }
  }
  if (fault.kind != Kind::kNone) count_fault(fault.kind);
  switch (fault.kind) {
    case Kind::kWrongStatus:
      return connection.answer(fault.status, status_of(fault.status, request.method).dump(),
                               fault.status == 429 ? "Retry-After: 1\r\n" : "");
    case Kind::kResetAfter:
      return connection.reset();
    case Kind::kTruncate:
      connection.head(status, fmt::format("Content-Length: {}\r\n", body.size()));
      connection.send(std::string_view(body).substr(0, body.size() / 2));
      return connection.reset();
    case Kind::kDelayResponse:
      pause(fault.pause);
      break;
    default:
      break;
  }
  connection.answer(status, body);
}

void FaultyProxy::forward_watch(Connection& connection, const Request& request,
                                const Fault& fault) {
  bool ends_well = true;
  int events = 0;
  std::string pending;  // of an incomplete event
  // Returns false when the stream ends.
  const auto pass_event = [&](const std::string& event) {
    const bool due = events++ >= fault.events;
    if (due && fault.kind == Kind::kBreakStream) {
      connection.chunk(std::string_view(event).substr(0, event.size() / 2));
      ends_well = false;
    } else if (due && fault.kind == Kind::kExpireStream) {
      connection.chunk(json{{"type", "ERROR"}, {"object", status_of(410, request.method)}}.dump() +
                       "\n");
    } else if (!due || fault.kind != Kind::kEndStream) {
      if (fault.kind == Kind::kDelayEvents) pause(fault.pause);
      connection.chunk(event);
      if (fault.kind == Kind::kRepeatEvents) connection.chunk(event);
      if (fault.kind != Kind::kDelayEvents && fault.kind != Kind::kRepeatEvents) return true;
      count_fault(fault.kind);
      return true;
    }
    count_fault(fault.kind);
    return false;
  };
  bool given_up = false;
  const Upstream::Sink sink{[&](int status) { connection.begin_chunks(status); },
                            [&](std::string_view bytes) {
                              pending += bytes;
                              for (std::size_t end;
                                   (end = pending.find('\n')) != std::string::npos;) {
                                given_up = !pass_event(pending.substr(0, end + 1));
                                pending.erase(0, end + 1);
                                if (given_up) return false;
                              }
                              return true;
                            }};
  const bool whole = upstream_of(request.connection).send(request, connection.fd(), sink);
  if (!ends_well) return connection.reset();
  if (!whole && !given_up) return connection.hang_up();
  if (!pending.empty()) connection.chunk(pending);  // a response that is not an event stream
  connection.end_chunks();
}

Fault RandomFaults::operator()(const ProxiedRequest& request) const {
  const std::vector<Fault>& faults = request.watch        ? options_.watch_faults
                                     : request.is_write() ? options_.write_faults
                                                          : options_.read_faults;
  if (faults.empty() || request.occurrence > options_.max_occurrences) return {};
  const std::uint64_t hash =
      hash_of(fmt::format("{} {} {} {} {} {}", options_.seed, request.method, request.resource,
                          request.name, request.watch, request.occurrence));
  if (static_cast<int>(hash % 100) >= options_.percent) return {};
  return faults[(hash >> 32) % faults.size()];
}

}  // namespace tilewright::testing
