// The reference page of the documentation, generated from the tables of this module.
#pragma once

#include <string>

namespace tilewright {

// docs/reference.md: environment variables, ports, labels, annotations, exit codes and training
// flags, as Markdown. `make docs` writes it; a unit test fails if the committed file differs.
std::string reference_page();

}  // namespace tilewright
