#include "controller/api/findings.h"

namespace tilewright::api {

void Findings::append(Findings other) {
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
  warnings.insert(warnings.end(), other.warnings.begin(), other.warnings.end());
}

}  // namespace tilewright::api
