// The program `tilewright`: the operator and the command-line tool.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/base/commit.h"
#include "common/base/exit_codes.h"
#include "common/base/standard_descriptors.h"
#include "common/base/version.h"
#include "common/cli/command_line.h"
#include "common/contract/reference.h"
#include "common/process/signals.h"
#include "controller/cli/controller.h"
#include "controller/cli/convert.h"
#include "controller/cli/crd.h"
#include "controller/cli/render.h"
#include "controller/cli/up.h"
#include "controller/cli/validate.h"
#include "controller/cli/worker_commands.h"

int main(int argc, char** argv) {
  tilewright::open_standard_descriptors();
  tilewright::ignore_file_size_signal();
  CLI::App app(
      "Fine-tunes BERT-family models on CPUs: on this machine, or in a Kubernetes cluster.",
      "tilewright");
  app.set_version_flag(
      "--version", fmt::format("tilewright {} ({})", tilewright::kVersion, tilewright::kCommit));
  app.require_subcommand(1);
  int exit_code = static_cast<int>(tilewright::ExitCode::kOk);
  tilewright::add_up_command(app, exit_code);
  tilewright::add_validate_command(app, exit_code);
  tilewright::add_convert_command(app, exit_code);
  tilewright::add_render_command(app, exit_code);
  tilewright::add_controller_command(app, exit_code);
  tilewright::add_crd_command(app);
  tilewright::add_worker_commands(app, exit_code);
  // For `make docs`; an empty group hides it from --help.
  app.add_subcommand("reference", "Print docs/reference.md")->group("")->callback([] {
    std::fputs(tilewright::reference_page().c_str(), stdout);
  });
  exit_code = tilewright::parse_command_line(app, argc, argv).value_or(exit_code);
  return tilewright::finish_output("tilewright", exit_code);
}
