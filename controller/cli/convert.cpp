#include "controller/cli/convert.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "common/base/files.h"
#include "common/contract/labels.h"
#include "common/json/document.h"
#include "common/json/members.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/documents.h"
#include "controller/api/validate.h"
#include "controller/cli/manifest.h"
#include "controller/cli/remarks.h"
#include "controller/convert/convert.h"

namespace tilewright {
namespace {

struct ConvertOptions {
  std::filesystem::path file;
  std::filesystem::path output;
};

// `file` as messages name it, `argument` as the comment of the result names the command's. Prints
// to `err` that the trained model is lost: the comments of the manifest are easily overlooked.
Result<std::string> convert_document(Document document, const std::string& file,
                                     const std::string& argument, std::ostream& err) {
  const auto refuse = [&](const std::vector<FieldError>& errors) {
    return Error{ExitCode::kManifest, sentences(errors, file)};
  };
  const api::DecodedPyTorchJob decoded = api::decode_pytorchjob_document(std::move(document));
  if (!decoded.ok()) return refuse(decoded.errors);
  api::PyTorchJob job = decoded.job;
  api::apply_defaults(job);
  const api::Findings findings = api::validate(job, decoded.positions);
  if (!findings.ok()) return refuse(findings.errors);
  const convert::Conversion conversion = convert::convert(decoded.job, decoded.positions);
  if (!conversion.ok()) return refuse(conversion.errors);
  for (const convert::Note& note : conversion.notes) {
    if (note.loses_output) print_warnings(err, {note.at}, file);
  }
  return convert::to_manifest(conversion, argument);
}

}  // namespace

Result<std::string> convert_file(const std::filesystem::path& path, std::ostream& err) {
  const Result<Input> manifest = read_manifest(path);
  if (!manifest.ok()) return manifest.error();
  const std::string& file = manifest->name;
  std::string converted;
  std::string errors;
  std::vector<Document> documents = api::read_objects(manifest->text);
  for (Document& document : documents) {
    const std::string kind = string_member(document.tree, "kind");
    if (document.errors.empty() && documents.size() > 1 && kind != kPyTorchJobKind) {
      const FieldError skipped = {"", document.positions.line_of("kind"),
                                  fmt::format("not converted: a {}", kind)};
      err << skipped.sentence(file) << '\n';
      continue;
    }
    const Result<std::string> job =
        convert_document(std::move(document), file, path.filename(), err);
    if (!job.ok()) {
      errors += (errors.empty() ? "" : "\n") + job.error().message;
    } else {
      converted += (converted.empty() ? "" : "---\n") + *job;
    }
  }
  if (!errors.empty()) return Error{ExitCode::kManifest, errors};
  if (converted.empty()) {
    return Error{ExitCode::kManifest,
                 fmt::format("{}: found no {}, expected one", file, kPyTorchJobKind)};
  }
  return converted;
}

void add_convert_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("convert", "Translate a PyTorchJob into a TrainJob");
  auto options = std::make_shared<ConvertOptions>();
  command->add_option("FILE", options->file, "Manifest of a PyTorchJob; -: standard input")
      ->required();
  command->add_option("-o,--output", options->output,
                      "File to write; default: standard output. An existing file is replaced");
  command->callback([options, &exit_code] {
    const Result<std::string> converted = convert_file(options->file, std::cerr);
    Status written;
    if (converted.ok() && options->output.empty()) std::cout << *converted;
    if (converted.ok() && !options->output.empty()) {
      written = write_output(options->output, *converted);
    }
    if (converted.ok() && written.ok()) return;
    const Error& error = converted.ok() ? written.error() : converted.error();
    std::cerr << error.message << '\n';
    exit_code = static_cast<int>(error.code);
  });
}

}  // namespace tilewright
