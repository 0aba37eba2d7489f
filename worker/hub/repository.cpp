#include "worker/hub/repository.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "common/contract/repository_id.h"

namespace tilewright::hub {
namespace {

constexpr std::size_t kMaxFileNameBytes = 512;
constexpr std::size_t kMaxPartBytes = 255;  // of a file name in a file system
constexpr std::size_t kMaxEtagBytes = 128;

bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; }
bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// Percent-encodes all but unreserved characters (RFC 3986, section 2.3) and, if `keep_slash`, '/'.
std::string percent_encoded(std::string_view text, bool keep_slash) {
  std::string encoded;
  for (const char c : text) {
    if (is_word(c) || c == '~' || (keep_slash && c == '/')) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string_view type_path(RepositoryType type) {
  return type == RepositoryType::kModel ? "models" : "datasets";
}

}  // namespace

std::string Repository::description() const {
  return fmt::format("{} {}", type == RepositoryType::kModel ? "model" : "data set", id);
}

std::string Repository::folder() const {
  std::string name = fmt::format("{}--{}", type_path(type), id);
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) {
    name.replace(slash, 1, "--");
  }
  return name;
}

std::string Repository::file_path(std::string_view revision, std::string_view file) const {
  return fmt::format("/{}{}/resolve/{}/{}", type == RepositoryType::kModel ? "" : "datasets/", id,
                     percent_encoded(revision, false), percent_encoded(file, true));
}

std::string Repository::api_path(std::string_view revision) const {
  return fmt::format("/api/{}/{}/revision/{}", type_path(type), id,
                     percent_encoded(revision, false));
}

void check_request(const Repository& repository, const std::string& revision,
                   std::string_view expected) {
  if (!is_repository_id(repository.id)) {
    std::error_code ignored;
    const bool exists = std::filesystem::exists(repository.id, ignored);
    throw Failure(repository.code(),
                  fmt::format("{}: {}, expected {}", repository.id,
                              exists ? "is not a directory" : "no such directory", expected));
  }
  if (is_file_name(revision)) return;
  throw Failure(ExitCode::kUsage,
                fmt::format("{}: found the revision \"{}\", expected a branch, a tag or a commit",
                            repository.description(), revision));
}

bool is_file_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxFileNameBytes) return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPartBytes) return false;
    begin = end + 1;
  }
  return std::ranges::none_of(name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == '"';
  });
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, is_hex);
}

bool is_etag(std::string_view etag) {
  return !etag.empty() && etag.size() <= kMaxEtagBytes && etag.front() != '.' &&
         std::ranges::all_of(etag, is_word);
}

}  // namespace tilewright::hub
