#include "controller/cli/remarks.h"

#include <fmt/format.h>

namespace tilewright {

void print_remarks(std::ostream& err, const std::vector<FieldError>& findings,
                   const std::string& file, std::string_view remark) {
  for (const FieldError& finding : findings) {
    err << fmt::format("{} ({})\n", finding.sentence(file), remark);
  }
}

void print_warnings(std::ostream& err, const std::vector<FieldError>& warnings,
                    const std::string& file) {
  print_remarks(err, warnings, file, "warning");
}

}  // namespace tilewright
