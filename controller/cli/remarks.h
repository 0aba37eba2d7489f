// Findings about a manifest that do not make it invalid.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/field_error.h"

namespace tilewright {

// One line each: the sentence with FILE:LINE, and the remark in parentheses.
void print_remarks(std::ostream& err, const std::vector<FieldError>& findings,
                   const std::string& file, std::string_view remark);
void print_warnings(std::ostream& err, const std::vector<FieldError>& warnings,
                    const std::string& file);

}  // namespace tilewright
