// Standard input, output and error of a program that was started with one of them closed, as by
// `2>&-` or by a service manager.
#pragma once

namespace tilewright {

// At the start of a program, before it opens anything: opens /dev/null for each of the descriptors
// 0, 1 and 2 that is closed. Otherwise the next open file, socket or eventfd would get its number,
// and the program's output would be written into it.
void open_standard_descriptors();

}  // namespace tilewright
