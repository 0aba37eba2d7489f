// $(VAR) and $$ in args and env, exactly as Kubernetes expands them
// (kubernetes.io: "Define Dependent Environment Variables").
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::api {

using Environment = std::map<std::string, std::string, std::less<>>;

// The longest argument and the longest variable of a process, NAME= included (Linux'
// MAX_ARG_STRLEN), minus a margin for the name. Variables that refer to each other can double in
// length with each line of a manifest.
inline constexpr std::size_t kMaxExpandedBytes = 127 << 10;
// Of all variables of a process together; Linux' limit is 2 MiB with the arguments.
inline constexpr std::size_t kMaxEnvironmentBytes = 1 << 20;

// Replaces $(NAME) by the value of NAME, and $$ by $, so $$(NAME) becomes $(NAME). References to
// unknown names and any other $ stay unchanged. Values are not expanded again. A result of more
// than kMaxExpandedBytes is cut to one byte more than that; validate() refuses it.
std::string expand(std::string_view text, const Environment& variables);

// As expand(), for a text that is expanded again later: $$ stays, and the values are such texts
// too.
std::string expand_known(std::string_view text, const Environment& variables);

// The names that `text` refers to and that are not in `variables`.
std::vector<std::string> unknown_references(std::string_view text, const Environment& variables);

// Expands the values of `list` in order. A value can refer to earlier variables and to those of
// `outer`. A later variable replaces an earlier one of the same name. The result excludes `outer`.
Environment expand_environment(const std::vector<std::pair<std::string, std::string>>& list,
                               const Environment& outer = {});

}  // namespace tilewright::api
