// Finds misspelt environment variables.
#pragma once

#include <string>
#include <vector>

namespace tilewright {

// Returns a sentence for each variable of `environment` (NULL-terminated, NAME=value, as environ)
// whose name starts with TILEWRIGHT_ and is not in environment.h. Ignores the variables that
// Kubernetes sets for a Service whose name starts with "tilewright".
std::vector<std::string> describe_unknown_variables(const char* const* environment);

}  // namespace tilewright
