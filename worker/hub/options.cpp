#include "worker/hub/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/contract/environment.h"
#include "worker/hub/http.h"
#include "worker/hub/redact.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTokenFileBytes = 64 << 10;

// The values that huggingface_hub takes for true.
bool is_true(std::string value) {
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string first_set(const GetVariable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty()) return value;
  }
  return {};
}

// Replaces a leading ~ and $NAME or ${NAME} as huggingface_hub does. An unknown name stays.
fs::path expand(const std::string& value, const GetVariable& variable) {
  const std::string path = expand_home(value, variable);
  std::string expanded;
  for (std::size_t i = 0; i < path.size();) {
    const std::size_t begin = i + (path.compare(i, 2, "${") == 0 ? 2 : 1);
    std::size_t end = begin;
    while (end < path.size() &&
           (std::isalnum(static_cast<unsigned char>(path[end])) != 0 || path[end] == '_')) {
      ++end;
    }
    const bool braced = begin == i + 2;
    const bool closed = !braced || (end < path.size() && path[end] == '}');
    const std::string found = path[i] == '$' && end > begin && closed
                                  ? variable(path.substr(begin, end - begin).c_str())
                                  : "";
    if (found.empty()) {
      expanded += path[i++];
    } else {
      expanded += found;
      i = end + (braced ? 1 : 0);
    }
  }
  return expanded;
}

std::string stripped(std::string text) {
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(std::find_if_not(text.rbegin(), text.rend(), space).base(), text.end());
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
  return text;
}

std::string checked_token(const std::string& token, const std::string& source) {
  const bool printable = std::ranges::all_of(token, [](char c) { return c > ' ' && c < 0x7f; });
  if (!printable) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("{}: found a token with a space, a control character or a character "
                              "outside ASCII, expected printable ASCII",
                              source));
  }
  return token;
}

// Sets `problem` if a file has the token and cannot be read.
std::string read_token(const GetVariable& variable, const fs::path& home, std::string& problem) {
  if (is_true(variable(env::kHfHubDisableImplicitToken))) return {};
  for (const char* name : {env::kHfToken, env::kHuggingFaceHubToken}) {
    if (const std::string token = stripped(variable(name)); !token.empty()) {
      return checked_token(token, name);
    }
  }
  const std::string named = variable(env::kHfTokenPath);
  const fs::path path = named.empty() ? home / "token" : expand(named, variable);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const Result<std::string> text = read_file(path, kMaxTokenFileBytes, ExitCode::kUsage);
  if (text.ok()) return checked_token(stripped(text.value()), path.string());
  problem = text.error().message;
  return {};
}

std::string checked_endpoint(std::string endpoint) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool clean = std::ranges::all_of(
      endpoint, [](char c) { return c > ' ' && c < 0x7f && c != '?' && c != '#' && c != '@'; });
  if (!clean || !(endpoint.starts_with("https://") || endpoint.starts_with("http://")) ||
      origin_of(endpoint).empty()) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("HF_ENDPOINT: found {}, expected a URL such as "
                              "https://huggingface.co, without user, password and query",
                              quoted_excerpt(redact_url(endpoint))));
  }
  return endpoint;
}

}  // namespace

HubOptions options_from_environment(const GetVariable& variable, const std::string& cache_dir,
                                    const std::string& token) {
  HubOptions options;
  if (const std::string endpoint = variable(env::kHfEndpoint); !endpoint.empty()) {
    options.endpoint = checked_endpoint(endpoint);
  }
  const std::string named_home = variable(env::kHfHome);
  const std::string xdg = variable(env::kXdgCacheHome);
  const fs::path home = named_home.empty()
                            ? expand(xdg.empty() ? "~/.cache" : xdg, variable) / "huggingface"
                            : expand(named_home, variable);
  const std::string hub_cache =
      cache_dir.empty() ? first_set(variable, {env::kHfHubCache, env::kHuggingfaceHubCache})
                        : cache_dir;
  options.cache_dir = hub_cache.empty() ? home / "hub" : expand(hub_cache, variable);
  if (cache_dir.empty()) {
    options.transformers_cache = expand(variable(env::kTransformersCache), variable);
  }
  const std::string datasets = cache_dir.empty() ? variable(env::kHfDatasetsCache) : cache_dir;
  options.datasets_cache = datasets.empty() ? home / "datasets" : expand(datasets, variable);
  options.token = token.empty() ? read_token(variable, home, options.token_problem)
                                : checked_token(token, "--token");
  options.offline = is_true(first_set(variable, {env::kHfHubOffline, env::kTransformersOffline}));
  const std::string datasets_offline = variable(env::kHfDatasetsOffline);
  options.datasets_offline = datasets_offline.empty() ? options.offline : is_true(datasets_offline);
  const fs::path bundle =
      expand(first_set(variable, {env::kRequestsCaBundle, env::kCurlCaBundle}), variable);
  std::error_code ignored;
  if (fs::is_directory(bundle, ignored)) {
    options.ca_directory = bundle;
  } else {
    options.ca_file = bundle.empty() ? expand(variable(env::kSslCertFile), variable) : bundle;
    options.ca_directory = expand(variable(env::kSslCertDir), variable);
  }
  return options;
}

}  // namespace tilewright::hub
