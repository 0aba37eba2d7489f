#include "tests/support/hub_server.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>

#include "common/base/sha256.h"
#include "common/base/strings.h"
#include "tests/support/paths.h"

namespace tilewright::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kTimeout{180};

std::string git_object_id(const std::string& content) {
  const std::string object = fmt::format("blob {}", content.size()) + '\0' + content;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(object.data(), object.size(), digest, &size, EVP_sha1(), nullptr) != 1) {
    throw std::runtime_error("OpenSSL has no SHA-1");
  }
  return to_hex({digest, size});
}

std::string decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

// The paths of a form "paths=a&paths=b&expand=true".
std::set<std::string> form_paths(std::string_view body) {
  std::set<std::string> paths;
  while (!body.empty()) {
    const std::size_t end = std::min(body.find('&'), body.size());
    if (body.starts_with("paths=")) paths.insert(decoded(body.substr(6, end - 6)));
    body.remove_prefix(std::min(end + 1, body.size()));
  }
  return paths;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string header(const kube::ScriptedRequest& request, const char* name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? "" : found->second;
}

std::string token_of(const kube::ScriptedRequest& request) {
  const std::string value = header(request, "authorization");
  return value.starts_with("Bearer ") ? value.substr(7) : value;
}

nlohmann::json tree_entry(const std::string& path, const std::string& oid, std::size_t size,
                          const std::string* sha256) {
  nlohmann::json entry = {{"type", "file"}, {"path", path}, {"oid", oid}, {"size", size}};
  if (sha256 != nullptr) entry["lfs"] = {{"oid", *sha256}, {"size", size}, {"pointerSize", 130}};
  return entry;
}

}  // namespace

// A parsed target.
struct HubServer::Route {
  Type type = Type::kModel;
  std::string name;            // of the repository
  std::string action;          // resolve, resolve-cache, revision, tree, paths-info, info
  std::string revision, path;  // decoded
  std::string before, after;   // the target before and after the name
  std::string query;           // with the question mark

  static std::optional<Route> parse(const std::string& target) {
    Route route;
    std::string path = target.substr(0, target.find('?'));
    route.query = target.substr(path.size());
    const auto take = [&](const std::string& prefix) {
      if (!path.starts_with(prefix)) return false;
      path.erase(0, prefix.size());
      route.before += prefix;
      return true;
    };
    if (take("/api/resolve-cache/")) {
      if (take("datasets/"))
        route.type = Type::kDataset;
      else if (!take("models/"))
        return std::nullopt;
      route.action = "resolve-cache";
    } else if (take("/api/")) {
      if (take("datasets/"))
        route.type = Type::kDataset;
      else if (!take("models/"))
        return std::nullopt;
      route.action = "info";
      for (const char* action : {"revision", "tree", "paths-info"}) {
        if (contains(path, fmt::format("/{}/", action))) route.action = action;
      }
    } else if (take("/")) {
      if (take("datasets/")) route.type = Type::kDataset;
      route.action = "resolve";
    }
    if (route.action == "resolve-cache") {  // ORG/NAME/COMMIT/FILE
      const std::size_t slash = path.find('/', path.find('/') + 1);
      if (slash == std::string::npos) return std::nullopt;
      route.name = path.substr(0, slash);
      path.erase(0, slash + 1);
    } else {
      const std::string infix = fmt::format("/{}/", route.action);
      const std::size_t end = std::min(path.find(infix), path.size());
      route.name = path.substr(0, end);
      route.after = path.substr(end);
      path.erase(0, end + (route.after.empty() ? 0 : infix.size()));
    }
    const std::size_t slash = std::min(path.find('/'), path.size());
    route.revision = decoded(path.substr(0, slash));
    route.path = decoded(path.substr(std::min(slash + 1, path.size())));
    if (route.action == "info") route.revision = "main";
    return route;
  }
};

HubServer::HubServer() {
  storage_ = std::make_unique<kube::ScriptedServer>(
      [this](Connection& connection, const Request& request) { serve(connection, request, true); });
  hub_ = std::make_unique<kube::ScriptedServer>(
      [this](Connection& connection, const Request& request) {
        serve(connection, request, false);
      });
}

HubServer::~HubServer() {
  release();
  hub_.reset();
  storage_.reset();
}

std::string HubServer::endpoint() const { return hub_->url(); }

void HubServer::add_file(Type type, const std::string& repository, const std::string& path,
                         std::string content) {
  auto file = std::make_shared<File>();
  file->lfs = content.size() >= kLfsBytes || path.ends_with(".safetensors") ||
              path.ends_with(".bin") || path.ends_with(".parquet");
  file->oid = git_object_id(content);
  file->sha256 = sha256_hex(content);
  file->content = std::move(content);
  const std::lock_guard lock(mutex_);
  Repository& target = repositories_[{type, repository}];
  Snapshot snapshot = target.main.empty() ? Snapshot() : target.commits[target.main];
  snapshot[path] = file;
  blobs_[file->sha256] = file;
  std::string text = repository;
  for (const auto& [name, entry] : snapshot) text += fmt::format("\n{} {}", name, entry->oid);
  target.main = sha256_hex(text).substr(0, 40);
  target.commits[target.main] = std::move(snapshot);
}

void HubServer::add_directory(const fs::path& directory) {
  for (const auto& [type, folder] :
       {std::pair{Type::kModel, "models"}, {Type::kDataset, "datasets"}}) {
    const fs::path root = directory / folder;
    if (!fs::is_directory(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (!entry.is_regular_file()) continue;
      const std::string path = entry.path().lexically_relative(root);
      const std::size_t slash = path.find('/', path.find('/') + 1);  // after ORG/NAME
      if (slash == std::string::npos) throw std::runtime_error(path + ": expected ORG/NAME/FILE");
      add_file(type, path.substr(0, slash), path.substr(slash + 1), read_text(entry.path()));
    }
  }
}

void HubServer::add_alias(Type type, const std::string& name, const std::string& target) {
  const std::lock_guard lock(mutex_);
  aliases_[{type, name}] = target;
}

void HubServer::require_token(Type type, const std::string& repository, const std::string& token) {
  const std::lock_guard lock(mutex_);
  repositories_.at({type, repository}).token = token;
}

void HubServer::add_fault(HubFaultRule rule) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(rule));
}

void HubServer::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

std::string HubServer::commit(Type type, const std::string& repository) const {
  const std::lock_guard lock(mutex_);
  return repositories_.at({type, repository}).main;
}

std::vector<HubRequest> HubServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int HubServer::count(const std::string& method, const std::string& target) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(requests_, [&](const HubRequest& request) {
    return request.method == method && contains(request.target, target);
  }));
}

bool HubServer::await(const std::string& method, const std::string& target, int expected) const {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (count(method, target) < expected) {
    std::unique_lock lock(mutex_);
    const std::size_t before = requests_.size();
    if (!changed_.wait_until(lock, deadline, [&] { return requests_.size() > before; })) {
      lock.unlock();
      return count(method, target) >= expected;
    }
  }
  return true;
}

std::unique_ptr<HubFaultRule> HubServer::take_fault(const Request& request) {
  const std::lock_guard lock(mutex_);
  for (HubFaultRule& rule : faults_) {
    if (rule.times <= 0 || !(rule.method.empty() || rule.method == request.method) ||
        !contains(request.target, rule.target)) {
      continue;
    }
    --rule.times;
    return std::make_unique<HubFaultRule>(rule);
  }
  return nullptr;
}

void HubServer::serve(Connection& connection, const Request& request, bool storage) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(
        {request.method, request.target, token_of(request), header(request, "range"), storage});
    changed_.notify_all();
  }
  const auto fault = take_fault(request);
  if (fault && fault->kind == HubFault::kHold) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTimeout, [&] { return released_; });
  } else if (fault && fault->kind == HubFault::kStatus) {
    return send_status(connection, request, fault->status, fault->headers);
  } else if (fault && fault->kind == HubFault::kRateLimit) {
    return send_status(connection, request, 429,
                       fmt::format("Retry-After: {}\r\n", fault->retry_after));
  } else if (fault && fault->kind == HubFault::kReset) {
    return connection.hang_up();
  }
  if (storage) {
    serve_storage(connection, request, fault.get());
  } else {
    serve_hub(connection, request, fault.get());
  }
}

void HubServer::serve_hub(Connection& connection, const Request& request,
                          const HubFaultRule* fault) {
  const auto route = Route::parse(request.target);
  if (!route) return send_status(connection, request, 404, "");
  Repository repository;
  {
    const std::lock_guard lock(mutex_);
    if (const auto alias = aliases_.find({route->type, route->name}); alias != aliases_.end()) {
      const std::string location = route->before + alias->second + route->after + route->query;
      return send_status(connection, request, 307, fmt::format("Location: {}\r\n", location));
    }
    const auto found = repositories_.find({route->type, route->name});
    if (found == repositories_.end()) {
      // The hub does not tell strangers whether a private repository exists.
      return send_status(connection, request, token_of(request).empty() ? 401 : 404,
                         "X-Error-Code: RepoNotFound\r\nX-Error-Message: Repository not found\r\n");
    }
    repository = found->second;
  }
  if (!repository.token.empty() && token_of(request) != repository.token) {
    return send_status(connection, request, token_of(request).empty() ? 401 : 403,
                       "X-Error-Code: GatedRepo\r\nX-Error-Message: Access to the repository is "
                       "restricted.\r\n");
  }
  const std::string commit = route->revision == "main" ? repository.main : route->revision;
  const auto snapshot = repository.commits.find(commit);
  if (snapshot == repository.commits.end()) {
    return send_status(connection, request, 404, "X-Error-Code: RevisionNotFound\r\n");
  }
  if (route->action != "resolve" && route->action != "resolve-cache") {
    return serve_api(connection, request, *route, snapshot->second, commit);
  }
  std::string headers = fmt::format("X-Repo-Commit: {}\r\n", commit);
  const auto found = snapshot->second.find(route->path);
  if (found == snapshot->second.end()) {
    return send_status(
        connection, request, 404,
        headers + "X-Error-Code: EntryNotFound\r\nX-Error-Message: Entry not found\r\n");
  }
  const File& file = *found->second;
  if (file.lfs) {
    headers += fmt::format(
        "X-Linked-Size: {}\r\nX-Linked-Etag: \"{}\"\r\nLocation: {}/blob/{}?signature=valid\r\n",
        file.content.size(), file.sha256, storage_->url(), file.sha256);
    return send_status(connection, request, 302, headers);
  }
  if (route->action == "resolve") {
    const std::string type = route->type == Type::kModel ? "models" : "datasets";
    headers += fmt::format("Location: /api/resolve-cache/{}/{}/{}/{}?etag=%22{}%22\r\n", type,
                           route->name, commit, route->path, file.oid);
    // Names without an organisation have no such address.
    if (contains(route->name, "/")) return send_status(connection, request, 307, headers);
  }
  send_file(connection, request, file, headers + fmt::format("ETag: \"{}\"\r\n", file.oid), fault);
}

void HubServer::serve_storage(Connection& connection, const Request& request,
                              const HubFaultRule* fault) {
  const std::string sha256 =
      request.target.substr(0, request.target.find('?')).substr(std::string("/blob/").size());
  if (!token_of(request).empty() || !contains(request.target, "signature=valid")) {
    return send_status(connection, request, 400, "");
  }
  std::shared_ptr<const File> file;
  {
    const std::lock_guard lock(mutex_);
    file = blobs_.at(sha256);
  }
  send_file(connection, request, *file, "ETag: \"storage-1\"\r\n", fault);
}

void HubServer::serve_api(Connection& connection, const Request& request, const Route& route,
                          const Snapshot& snapshot, const std::string& commit) {
  nlohmann::json answer;
  const auto entry = [](const std::string& path, const File& file) {
    return tree_entry(path, file.oid, file.content.size(), file.lfs ? &file.sha256 : nullptr);
  };
  if (route.action == "tree") {
    answer = nlohmann::json::array();
    const std::string prefix = route.path.empty() ? "" : route.path + "/";
    const bool recursive =
        contains(request.target, "recursive=True") || contains(request.target, "recursive=true");
    std::set<std::string> directories;
    for (const auto& [path, file] : snapshot) {
      if (!path.starts_with(prefix)) continue;
      for (std::size_t slash = path.find('/', prefix.size()); slash != std::string::npos;
           slash = path.find('/', slash + 1)) {
        if (directories.insert(path.substr(0, slash)).second) {
          answer.push_back({{"type", "directory"},
                            {"path", path.substr(0, slash)},
                            {"oid", commit},
                            {"size", 0}});
        }
        if (!recursive) break;
      }
      if (recursive || path.find('/', prefix.size()) == std::string::npos) {
        answer.push_back(entry(path, *file));
      }
    }
    if (answer.empty() && !route.path.empty()) {
      return send_status(connection, request, 404, "X-Error-Code: EntryNotFound\r\n");
    }
  } else if (route.action == "paths-info") {
    answer = nlohmann::json::array();
    for (const std::string& path : form_paths(request.body)) {
      const auto found = snapshot.find(path);
      if (found != snapshot.end()) {
        answer.push_back(entry(path, *found->second));
      } else if (std::ranges::any_of(snapshot, [&](const auto& file) {
                   return file.first.starts_with(path + "/");
                 })) {
        answer.push_back({{"type", "directory"}, {"path", path}, {"oid", commit}, {"size", 0}});
      }
    }
  } else {
    answer = {{"id", route.name},
              {"sha", commit},
              {"private", false},
              {"gated", false},
              {"tags", nlohmann::json::array()},
              {"siblings", nlohmann::json::array()}};
    for (const auto& [path, file] : snapshot) answer["siblings"].push_back({{"rfilename", path}});
  }
  send_status(connection, request, 200, "Content-Type: application/json\r\n", answer.dump());
}

void HubServer::send_file(Connection& connection, const Request& request, const File& file,
                          const std::string& headers, const HubFaultRule* fault) {
  std::string body = file.content;
  std::string more = headers + "Accept-Ranges: bytes\r\n";
  int status = 200;
  const std::string range = header(request, "range");
  if (range.starts_with("bytes=")) {
    const std::size_t from = std::stoul(range.substr(6));
    if (from >= body.size()) {
      return send_status(connection, request, 416,
                         fmt::format("Content-Range: bytes */{}\r\n", body.size()));
    }
    const std::size_t end = range.find('-');
    const std::size_t last = end + 1 < range.size()
                                 ? std::min(std::stoul(range.substr(end + 1)), body.size() - 1)
                                 : body.size() - 1;
    status = 206;
    more += fmt::format("Content-Range: bytes {}-{}/{}\r\n", from, last, body.size());
    body = body.substr(from, last - from + 1);
  }
  const auto is = [fault](HubFault kind) { return fault != nullptr && fault->kind == kind; };
  if (is(HubFault::kCorrupt) && !body.empty()) body[body.size() / 2] ^= 1;
  if (request.method == "HEAD" || !(is(HubFault::kHalf) || is(HubFault::kSilence))) {
    return send_status(connection, request, status, more, body);
  }
  connection.head(status, fmt::format("{}Content-Length: {}\r\n", more, body.size()));
  connection.send(body.substr(0, body.size() / 2));
  if (is(HubFault::kSilence)) connection.await_close();
  connection.hang_up();
}

void HubServer::send_status(Connection& connection, const Request& request, int status,
                            const std::string& headers, const std::string& body) {
  connection.head(status, fmt::format("{}Content-Length: {}\r\n", headers, body.size()));
  if (request.method != "HEAD") connection.send(body);
}

}  // namespace tilewright::testing
