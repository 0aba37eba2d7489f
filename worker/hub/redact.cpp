#include "worker/hub/redact.h"

namespace tilewright::hub {

std::string redact(std::string text, std::span<const std::string> secrets) {
  for (const std::string& secret : secrets) {
    if (secret.empty()) continue;
    for (std::size_t at = 0; (at = text.find(secret, at)) != std::string::npos;
         at += kRedacted.size()) {
      text.replace(at, secret.size(), kRedacted);
    }
  }
  return text;
}

std::string_view credentials(std::string_view url) {
  constexpr std::string_view kSchemeEnd = "://";
  const std::size_t scheme = url.find(kSchemeEnd);
  const std::size_t begin = scheme == std::string_view::npos ? 0 : scheme + kSchemeEnd.size();
  const std::size_t end = url.rfind('@');
  if (end == std::string_view::npos || end < begin) return {};
  return url.substr(begin, end - begin);
}

std::string redact_url(std::string_view url) {
  const std::string_view secret = credentials(url);
  std::string text(url);
  if (!secret.empty()) {
    text.replace(static_cast<std::size_t>(secret.data() - url.data()), secret.size(), kRedacted);
  }
  if (const std::size_t query = text.find('?'); query != std::string::npos) {
    text.replace(query + 1, std::string::npos, kRedacted);
  }
  return text;
}

}  // namespace tilewright::hub
