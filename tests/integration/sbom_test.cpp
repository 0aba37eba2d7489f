// The root file systems of the images that docker/collect-root makes: the bill of materials of
// each, and the programs of the worker's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_command.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::CommandResult;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kDpkgQuery = "/usr/bin/dpkg-query";

CommandResult run(const fs::path& program, const std::vector<std::string>& arguments,
                  const std::string& launcher = "") {
  ChildCommand command;
  command.program = program;
  command.arguments = arguments;
  command.environment = environment_with_overrides({{"SOURCE_DATE_EPOCH", "1700000000"},
                                                    {"COMMIT", "0123456789ab"},
                                                    {"LC_ALL", "C"},
                                                    {"LAUNCHER", launcher}});
  return testing::run_command(command);
}

struct Image {
  const char* name;
  const char* program;
};

class BillOfMaterials : public ::testing::TestWithParam<Image> {
 protected:
  void SetUp() override {
    if (!fs::exists(kDpkgQuery)) {
      if (testing::prerequisites_required()) FAIL() << kDpkgQuery << " is missing";
      GTEST_SKIP() << kDpkgQuery << " is missing: images are built on Debian";
    }
    text_ = text_of(collect_root("root"));
    document_ = json::parse(text_);
  }

  fs::path collect_root(const std::string& name) const {
    fs::path root = folder_.path() / name;
    const CommandResult result =
        run(testing::source_dir() / "docker/collect-root",
            {testing::program(GetParam().program).string(), root.string(), GetParam().name});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return root;
  }

  static std::string text_of(const fs::path& root) {
    return testing::read_text(root / "usr/share/sbom" /
                              (std::string(GetParam().name) + ".spdx.json"));
  }

  fs::path root() const { return folder_.path() / "root"; }

  const json& package(const std::string& name, const std::string& purpose = "") const {
    for (const json& package : document_.at("packages")) {
      if (package.at("name") == name && package.value("primaryPackagePurpose", "") == purpose) {
        return package;
      }
    }
    throw std::runtime_error("the document lists no package " + name);
  }

  std::set<std::string> debian_packages() const {
    std::set<std::string> names;
    for (const json& package : document_.at("packages")) {
      if (package.contains("externalRefs")) names.insert(package.at("name"));
    }
    return names;
  }

  // The elements that `element` has the relationship `type` with.
  std::set<std::string> related(const std::string& element, const std::string& type) const {
    std::set<std::string> found;
    for (const json& relationship : document_.at("relationships")) {
      if (relationship.at("spdxElementId") == element &&
          relationship.at("relationshipType") == type) {
        found.insert(relationship.at("relatedSpdxElement"));
      }
    }
    return found;
  }

  testing::TemporaryDirectory folder_;
  std::string text_;
  json document_;
};

// The names of a shell and of Python are those of the launcher, which reads the guides' commands.
TEST(WorkerImage, HasNoShell) {
  if (!fs::exists(kDpkgQuery)) {
    if (testing::prerequisites_required()) FAIL() << kDpkgQuery << " is missing";
    GTEST_SKIP() << kDpkgQuery << " is missing: images are built on Debian";
  }
  const testing::TemporaryDirectory folder;
  const fs::path root = folder.path() / "root";
  const fs::path launcher = testing::program("tilewright-launcher");
  const CommandResult made =
      run(testing::source_dir() / "docker/collect-root",
          {testing::program("tilewright-worker"), root, "tilewright-worker"}, launcher);
  ASSERT_EQ(made.exit_code, 0) << made.output;
  std::set<std::string> programs;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const bool is_executable =
        entry.symlink_status().type() == fs::file_type::regular &&
        (entry.status().permissions() & fs::perms::owner_exec) != fs::perms::none;
    const std::string path = entry.path().lexically_relative(root);
    if (is_executable && path.find(".so") == std::string::npos) programs.insert(path);
  }
  EXPECT_THAT(programs, ::testing::UnorderedElementsAre("usr/bin/tilewright-worker",
                                                        "usr/libexec/tilewright-worker"));
  for (const char* directory : {"bin", "usr/bin", "usr/local/bin"}) {
    for (const char* name : {"torchrun", "python", "python3", "bash", "sh"}) {
      const fs::path path = root / directory / name;
      EXPECT_EQ(fs::canonical(path), fs::canonical(root / "usr/bin/tilewright-worker")) << path;
    }
  }
  EXPECT_EQ(fs::file_size(root / "usr/bin/tilewright-worker"), fs::file_size(launcher));
}

// SPDX 2.3, sections 6 (document), 7 (packages) and 11 (relationships).
TEST_P(BillOfMaterials, HasTheFieldsThatSpdxRequires) {
  EXPECT_EQ(document_.at("spdxVersion"), "SPDX-2.3");
  EXPECT_EQ(document_.at("dataLicense"), "CC0-1.0");
  EXPECT_EQ(document_.at("SPDXID"), "SPDXRef-DOCUMENT");
  EXPECT_NE(document_.at("name"), "");
  EXPECT_THAT(document_.at("documentNamespace").get<std::string>(), MatchesRegex("urn:uuid:[^#]+"));
  EXPECT_EQ(document_.at("creationInfo").at("created"), "2023-11-14T22:13:20Z");
  for (const json& creator : document_.at("creationInfo").at("creators")) {
    EXPECT_THAT(creator.get<std::string>(), MatchesRegex("(Tool|Organization|Person): .+"));
  }
  std::set<std::string> identifiers = {"SPDXRef-DOCUMENT"};
  for (const json& package : document_.at("packages")) {
    SCOPED_TRACE(package.dump());
    const std::string identifier = package.at("SPDXID");
    EXPECT_TRUE(std::regex_match(identifier, std::regex("SPDXRef-[A-Za-z0-9.-]+")));
    EXPECT_TRUE(identifiers.insert(identifier).second) << "two packages have this identifier";
    for (const char* field : {"name", "versionInfo", "downloadLocation", "licenseConcluded",
                              "licenseDeclared", "copyrightText"}) {
      EXPECT_NE(package.at(field).get<std::string>(), "") << field;
    }
    EXPECT_EQ(package.at("filesAnalyzed"), false) << "else a verification code is required";
    EXPECT_THAT(package.at("supplier").get<std::string>(),
                MatchesRegex("(Organization|Person): .+"));
  }
  for (const json& relationship : document_.at("relationships")) {
    EXPECT_THAT(identifiers, Contains(relationship.at("spdxElementId").get<std::string>()));
    EXPECT_THAT(identifiers, Contains(relationship.at("relatedSpdxElement").get<std::string>()));
  }
}

TEST_P(BillOfMaterials, DescribesTheImageWithItsProgram) {
  const json& image = package(GetParam().name, "CONTAINER");
  EXPECT_THAT(related("SPDXRef-DOCUMENT", "DESCRIBES"), Contains(image.at("SPDXID")));
  const json& program = package(GetParam().program, "APPLICATION");
  EXPECT_THAT(related(image.at("SPDXID"), "CONTAINS"), Contains(program.at("SPDXID")));
  EXPECT_EQ(program.at("licenseDeclared"), "Apache-2.0");
  EXPECT_THAT(program.at("sourceInfo").get<std::string>(), HasSubstr("0123456789ab"));
  const fs::path file = root() / "usr/bin" / GetParam().program;
  const CommandResult hash = run("/usr/bin/sha256sum", {file.string()});
  EXPECT_EQ(program.at("checksums").at(0).at("algorithm"), "SHA256");
  EXPECT_EQ(program.at("checksums").at(0).at("checksumValue"), hash.output.substr(0, 64));
}

TEST_P(BillOfMaterials, ContainsThePackageOfEverySharedLibrary) {
  const std::set<std::string> contained = related("SPDXRef-Image", "CONTAINS");
  int libraries = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root())) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file() || name.find(".so") == std::string::npos) continue;
    ++libraries;
    // "libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6", one line for each package.
    const CommandResult owners = run(kDpkgQuery, {"--search", "*/" + name});
    ASSERT_EQ(owners.exit_code, 0) << owners.output;
    std::istringstream lines(owners.output);
    bool listed = false;
    for (std::string line; std::getline(lines, line) && !listed;) {
      const std::string owner = line.substr(0, line.find(':'));
      listed = debian_packages().contains(owner) && contained.contains(package(owner).at("SPDXID"));
    }
    EXPECT_TRUE(listed) << name << " belongs to a package that the document does not list: "
                        << owners.output;
  }
  EXPECT_GT(libraries, 10);
}

TEST_P(BillOfMaterials, HasTheVersionsOfDpkgAndTheLicensesOfNotice) {
  for (const std::string& name : debian_packages()) {
    const json& entry = package(name);
    const CommandResult dpkg =
        run(kDpkgQuery, {"--show", "--showformat", "${Version} ${Architecture}", name});
    ASSERT_EQ(dpkg.exit_code, 0) << dpkg.output;
    const std::size_t space = dpkg.output.find(' ');
    const std::string version = dpkg.output.substr(0, space);
    EXPECT_EQ(entry.at("versionInfo"), version) << name;
    if (name != "ca-certificates") {  // not linked, so not in NOTICE
      EXPECT_NE(entry.at("licenseDeclared"), "NOASSERTION") << name << " is missing in NOTICE";
    }
    const std::regex plus("\\+");
    const json& reference = entry.at("externalRefs").at(0);
    EXPECT_EQ(reference.at("referenceCategory"), "PACKAGE-MANAGER");
    EXPECT_EQ(reference.at("referenceType"), "purl");
    const std::string suffix = fmt::format(
        "/{}?arch={}", std::regex_replace(fmt::format("{}@{}", name, version), plus, "%2B"),
        dpkg.output.substr(space + 1));
    EXPECT_THAT(reference.at("referenceLocator").get<std::string>(),
                ::testing::AllOf(HasSubstr("pkg:deb/"), HasSubstr(suffix)));
  }
  EXPECT_THAT(debian_packages(), Contains("ca-certificates"));
  EXPECT_THAT(debian_packages(), Contains("nlohmann-json3-dev")) << "header-only, from NOTICE";
}

TEST_P(BillOfMaterials, HasALicenseTextForEveryPackage) {
  for (const std::string& name : debian_packages()) {
    EXPECT_TRUE(fs::exists(root() / "usr/share/doc" / name / "copyright")) << name;
  }
}

TEST_P(BillOfMaterials, IsTheSameForTheSameProgram) {
  EXPECT_EQ(text_of(collect_root("again")), text_);
}

TEST_P(BillOfMaterials, RejectsAFileOfNoPackage) {
  const fs::path library = folder_.path() / "libunknown.so.1";
  fs::copy_file(testing::program(GetParam().program), library);
  const CommandResult result =
      run(testing::source_dir() / "docker/write-sbom",
          {(folder_.path() / "other").string(), GetParam().name,
           testing::program(GetParam().program).string(), library.string()});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr(library.string() + ": found in no Debian package"));
}

INSTANTIATE_TEST_SUITE_P(Images, BillOfMaterials,
                         ::testing::Values(Image{"tilewright-controller", "tilewright"},
                                           Image{"tilewright-worker", "tilewright-worker"}),
                         [](const auto& instance) {
                           return std::string(instance.param.program) == "tilewright" ? "Operator"
                                                                                      : "Worker";
                         });

}  // namespace
}  // namespace tilewright
