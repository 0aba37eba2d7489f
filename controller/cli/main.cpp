// tilewright: the operator and the user's tool.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "common/base/commit.h"
#include "common/base/exit_codes.h"
#include "common/base/version.h"
#include "controller/cli/controller.h"
#include "controller/cli/render.h"
#include "controller/cli/up.h"
#include "controller/cli/validate.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Fine-tunes BERT-family models on CPUs: on this machine, or in a Kubernetes cluster.",
      "tilewright");
  app.set_version_flag(
      "--version", fmt::format("tilewright {} ({})", tilewright::kVersion, tilewright::kCommit));
  app.require_subcommand(1);
  int exit_code = static_cast<int>(tilewright::ExitCode::kOk);
  tilewright::add_up_command(app, exit_code);
  tilewright::add_validate_command(app, exit_code);
  tilewright::add_render_command(app, exit_code);
  tilewright::add_controller_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked = app.exit(error) == static_cast<int>(CLI::ExitCodes::Success);
    return static_cast<int>(asked ? tilewright::ExitCode::kOk : tilewright::ExitCode::kUsage);
  }
  return exit_code;
}
