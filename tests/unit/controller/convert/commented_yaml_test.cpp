#include "controller/convert/commented_yaml.h"

#include <gtest/gtest.h>

#include "common/json/document.h"

namespace tilewright::convert {
namespace {

using nlohmann::ordered_json;

TEST(CommentedYaml, PlacesCommentsAtTheirFields) {
  const ordered_json tree = ordered_json::parse(R"({
    "kind": "TrainJob",
    "spec": {"trainer": {"model": "a/b", "bf16": true},
             "worker": {"env": [{"name": "FIRST", "value": "1"}, {"name": "SECOND", "value": ""}],
                        "empty": [], "words": ["x", "no"]}}})");
  const Comments comments = {{"spec.trainer.bf16", {"above bf16"}},
                             {"spec.trainer.use_ipex", {"no field use_ipex"}},
                             {"spec.worker", {"first", "second"}},
                             {"spec.worker.env[1]", {"above B"}},
                             {"spec.worker.env.C", {"no variable C"}},
                             {"spec.volumes", {"no volumes"}},
                             {"status", {"no status"}}};
  const char* expected = R"(kind: TrainJob
spec:
  trainer:
    model: a/b
    # above bf16
    bf16: true
    # no field use_ipex
  # first
  # second
  worker:
    env:
      - name: FIRST
        value: "1"
      # above B
      - name: SECOND
        value: ""
      # no variable C
    empty: []
    words:
      - x
      - "no"
  # no volumes
# no status
)";
  const std::string text = to_commented_yaml(tree, comments);
  EXPECT_EQ(text, expected);
  const Document read = read_yaml(text);
  ASSERT_TRUE(read.errors.empty()) << sentences(read.errors);
  EXPECT_EQ(read.tree, nlohmann::json(tree));
}

TEST(CommentedYaml, WrapsLongComments) {
  const std::string word(30, 'w');
  const std::string text = word + " " + word + " " + word + " " + word;
  EXPECT_EQ(comment_lines(text, 4),
            "    # " + word + " " + word + " " + word + "\n    # " + word + "\n");
  // A word that is longer than a line stays whole.
  EXPECT_EQ(comment_lines(std::string(120, 'w'), 0), "# " + std::string(120, 'w') + "\n");
}

// No text of a manifest can end a comment.
TEST(CommentedYaml, KeepsLineBreaksInsideComments) {
  EXPECT_EQ(comment_lines("a\nkind: Pod\r\n b", 0), "# a kind: Pod b\n");
}

}  // namespace
}  // namespace tilewright::convert
