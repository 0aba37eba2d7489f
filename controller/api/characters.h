// Classes of ASCII characters, whatever the locale.
#pragma once

namespace tilewright::api {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
inline bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }

}  // namespace tilewright::api
