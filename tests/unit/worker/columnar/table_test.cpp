// Access to a table by name, and selection of columns.
#include "worker/columnar/table.h"

#include <fstream>

#include "tests/unit/worker/columnar/columnar_testing.h"

namespace tilewright::columnar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const Column& column : table.columns()) names.push_back(column.name());
  return names;
}

TEST(Table, GivesColumnsByNameAndType) {
  const Table squad = read_table(data_file("squad_snappy.parquet"));
  EXPECT_EQ(squad.strings("question")[3], "Question 3: why? why? why? ");
  const StringLists texts = squad.string_lists("answers.text");
  const NumberLists<std::int64_t> starts = squad.integer_lists("answers.answer_start");
  ASSERT_EQ(texts.size(2), 2u);
  EXPECT_EQ(texts.at(2, 0), "großen");
  EXPECT_EQ(texts.at(2, 1), "Deich");
  EXPECT_THAT(starts[2], ElementsAre(42, 56));
  EXPECT_EQ(texts.size(4), 0u);
  EXPECT_TRUE(starts[4].empty());
  const Table stsb = read_table(data_file("stsb.arrow"));
  EXPECT_THAT(stsb.column("label").reals(), ElementsAre(double{3.8f}, 0.0, 5.0));
  EXPECT_THAT(stsb.integers("idx"), ElementsAre(0, 1, 2));
}

TEST(Table, RefusesAColumnThatIsMissingOrOfAnotherTypeOrHasNulls) {
  const std::filesystem::path path = data_file("glue.parquet");
  const Table glue = read_table(path);
  const auto refusal = [&](auto&& action) { return failure_of(action); };
  EXPECT_EQ(
      refusal([&] { glue.strings("question"); }),
      path.string() + ": has no column \"question\", found \"sentence1, sentence2, label, idx\"");
  EXPECT_EQ(refusal([&] { glue.strings("label"); }),
            path.string() + ": column \"label\": found integers, expected strings");
  EXPECT_EQ(refusal([&] { glue.string_lists("sentence1"); }),
            path.string() + ": column \"sentence1\": found strings, expected lists of strings");
  EXPECT_EQ(refusal([&] { glue.strings("sentence2"); }),
            path.string() + ": column \"sentence2\": row 4 is null, expected a value in every row");
  EXPECT_TRUE(glue.column("sentence2").is_null(3));
}

TEST(Table, MayLackOptionalColumns) {
  const Table glue = read_parquet(data_file("glue.parquet"), {{"label"}, {"idx", "question"}});
  EXPECT_THAT(names_of(glue), ElementsAre("label", "idx"));
}

TEST(Table, SelectsStructsAsAWhole) {
  for (const char* file : {"squad_zstd_v2_plain.parquet", "squad_datasets.arrow"}) {
    EXPECT_THAT(names_of(read_table(data_file(file), {"answers", "id"})),
                ElementsAre("id", "answers.text", "answers.answer_start"));
    EXPECT_THAT(names_of(read_table(data_file(file), {"answers.text"})),
                ElementsAre("answers.text"));
    EXPECT_THAT(failure_of([&] {
                  read_table(data_file(file), {"id", "answer"});
                }),
                HasSubstr("has no column \"answer\", found \"id, title, context, question, "
                          "answers.text, answers.answer_start\""));
  }
}

TEST(Table, ReadsColumnsBesideColumnsOfTypesThatAreNotSupported) {
  for (const char* file : {"refused_types.parquet", "refused_types.arrow"}) {
    const Table table = read_table(data_file(file), {"label", "text"});
    EXPECT_THAT(table.integers("label"), ElementsAre(1, 2));
    EXPECT_EQ(table.strings("text")[1], "b");
  }
}

TEST(Table, RefusesPathsThatAreNoFiles) {
  const tilewright::testing::TemporaryDirectory directory;
  for (const char* extension : {".parquet", ".arrow"}) {
    const auto path = directory.path() / (std::string("none") + extension);
    EXPECT_EQ(failure_of([&] { read_table(path); }),
              path.string() + ": cannot open: No such file or directory");
    std::filesystem::create_directory(path);
    EXPECT_EQ(failure_of([&] { read_table(path); }), path.string() + ": is not a regular file");
    std::filesystem::remove(path);
    { const std::ofstream empty{path}; }
    EXPECT_THAT(failure_of([&] { read_table(path); }), StartsWith(path.string() + ": "));
  }
}

}  // namespace
}  // namespace tilewright::columnar
