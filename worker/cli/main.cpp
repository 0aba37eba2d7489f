// tilewright-worker: the native trainer and what runs beside the data.
#include "worker/cli/commands.h"

int main(int argc, char** argv) { return tilewright::cli::run_worker(argc, argv); }
