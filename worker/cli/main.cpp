// The program tilewright-worker: trainer, agent and benchmarks.
#include "common/cli/command_line.h"
#include "worker/cli/commands.h"

int main(int argc, char** argv) {
  return tilewright::finish_output("tilewright-worker", tilewright::cli::run_worker(argc, argv));
}
