// A kubeconfig, or several: the first file that knows a name wins, as kubectl merges them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/files.h"
#include "controller/api/document.h"
#include "controller/kube/base64.h"
#include "controller/kube/config.h"
#include "controller/kube/exec_plugin.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;

struct File {
  fs::path path;
  api::Document document;
};

// A value of a file and the way to it. Members are read with sentences that name file and field
// and never repeat what was found: it may be a secret.
class Node {
 public:
  Node(const File& file, const nlohmann::json& value, std::string path)
      : file_(&file), value_(&value), path_(std::move(path)) {}

  Error wrong(const char* member, std::string message) const {
    const std::string path = api::member_path(path_, member);
    return {
        ExitCode::kUsage,
        api::FieldError{path, file_->document.positions.line_of(path), std::move(message)}.sentence(
            file_->path.string())};
  }
  Error wrong(std::string message) const {
    return {ExitCode::kUsage,
            api::FieldError{path_, file_->document.positions.line_of(path_), std::move(message)}
                .sentence(file_->path.string())};
  }
  std::string where(const char* member) const {
    std::string sentence = wrong(member, "").message;
    while (!sentence.empty() && (sentence.back() == ' ' || sentence.back() == ':')) {
      sentence.pop_back();
    }
    return sentence;
  }

  const nlohmann::json* find(const char* member) const {
    if (!value_->is_object()) return nullptr;
    const auto found = value_->find(member);
    return found == value_->end() || found->is_null() ? nullptr : &*found;
  }
  std::optional<Node> child(const char* member) const {
    const auto* found = find(member);
    if (found == nullptr) return std::nullopt;
    return Node(*file_, *found, api::member_path(path_, member));
  }
  // Empty when absent.
  Result<std::string> text(const char* member) const {
    const auto* found = find(member);
    if (found == nullptr) return std::string();
    if (!found->is_string()) return wrong(member, "expected a text (in quotes, if it is a number)");
    return found->get<std::string>();
  }
  Result<bool> boolean(const char* member) const {
    const auto* found = find(member);
    if (found == nullptr) return false;
    if (!found->is_boolean()) return wrong(member, "expected true or false");
    return found->get<bool>();
  }
  // A file beside the kubeconfig, or base64 under NAME-data, which wins.
  Result<PemSource> pem(const char* member, const char* data_member) const {
    PemSource source;
    const auto data = text(data_member);
    if (!data) return data.error();
    if (!data->empty()) {
      auto decoded = decode_base64(*data);
      if (!decoded) return wrong(data_member, "expected base64");
      source.text = std::move(*decoded);
      return source;
    }
    const auto path = text(member);
    if (!path) return path.error();
    if (!path->empty()) source.file = (folder() / *path).string();
    return source;
  }
  fs::path folder() const { return file_->path.parent_path(); }
  const fs::path& file() const { return file_->path; }
  const nlohmann::json& value() const { return *value_; }

 private:
  const File* file_;
  const nlohmann::json* value_;
  std::string path_;
};

Result<std::vector<File>> read_files(const std::vector<fs::path>& paths) {
  std::vector<File> files;
  for (const fs::path& path : paths) {
    const auto text = read_file(path, api::kMaxManifestBytes, ExitCode::kUsage);
    if (!text) return text.error();
    File file{fs::absolute(path), api::read_yaml(*text)};
    if (!file.document.errors.empty()) {
      return Error{ExitCode::kUsage, file.document.errors.front().sentence(path.string())};
    }
    if (!file.document.tree.is_object()) {
      return Error{ExitCode::kUsage, path.string() + ": found no kubeconfig in it"};
    }
    files.push_back(std::move(file));
  }
  return files;
}

// The entry `name` of the list (clusters), its member `kind` (cluster).
Result<Node> named(const std::vector<File>& files, const char* list, const char* kind,
                   const std::string& name) {
  for (const File& file : files) {
    const auto entries = file.document.tree.find(list);
    if (entries == file.document.tree.end() || !entries->is_array()) continue;
    for (std::size_t i = 0; i < entries->size(); ++i) {
      const Node entry(file, (*entries)[i], api::element_path(list, i));
      const auto own = entry.text("name");
      if (!own) return own.error();
      if (*own != name) continue;
      auto child = entry.child(kind);
      if (!child || !child->value().is_object()) {
        return entry.wrong(kind, fmt::format("expected the {}'s fields", kind));
      }
      return *std::move(child);
    }
  }
  return Error{ExitCode::kUsage, fmt::format("{}: found no entry named {} under {}",
                                             files.back().path.string(), name, list)};
}

Result<std::shared_ptr<Credentials>> plugin_of(const Node& user, const Node& exec,
                                               const ClusterConfig& config, const Node& cluster,
                                               const ConfigSources& sources) {
  ExecPlugin plugin;
  plugin.where = user.where("exec");
  const auto version = exec.text("apiVersion");
  if (!version) return version.error();
  if (*version != "client.authentication.k8s.io/v1" &&
      *version != "client.authentication.k8s.io/v1beta1") {
    return exec.wrong("apiVersion", "expected client.authentication.k8s.io/v1");
  }
  plugin.api_version = *version;
  const auto mode = exec.text("interactiveMode");
  if (!mode) return mode.error();
  if (*mode == "Always") {
    return exec.wrong("interactiveMode", "found Always; nobody is there whom it could ask");
  }
  const auto command = exec.text("command");
  if (!command) return command.error();
  if (command->empty()) return exec.wrong("command", "expected the program to run");
  auto program = find_program(*command, exec.folder(), sources.search_path, exec.where("command"));
  if (!program) {
    const auto hint = exec.text("installHint");
    if (hint && !hint->empty()) {
      return Error{ExitCode::kUsage, program.error().message + ". " + hint->substr(0, 500)};
    }
    return program.error();
  }
  plugin.program = std::move(program).value();
  if (const auto* arguments = exec.find("args")) {
    if (!arguments->is_array()) return exec.wrong("args", "expected a list of texts");
    for (const auto& one : *arguments) {
      if (!one.is_string()) return exec.wrong("args", "expected a list of texts");
      plugin.arguments.push_back(one.get<std::string>());
    }
  }
  if (const auto* variables = exec.find("env")) {
    if (!variables->is_array()) return exec.wrong("env", "expected a list of names and values");
    for (const auto& one : *variables) {
      if (!one.is_object() || !one.value("name", nlohmann::json()).is_string() ||
          !one.value("value", nlohmann::json()).is_string()) {
        return exec.wrong("env", "expected a list of names and values");
      }
      plugin.environment[one["name"]] = one["value"];
    }
  }
  const auto informed = exec.boolean("provideClusterInfo");
  if (!informed) return informed.error();
  if (*informed) {
    plugin.cluster = {{"server", config.server}};
    if (const auto* data = cluster.find("certificate-authority-data")) {
      plugin.cluster["certificate-authority-data"] = *data;
    }
  }
  return exec_credentials(std::move(plugin));
}

Result<std::shared_ptr<Credentials>> credentials_of(const Node& user, const ClusterConfig& config,
                                                    const Node& cluster,
                                                    const ConfigSources& sources) {
  for (const char* gone : {"username", "password", "auth-provider", "as", "as-groups"}) {
    if (user.find(gone)) {
      return user.wrong(gone, "is not supported; expected a token, a client certificate or exec");
    }
  }
  // kubectl's order: a token that stands there, a file, a plugin.
  auto token = user.text("token");
  if (!token) return token.error();
  if (!token->empty()) return static_token(std::move(token).value(), user.where("token"));
  const auto file = user.text("tokenFile");
  if (!file) return file.error();
  if (!file->empty()) return token_file(user.folder() / *file);
  if (const auto exec = user.child("exec")) {
    if (!exec->value().is_object()) return user.wrong("exec", "expected the plugin's fields");
    return plugin_of(user, *exec, config, cluster, sources);
  }
  return no_credentials();
}

// https://host[:port][/path]; plain http only to this machine, as `kubectl proxy` serves it.
Status check_server(const Node& cluster, const std::string& server) {
  const auto refuse = [&](std::string message) -> Status {
    return cluster.wrong("server", std::move(message));
  };
  const bool secure = server.starts_with("https://");
  if (!secure && !server.starts_with("http://")) return refuse("expected https://HOST:PORT");
  const std::string rest = server.substr(secure ? 8 : 7);
  const std::string host = rest.substr(0, rest.find_first_of(":/"));
  if (host.empty()) return refuse("expected https://HOST:PORT");
  if (host.starts_with('[')) {
    return refuse("found a literal IPv6 address, which cannot be reached; expected a name");
  }
  if (rest.find('@') != std::string::npos || rest.find_first_of("?# ") != std::string::npos) {
    return refuse("expected https://HOST:PORT without a user or a query");
  }
  if (!secure && host != "localhost" && host != "127.0.0.1") {
    return refuse("found http; expected https, since a token would travel in the open");
  }
  return {};
}

}  // namespace

Result<ClusterConfig> kubeconfig_config(const std::vector<fs::path>& paths,
                                        const ConfigSources& sources) {
  const auto files = read_files(paths);
  if (!files) return files.error();
  std::string context_name = sources.context;
  for (const File& file : *files) {
    if (!context_name.empty()) break;
    const auto current = Node(file, file.document.tree, "").text("current-context");
    if (!current) return current.error();
    context_name = *current;
  }
  if (context_name.empty()) {
    return Error{ExitCode::kUsage, paths.front().string() + ": found no current-context"};
  }
  const auto context = named(*files, "contexts", "context", context_name);
  if (!context) return context.error();
  const auto cluster_name = context->text("cluster");
  const auto user_name = context->text("user");
  const auto namespace_name = context->text("namespace");
  if (!cluster_name) return cluster_name.error();
  if (!user_name) return user_name.error();
  if (!namespace_name) return namespace_name.error();
  const auto cluster = named(*files, "clusters", "cluster", *cluster_name);
  if (!cluster) return cluster.error();

  ClusterConfig config;
  config.source = fmt::format("context {} of {}", context_name, context->file().string());
  if (!namespace_name->empty()) config.default_namespace = *namespace_name;
  auto server = cluster->text("server");
  if (!server) return server.error();
  config.server = std::move(server).value();
  while (config.server.ends_with('/')) config.server.pop_back();
  if (const Status fit = check_server(*cluster, config.server); !fit) return fit.error();
  if (cluster->find("proxy-url")) return cluster->wrong("proxy-url", "is not supported");
  auto authorities = cluster->pem("certificate-authority", "certificate-authority-data");
  if (!authorities) return authorities.error();
  config.tls.authorities = std::move(authorities).value();
  auto server_name = cluster->text("tls-server-name");
  if (!server_name) return server_name.error();
  config.tls.server_name = std::move(server_name).value();
  const auto insecure = cluster->boolean("insecure-skip-tls-verify");
  if (!insecure) return insecure.error();
  if (*insecure && !sources.allow_insecure) {
    return cluster->wrong("insecure-skip-tls-verify",
                          "found true: anybody could answer in the API server's name; expected "
                          "certificate-authority, or leave to be insecure on the command line");
  }
  config.tls.verify = !*insecure;

  config.credentials = no_credentials();
  if (user_name->empty()) return config;
  const auto user = named(*files, "users", "user", *user_name);
  if (!user) return user.error();
  auto certificate = user->pem("client-certificate", "client-certificate-data");
  if (!certificate) return certificate.error();
  auto key = user->pem("client-key", "client-key-data");
  if (!key) return key.error();
  if (certificate->empty() != key->empty()) {
    return user->wrong(key->empty() ? "client-key" : "client-certificate",
                       "expected both a client certificate and its key");
  }
  config.tls.certificate = std::move(certificate).value();
  config.tls.key = std::move(key).value();
  auto credentials = credentials_of(*user, config, *cluster, sources);
  if (!credentials) return credentials.error();
  config.credentials = std::move(credentials).value();
  return config;
}

}  // namespace tilewright::kube
