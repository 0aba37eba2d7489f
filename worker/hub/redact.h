// Removes secrets from what messages quote.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tilewright::hub {

// In place of a secret.
inline constexpr std::string_view kRedacted = "***";

// `text` with kRedacted in place of each of `secrets`; empty ones are ignored.
std::string redact(std::string text, std::span<const std::string> secrets);

// What stands between the scheme and the last @ of a URL, with a password or without; empty if
// nothing does. `url` need not be valid, and the scheme may be missing.
std::string_view credentials(std::string_view url);

// A URL with kRedacted in place of its credentials and of its query.
std::string redact_url(std::string_view url);

}  // namespace tilewright::hub
