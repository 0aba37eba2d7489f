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

// $(NAME) becomes the value of NAME, and stays as written if there is none; $$ becomes $, so
// $$(NAME) becomes $(NAME); any other $ stays. Values are not expanded again.
std::string expand(std::string_view text, const Environment& variables);

// The names that `text` refers to and `variables` lacks.
std::vector<std::string> unknown_references(std::string_view text, const Environment& variables);

// Names and values in order: a value sees the variables before it, and those in `around`.
// Later ones of the same name win. The outcome holds the list's variables only.
Environment expand_environment(const std::vector<std::pair<std::string, std::string>>& list,
                               const Environment& around = {});

}  // namespace tilewright::api
