// Reads pickles that are built opcode by opcode: what torch.save writes, and attempts to call
// something else, to use too much memory or to read outside the input.
#include "worker/checkpoint/pickle.h"

#include <random>

#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "tests/unit/worker/checkpoint/torch_testing.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = PickleValue::Kind;
using namespace pickled;  // NOLINT: builders

Pickle parse_pickle(const std::string& text) {
  // The views into a copy are not used after it; the kinds and integers are.
  return read_pickle(exact_copy(text), "model.bin", ExitCode::kWeights);
}

void expect_refused(const std::string& text, const std::string& part) {
  expect_failure([&] { parse_pickle(text); }, ExitCode::kWeights,
                 AllOf(HasSubstr("model.bin: the pickle "), HasSubstr(part)));
}

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

TEST(PickleTest, ReadsValuesAndTheirLength) {
  const std::string input =
      "\x80\x02" + dict({{"a", integers({1, -2})}, {"b", "N"}, {"c", "\x88"}}) + ".";
  const auto bytes = exact_copy(input + "more");
  const Pickle pickle = read_pickle(bytes, "model.bin", ExitCode::kWeights);
  EXPECT_EQ(pickle.bytes, input.size());
  const auto* items = pickle.dict(pickle.result);
  ASSERT_NE(items, nullptr);
  ASSERT_EQ(items->size(), 3u);
  EXPECT_EQ(*pickle.string((*items)[0].first), "a");
  const auto* list = pickle.list((*items)[0].second);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ((*list)[0].integer, 1);
  EXPECT_EQ((*list)[1].integer, -2);
  EXPECT_EQ((*items)[1].second.kind, Kind::kNone);
  EXPECT_EQ((*items)[2].second.integer, 1);
}

TEST(PickleTest, ReadsIntegersOfEveryEncoding) {
  const auto integer_of = [](const std::string& text) {
    const Pickle pickle = parse_pickle(text + ".");
    EXPECT_EQ(pickle.result.kind, Kind::kInteger);
    return pickle.result.integer;
  };
  EXPECT_EQ(integer_of("K\xff"), 255);
  EXPECT_EQ(integer_of(std::string("M\x01\xff")), 0xff01);
  EXPECT_EQ(integer_of("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(integer_of(std::string("\x8a\0", 2)), 0);
  EXPECT_EQ(integer_of("\x8a\x01\x80"), -128);
  EXPECT_EQ(integer_of(std::string("\x8b\x02\0\0\0\xff\x7f", 7)), 0x7fff);
  EXPECT_EQ(integer_of(integer(INT64_MIN)), INT64_MIN);
  EXPECT_EQ(parse_pickle("\x8a\x09" + std::string(9, '\x7f') + ".").result.kind, Kind::kLong);
}

TEST(PickleTest, ReadsTensorsWithTheirStorage) {
  const auto bytes = exact_copy(tensor(storage("HalfStorage", "k", 20), 2, {2, 3}, {1, 4}) + ".");
  const Pickle pickle = read_pickle(bytes, "model.bin", ExitCode::kWeights);
  ASSERT_EQ(pickle.result.kind, Kind::kTensor);
  const PickledTensor& found = pickle.tensors[pickle.result.index];
  EXPECT_THAT(found.shape, ElementsAre(2, 3));
  EXPECT_THAT(found.strides, ElementsAre(1, 4));
  EXPECT_EQ(found.offset, 2);
  const PickledStorage& in = pickle.storages[found.storage];
  EXPECT_EQ(in.key, "k");
  EXPECT_EQ(in.dtype, DType::kF16);
  EXPECT_EQ(in.size, 20);
}

// torch before 0.4, and Python 2, which gives OrderedDict its items at once.
TEST(PickleTest, ReadsOlderForms) {
  const std::string one = call(global("torch._utils", "_rebuild_tensor"),
                               {storage("FloatStorage", "0", 1), integer(0), ")", ")"});
  const Pickle pickle = parse_pickle(call(global("collections", "OrderedDict"),
                                          {"](](" + std::string("U\x01") + "a" + one + "ee"}) +
                                     ".");
  ASSERT_EQ(pickle.result.kind, Kind::kDict);
  const auto* items = pickle.dict(pickle.result);
  ASSERT_EQ(items->size(), 1u);
  EXPECT_EQ((*items)[0].second.kind, Kind::kTensor);
}

TEST(PickleTest, NamesTheGlobalThatItRefuses) {
  expect_refused(call(global("os", "system"), {text("id")}) + ".",
                 "calls os.system; expected only tensors");
  expect_refused(call(global("builtins", "eval"), {text("1")}) + ".", "calls builtins.eval;");
  expect_refused(global("__builtin__", "eval"), "calls __builtin__.eval;");
  expect_refused(global("posix", "system"), "calls posix.system;");
  expect_refused(global("torch.storage", "_load_from_bytes"), "torch.storage._load_from_bytes;");
  expect_refused(global("collections", "OrderedDict.__class__"), "OrderedDict.__class__;");
  expect_refused(global("", ""), "calls .;");
  expect_refused(global("a b", "\x1b[2J"), "calls a b.\\x1b[2J;");
  expect_refused(text("os") + text("system") + "\x93", "calls os.system;");
  expect_refused("\x8c\x02os\x94\x8c\x06system\x94h" + std::string("\0", 1) + "h\x01\x93",
                 "calls os.system;");
  expect_refused("K\x01K\x02\x93", "the name of a global is not a string");
  expect_refused("c" + std::string(5000, 'm') + "\nf\n", "a name of less than");
}

TEST(PickleTest, CallsOnlyTheKnownGlobalsWithTheirArguments) {
  const std::string ordered = global("collections", "OrderedDict");
  const std::string rebuild = global("torch._utils", "_rebuild_tensor_v2");
  const std::string parameter = global("torch._utils", "_rebuild_parameter");
  const std::string in = storage("FloatStorage", "0", 4);
  expect_refused(call(global("torch", "FloatStorage"), {integer(4)}), "calls torch.FloatStorage;");
  expect_refused(call(text("os.system"), {}), "calls a value that is not a global");
  expect_refused(ordered + "NR", "expected a tuple of arguments");
  expect_refused(call(ordered, {"N"}), "a list of pairs");
  expect_refused(call(ordered, {"](NNe"}), "a list of pairs");
  expect_refused(call(ordered, {"]" + tuple({"N"}) + "a"}), "a list of pairs");
  expect_refused(call(rebuild, {in, integer(0), ")", ")"}), "other arguments");
  expect_refused(call(rebuild, {"N", integer(0), ")", ")", "\x89", "N"}), "other arguments");
  expect_refused(call(rebuild, {in, "N", ")", ")", "\x89", "N"}), "the offset of a tensor");
  expect_refused(call(rebuild, {in, integer(0), "N", ")", "\x89", "N"}),
                 "expected a tuple as the shape of a tensor");
  expect_refused(call(rebuild, {in, integer(0), tuple({"N"}), ")", "\x89", "N"}),
                 "expected a non-negative integer in the shape");
  expect_refused(call(parameter, {"N", "\x88", "N"}), "something other than a tensor");
  expect_refused(text("key") + "Q", "expected a tuple of arguments");
  expect_refused(tuple({text("module"), "N", "N", "N", "N"}) + "Q", "expected a persistent id");
  expect_refused(tuple({text("storage"), ordered, text("0"), text("cpu"), integer(4)}) + "Q",
                 "not a storage type");
  expect_refused(storage("FloatStorage", "0", -1), "the size of a storage");
  expect_refused(tuple({text("storage"), global("torch", "FloatStorage"), text("0"), text("cpu"),
                        integer(4), tuple({text("1"), integer(0), integer(2)})}) +
                     "Q",
                 "has a view of storage \"0\"");
}

TEST(PickleTest, RefusesOpcodesThatMakeOrChangeObjects) {
  const std::string make = global("collections", "OrderedDict");
  expect_refused(make + ")\x81", "has the opcode 0x81");             // NEWOBJ
  expect_refused(make + ")}\x92", "has the opcode 0x92");            // NEWOBJ_EX
  expect_refused("(ios\nsystem\n", "has the opcode 0x69");           // INST
  expect_refused("(" + make + "o", "has the opcode 0x6f");           // OBJ
  expect_refused("\x82\x01", "has the opcode 0x82");                 // EXT1
  expect_refused("Pid\n", "has the opcode 0x50");                    // PERSID
  expect_refused("\x97", "has the opcode 0x97");                     // NEXT_BUFFER
  expect_refused("N}b", "sets attributes of something other than");  // BUILD
  expect_refused("]}b", "sets attributes of something other than");
  expect_refused("\x80\x06N.", "found protocol 6, expected at most 5");
}

TEST(PickleTest, RefusesTensorsOutsideTheirStorage) {
  const std::string in = storage("FloatStorage", "7", 10);
  const auto refuses = [&](std::int64_t offset, const std::vector<std::int64_t>& shape,
                           const std::vector<std::int64_t>& strides, const std::string& part) {
    expect_refused(tensor(in, offset, shape, strides) + ".", part);
  };
  refuses(0, {11}, {1}, "shape [11] with strides [1] at offset 0, which is outside storage \"7\"");
  refuses(5, {2, 3}, {3, 1}, "at offset 5, which is outside storage \"7\" of 10 elements");
  refuses(10, {}, {}, "outside");
  refuses(11, {0}, {1}, "outside");
  refuses(-1, {1}, {1}, "expected a non-negative integer in the offset of a tensor");
  refuses(0, {-1}, {1}, "expected a non-negative integer in the shape of a tensor");
  refuses(9, {2}, {-1}, "expected a non-negative integer in the strides of a tensor");
  refuses(0, {2, 2}, {1}, "2 dimensions and 1 strides");
  refuses(0, {INT64_MAX, INT64_MAX}, {1, 1}, "outside");
  refuses(0, {INT64_MAX, INT64_MAX}, {0, 0}, "outside");
  refuses(0, {3}, {INT64_MAX}, "outside");
  refuses(INT64_MAX, {2}, {1}, "outside");
  refuses(0, std::vector<std::int64_t>(17, 1), std::vector<std::int64_t>(17, 1),
          "17 dimensions, expected at most 16");
  for (const std::string& inside :
       {tensor(in, 0, {10}, {1}), tensor(in, 9, {}, {}), tensor(in, 1, {2, 5}, {4, 1}),
        tensor(in, 10, {0, 4}, {4, 1}), tensor(in, 9, {1000, 1000}, {0, 0})}) {
    EXPECT_EQ(parse_pickle(inside + ".").result.kind, Kind::kTensor);
  }
}

// Refused before memory for the length is reserved.
TEST(PickleTest, RefusesLengthsBeyondTheInput) {
  const std::string huge(8, '\xff');
  expect_refused("X" + huge, "ends at byte 9, expected at least 4294967291 more");
  expect_refused("B" + huge, "expected at least");
  expect_refused("\x8d" + huge, "expected at least 18446744073709551615 more");
  expect_refused("\x8e" + huge, "expected at least");
  expect_refused("\x8b\xff\xff\xff\x7f", "expected at least 2147483647 more");
  expect_refused("\x8b\xff\xff\xff\xff", "negative length");
  expect_refused("T\xff\xff\xff\xff", "negative length");
  expect_refused("U\xff", "expected at least 255 more");
  expect_refused("\x95" + std::string(4, '\0'), "expected at least 4 more");
}

TEST(PickleTest, RefusesMoreThanTheLargestPickle) {
  const std::string longest(kMaxPickleBytes, 'x');
  expect_refused(text(longest) + ".", "is longer than 16777216 bytes");
  expect_refused(std::string(kMaxPickleValues + 1, ']'), "makes more than 1048576 values");
  expect_refused(repeated("(", static_cast<int>(kMaxPickleValues) + 1), "makes more than");
  expect_refused("]" + repeated("q\x01", static_cast<int>(kMaxPickleValues) + 1), "makes more");
}

TEST(PickleTest, ReadsDeepNestingWithoutRecursion) {
  constexpr int kDepth = 500'000;
  EXPECT_EQ(parse_pickle(std::string(kDepth, ']') + std::string(kDepth - 1, 'a') + ".").result.kind,
            Kind::kList);
  EXPECT_EQ(parse_pickle(std::string(kDepth, '(') + std::string(kDepth, 't') + ".").result.kind,
            Kind::kList);
}

// 2^1000 leaves if each reference were followed.
TEST(PickleTest, DoesNotFollowSharedReferences) {
  std::string bomb = "]q" + std::string("\0", 1);
  for (int i = 0; i < 1000; ++i) {
    const std::string at = little(static_cast<std::uint64_t>(i), 4);
    bomb += fmt::format("(j{}j{}lr{}0", at, at, little(static_cast<std::uint64_t>(i) + 1, 4));
    bomb += "N";  // keeps the stack's height
  }
  bomb += repeated("0", 1000) + ".";
  EXPECT_EQ(parse_pickle(bomb).result.kind, Kind::kList);
  const std::string self = "]q" + std::string("\0h\0a.", 5);
  EXPECT_EQ(parse_pickle(self).result.kind, Kind::kList) << "contains itself";
}

TEST(PickleTest, RefusesAnInvalidStack) {
  expect_refused("", "ends at byte 0");
  expect_refused(".", "the stack is empty");
  expect_refused("NN.", "leaves values");
  expect_refused("(.", "found a mark");
  expect_refused("(NN.", "leaves values");
  expect_refused("Nt", "no mark");
  expect_refused("1", "no mark");
  expect_refused("0", "is empty");
  expect_refused("2", "is empty");
  expect_refused("N\x87", "is empty");
  expect_refused("Na", "is empty");
  expect_refused("NNa", "expected a list");
  expect_refused("](Nu", "expected a dictionary");
  expect_refused("}(Nu", "a key has no value");
  expect_refused("h\x05", "the memo has no entry 5");
  expect_refused("j\xff\xff\xff\xff", "the memo has no entry 4294967295");
  expect_refused("q\x01", "is empty");
}

// Random programs of known opcodes end with a value or a Failure.
TEST(PickleTest, ReadsWithinTheInputForRandomPrograms) {
  const std::vector<std::string> parts = {"(",
                                          "0",
                                          "1",
                                          "2",
                                          "N",
                                          "\x88",
                                          "K\x01",
                                          "K\x02",
                                          "]",
                                          ")",
                                          "}",
                                          "t",
                                          "l",
                                          "\x85",
                                          "\x86",
                                          "\x87",
                                          "a",
                                          "e",
                                          "s",
                                          "u",
                                          "q\x01",
                                          "h\x01",
                                          "q\x02",
                                          "h\x02",
                                          "\x94",
                                          "R",
                                          "b",
                                          "Q",
                                          "\x93",
                                          "\x8a\x02\xff\xff",
                                          "\x80\x02",
                                          "\x95",
                                          ".",
                                          text("storage"),
                                          text("torch"),
                                          global("collections", "OrderedDict"),
                                          global("torch._utils", "_rebuild_tensor_v2"),
                                          global("torch._utils", "_rebuild_parameter"),
                                          storage("FloatStorage", "0", 3),
                                          tensor(storage("FloatStorage", "0", 3), 1, {2}, {1}),
                                          integers({1, 2}),
                                          integer(-1)};
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string program;
    for (int i = 0; i < 12; ++i) program += parts[random() % parts.size()];
    try {
      parse_pickle(program + ".");
    } catch (const Failure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 30000);
}

}  // namespace
}  // namespace tilewright::checkpoint
