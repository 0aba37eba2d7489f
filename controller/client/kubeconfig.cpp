#include "controller/client/kubeconfig.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/base64.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/json/document.h"
#include "common/json/members.h"
#include "controller/client/exec_plugin.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;

// Tools that add a context for each cluster write files of several MB.
constexpr std::size_t kMaxKubeconfigBytes = 16 * kMaxManifestBytes;

struct KubeconfigFile {
  fs::path path;
  Document document;
};

// A YAML value with its file and path. Errors name file, line and field but never the value, which
// may be a secret.
class YamlNode {
 public:
  YamlNode(const KubeconfigFile& file, const nlohmann::json& value, std::string path)
      : file_(&file), value_(&value), path_(std::move(path)) {}

  Error field_error(const char* member, std::string message) const {
    const std::string path = member_path(path_, member);
    return {ExitCode::kUsage,
            FieldError{path, file_->document.positions.line_of(path), std::move(message)}.sentence(
                file_->path.string())};
  }
  Error field_error(std::string message) const {
    return {
        ExitCode::kUsage,
        FieldError{path_, file_->document.positions.line_of(path_), std::move(message)}.sentence(
            file_->path.string())};
  }
  std::string where(const char* member) const {
    std::string sentence = field_error(member, "").message;
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
  std::optional<YamlNode> child(const char* member) const {
    const auto* found = find(member);
    if (found == nullptr) return std::nullopt;
    return YamlNode(*file_, *found, member_path(path_, member));
  }
  // Empty if absent.
  Result<std::string> string(const char* member) const {
    const auto* found = find(member);
    if (found == nullptr) return std::string();
    if (!found->is_string())
      return field_error(member, "expected a string (quote it if it looks like a number)");
    return found->get<std::string>();
  }
  Result<bool> boolean(const char* member) const {
    const auto* found = find(member);
    if (found == nullptr) return false;
    if (!found->is_boolean()) return field_error(member, "expected true or false");
    return found->get<bool>();
  }
  // Inline base64 (NAME-data), or else a file, whose path is relative to the kubeconfig.
  Result<PemSource> pem(const char* member, const char* data_member) const {
    PemSource source;
    const auto data = string(data_member);
    if (!data) return data.error();
    if (!data->empty()) {
      auto decoded = decode_base64(*data);
      if (!decoded) return field_error(data_member, "expected base64");
      source.text = std::move(*decoded);
      return source;
    }
    const auto path = string(member);
    if (!path) return path.error();
    if (!path->empty()) source.file = (directory() / *path).string();
    return source;
  }
  fs::path directory() const { return file_->path.parent_path(); }
  const fs::path& file() const { return file_->path; }
  const nlohmann::json& value() const { return *value_; }

 private:
  const KubeconfigFile* file_;
  const nlohmann::json* value_;
  std::string path_;
};

// Whether the file has nothing but comments, as a new file in $KUBECONFIG.
bool is_empty(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::size_t start = line.find_first_not_of(" \t\r");
    if (start != std::string_view::npos && line[start] != '#' && line.substr(start) != "---") {
      return false;
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return true;
}

Result<std::vector<KubeconfigFile>> read_files(const std::vector<fs::path>& paths) {
  std::vector<KubeconfigFile> files;
  for (const fs::path& path : paths) {
    const auto text = read_file(path, kMaxKubeconfigBytes, ExitCode::kUsage);
    if (!text) return text.error();
    if (is_empty(*text)) {
      files.push_back({fs::absolute(path), {nlohmann::json::object(), {}, {}}});
      continue;
    }
    KubeconfigFile file{fs::absolute(path), read_yaml(*text, kMaxKubeconfigBytes)};
    if (!file.document.errors.empty()) {
      return Error{ExitCode::kUsage, file.document.errors.front().sentence(path.string())};
    }
    if (!file.document.tree.is_object()) {
      return Error{ExitCode::kUsage, path.string() + ": is not a kubeconfig"};
    }
    files.push_back(std::move(file));
  }
  return files;
}

// The member `kind` (cluster) of the entry `name` in the list `list` (clusters).
Result<YamlNode> find_entry(const std::vector<KubeconfigFile>& files, const char* list,
                            const char* kind, const std::string& name) {
  for (const KubeconfigFile& file : files) {
    const auto entries = file.document.tree.find(list);
    if (entries == file.document.tree.end() || !entries->is_array()) continue;
    for (std::size_t i = 0; i < entries->size(); ++i) {
      const YamlNode entry(file, (*entries)[i], element_path(list, i));
      const auto entry_name = entry.string("name");
      if (!entry_name) return entry_name.error();
      if (*entry_name != name) continue;
      auto child = entry.child(kind);
      if (!child || !child->value().is_object()) {
        return entry.field_error(kind, fmt::format("expected the fields of the {}", kind));
      }
      return *std::move(child);
    }
  }
  return Error{ExitCode::kUsage, fmt::format("{}: found no entry named {} under {}",
                                             files.back().path.string(), name, list)};
}

// What a plugin with provideClusterInfo is told, as client-go tells it: spec.cluster of the
// ExecCredential.
Result<nlohmann::json> describe_cluster(const ClusterConfig& config, const YamlNode& cluster) {
  constexpr const char* kPluginExtension = "client.authentication.k8s.io/exec";
  nlohmann::json described = {{"server", config.server}};
  const auto authorities = read_pem(config.tls.authorities);
  if (!authorities) return authorities.error();
  if (!authorities->empty()) {
    described["certificate-authority-data"] = encode_base64(*authorities);
  }
  if (!config.tls.server_name.empty()) described["tls-server-name"] = config.tls.server_name;
  if (!config.tls.verify) described["insecure-skip-tls-verify"] = true;
  if (const auto* extensions = cluster.find("extensions")) {
    for (const auto& entry : *extensions) {
      if (string_member(entry, "name") == kPluginExtension) {
        described["config"] = member(entry, "extension");
      }
    }
  }
  return described;
}

Result<std::string> plugin_api_version(const YamlNode& exec) {
  auto version = exec.string("apiVersion");
  if (!version) return version.error();
  if (*version != "client.authentication.k8s.io/v1" &&
      *version != "client.authentication.k8s.io/v1beta1") {
    return exec.field_error("apiVersion", "expected client.authentication.k8s.io/v1");
  }
  return version;
}

Status check_interactive_mode(const YamlNode& exec) {
  const auto mode = exec.string("interactiveMode");
  if (!mode) return mode.error();
  if (*mode != "Always") return {};
  return exec.field_error(
      "interactiveMode",
      "found Always, expected Never or IfAvailable: plugins run without a terminal");
}

Result<fs::path> find_plugin_program(const YamlNode& exec, const std::string& search_path) {
  const auto command = exec.string("command");
  if (!command) return command.error();
  if (command->empty()) return exec.field_error("command", "expected the command to run");
  auto program = resolve_command(*command, exec.directory(), search_path, exec.where("command"));
  if (program) return program;
  const auto hint = exec.string("installHint");
  if (!hint || hint->empty()) return program.error();
  return Error{ExitCode::kUsage,
               program.error().message + ". " + printable(*hint, Lines::kSeveral)};
}

Result<std::vector<std::string>> plugin_arguments(const YamlNode& exec) {
  std::vector<std::string> arguments;
  const auto* list = exec.find("args");
  if (list == nullptr) return arguments;
  const auto invalid = [&] { return exec.field_error("args", "expected a list of strings"); };
  if (!list->is_array()) return invalid();
  for (const auto& one : *list) {
    if (!one.is_string()) return invalid();
    arguments.push_back(one.get<std::string>());
  }
  return arguments;
}

Result<std::map<std::string, std::string>> plugin_environment(const YamlNode& exec) {
  std::map<std::string, std::string> environment;
  const auto* list = exec.find("env");
  if (list == nullptr) return environment;
  const auto invalid = [&] {
    return exec.field_error("env", "expected a list of names and values");
  };
  if (!list->is_array()) return invalid();
  for (const auto& one : *list) {
    if (!one.is_object() || !one.value("name", nlohmann::json()).is_string() ||
        !one.value("value", nlohmann::json()).is_string()) {
      return invalid();
    }
    environment[one["name"]] = one["value"];
  }
  return environment;
}

Result<std::shared_ptr<Credentials>> make_plugin_credentials(const YamlNode& user,
                                                             const YamlNode& exec,
                                                             const ClusterConfig& config,
                                                             const YamlNode& cluster,
                                                             const ConfigSources& sources) {
  ExecPlugin plugin;
  plugin.where = user.where("exec");
  auto version = plugin_api_version(exec);
  if (!version) return version.error();
  plugin.api_version = std::move(version).value();
  if (const Status mode = check_interactive_mode(exec); !mode) return mode.error();
  auto program = find_plugin_program(exec, sources.search_path);
  if (!program) return program.error();
  plugin.program = std::move(program).value();
  auto arguments = plugin_arguments(exec);
  if (!arguments) return arguments.error();
  plugin.arguments = std::move(arguments).value();
  auto environment = plugin_environment(exec);
  if (!environment) return environment.error();
  plugin.environment = std::move(environment).value();
  const auto provide_cluster_info = exec.boolean("provideClusterInfo");
  if (!provide_cluster_info) return provide_cluster_info.error();
  if (*provide_cluster_info) {
    auto described = describe_cluster(config, cluster);
    if (!described) return described.error();
    plugin.cluster = std::move(described).value();
  }
  return exec_credentials(std::move(plugin));
}

Result<std::shared_ptr<Credentials>> make_credentials(const YamlNode& user,
                                                      const ClusterConfig& config,
                                                      const YamlNode& cluster,
                                                      const ConfigSources& sources) {
  for (const char* unsupported : {"username", "password", "auth-provider", "as", "as-groups"}) {
    if (user.find(unsupported)) {
      return user.field_error(unsupported,
                              "is not supported; expected a token, a client certificate or exec");
    }
  }
  // Same order as kubectl: tokenFile, or else token if the file cannot be read; exec.
  auto token = user.string("token");
  if (!token) return token.error();
  const auto file = user.string("tokenFile");
  if (!file) return file.error();
  if (!file->empty()) {
    auto credentials = token_file(user.directory() / *file);
    if (credentials || token->empty()) return credentials;
  }
  if (!token->empty()) return static_token(std::move(token).value(), user.where("token"));
  if (const auto exec = user.child("exec")) {
    if (!exec->value().is_object())
      return user.field_error("exec", "expected the fields of an exec plugin");
    return make_plugin_credentials(user, *exec, config, cluster, sources);
  }
  return no_credentials();
}

// Accepts https://host[:port][/path]. Plain http is allowed for localhost only (`kubectl proxy`).
Status check_server(const YamlNode& cluster, const std::string& server) {
  const auto invalid = [&](std::string message) -> Status {
    return cluster.field_error("server", std::move(message));
  };
  const bool secure = server.starts_with("https://");
  if (!secure && !server.starts_with("http://")) return invalid("expected https://HOST:PORT");
  const std::string rest = server.substr(secure ? 8 : 7);
  const std::string host = rest.substr(0, rest.find_first_of(":/"));
  if (host.empty()) return invalid("expected https://HOST:PORT");
  if (host.starts_with('[')) {
    return invalid("found a literal IPv6 address, which is not supported; expected a host name");
  }
  if (rest.find('@') != std::string::npos || rest.find_first_of("?# ") != std::string::npos) {
    return invalid("expected https://HOST:PORT without a user or a query");
  }
  if (!secure && host != "localhost" && host != "127.0.0.1") {
    return invalid("found http, expected https: http sends the token unencrypted");
  }
  return {};
}

// --context, or else current-context of the first file that has one.
Result<std::string> find_context_name(const std::vector<KubeconfigFile>& files,
                                      const fs::path& first_path, const ConfigSources& sources) {
  if (!sources.context.empty()) return sources.context;
  for (const KubeconfigFile& file : files) {
    auto current = YamlNode(file, file.document.tree, "").string("current-context");
    if (!current || !current->empty()) return current;
  }
  return Error{ExitCode::kUsage, first_path.string() + ": found no current-context"};
}

// Sets the server of `config` and how its certificate is verified.
Status read_cluster(const YamlNode& cluster, const ConfigSources& sources, ClusterConfig& config) {
  auto server = cluster.string("server");
  if (!server) return server.error();
  config.server = std::move(server).value();
  while (config.server.ends_with('/')) config.server.pop_back();
  if (Status fit = check_server(cluster, config.server); !fit) return fit;
  if (cluster.find("proxy-url")) return cluster.field_error("proxy-url", "is not supported");
  auto authorities = cluster.pem("certificate-authority", "certificate-authority-data");
  if (!authorities) return authorities.error();
  config.tls.authorities = std::move(authorities).value();
  auto server_name = cluster.string("tls-server-name");
  if (!server_name) return server_name.error();
  config.tls.server_name = std::move(server_name).value();
  const auto insecure = cluster.boolean("insecure-skip-tls-verify");
  if (!insecure) return insecure.error();
  if (*insecure && !sources.allow_insecure) {
    return cluster.field_error(
        "insecure-skip-tls-verify",
        "found true, which does not verify the API server's certificate; expected "
        "certificate-authority, or --allow_insecure on the command line");
  }
  config.tls.verify = !*insecure;
  return {};
}

// Sets the client certificate and the credentials of `config`. Call it after read_cluster(): a
// plugin is told the cluster.
Status read_user(const YamlNode& user, const YamlNode& cluster, const ConfigSources& sources,
                 ClusterConfig& config) {
  auto certificate = user.pem("client-certificate", "client-certificate-data");
  if (!certificate) return certificate.error();
  auto key = user.pem("client-key", "client-key-data");
  if (!key) return key.error();
  if (certificate->empty() != key->empty()) {
    return user.field_error(key->empty() ? "client-key" : "client-certificate",
                            "expected both a client certificate and its key");
  }
  config.tls.certificate = std::move(certificate).value();
  config.tls.key = std::move(key).value();
  auto credentials = make_credentials(user, config, cluster, sources);
  if (!credentials) return credentials.error();
  config.credentials = std::move(credentials).value();
  return {};
}

}  // namespace

Result<ClusterConfig> config_from_kubeconfig(const std::vector<fs::path>& paths,
                                             const ConfigSources& sources) {
  const auto files = read_files(paths);
  if (!files) return files.error();
  const auto context_name = find_context_name(*files, paths.front(), sources);
  if (!context_name) return context_name.error();
  const auto context = find_entry(*files, "contexts", "context", *context_name);
  if (!context) return context.error();
  const auto cluster_name = context->string("cluster");
  const auto user_name = context->string("user");
  const auto namespace_name = context->string("namespace");
  if (!cluster_name) return cluster_name.error();
  if (!user_name) return user_name.error();
  if (!namespace_name) return namespace_name.error();

  ClusterConfig config;
  config.source = fmt::format("context {} of {}", *context_name, context->file().string());
  if (!namespace_name->empty()) config.default_namespace = *namespace_name;
  config.credentials = no_credentials();
  const auto cluster = find_entry(*files, "clusters", "cluster", *cluster_name);
  if (!cluster) return cluster.error();
  if (const Status read = read_cluster(*cluster, sources, config); !read) return read.error();
  if (user_name->empty()) return config;
  const auto user = find_entry(*files, "users", "user", *user_name);
  if (!user) return user.error();
  if (const Status read = read_user(*user, *cluster, sources, config); !read) return read.error();
  return config;
}

}  // namespace tilewright::kube
