// The program tilewright-worker: trainer, agent and benchmarks.
#include "worker/cli/commands.h"

int main(int argc, char** argv) { return tilewright::cli::run_worker(argc, argv); }
