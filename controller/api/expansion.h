// $(VAR) and $$ in args and env, exactly as Kubernetes expands them
// (kubernetes.io: "Define Dependent Environment Variables").
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::api {

using Environment = std::map<std::string, std::string, std::less<>>;

// Replaces $(NAME) by the value of NAME, and $$ by $, so $$(NAME) becomes $(NAME). References to
// unknown names and any other $ stay unchanged. Values are not expanded again.
std::string expand(std::string_view text, const Environment& variables);

// The names that `text` refers to and that are not in `variables`.
std::vector<std::string> unknown_references(std::string_view text, const Environment& variables);

// Expands the values of `list` in order. A value can refer to earlier variables and to those of
// `outer`. A later variable replaces an earlier one of the same name. The result excludes `outer`.
Environment expand_environment(const std::vector<std::pair<std::string, std::string>>& list,
                               const Environment& outer = {});

}  // namespace tilewright::api
