// The program tilewright-worker: trainer, agent and benchmarks.
#include "common/base/standard_descriptors.h"
#include "common/cli/command_line.h"
#include "common/process/signals.h"
#include "worker/cli/commands.h"

int main(int argc, char** argv) {
  tilewright::open_standard_descriptors();
  tilewright::ignore_file_size_signal();
  return tilewright::finish_output("tilewright-worker", tilewright::cli::run_worker(argc, argv));
}
