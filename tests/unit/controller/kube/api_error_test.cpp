// Answers of the API server as problems, and watch events.
#include "controller/kube/api_error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "controller/kube/watch_event.h"

namespace tilewright::kube {
namespace {

std::string status(const std::string& reason, int code) {
  return fmt::format(R"({{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m",)"
                     R"("reason":"{}","code":{}}})",
                     reason, code);
}

TEST(ApiError, KnowsTheReasonsOfStatusObjects) {
  struct Row {
    int code;
    const char* reason;
    Problem problem;
  };
  for (const Row& row :
       {Row{404, "NotFound", Problem::kNotFound},
        Row{409, "AlreadyExists", Problem::kAlreadyExists},
        Row{409, "Conflict", Problem::kConflict}, Row{410, "Expired", Problem::kGone},
        Row{410, "Gone", Problem::kGone}, Row{422, "Invalid", Problem::kInvalid},
        Row{400, "BadRequest", Problem::kInvalid}, Row{403, "Forbidden", Problem::kForbidden},
        Row{401, "Unauthorized", Problem::kUnauthorized},
        Row{429, "TooManyRequests", Problem::kTooManyRequests},
        Row{500, "ServerTimeout", Problem::kServerTimeout},
        Row{504, "Timeout", Problem::kServerTimeout}, Row{500, "InternalError", Problem::kServer},
        Row{503, "ServiceUnavailable", Problem::kServer},
        Row{405, "MethodNotAllowed", Problem::kOther}}) {
    const ApiError error = error_of_answer(row.code, status(row.reason, row.code), {});
    EXPECT_EQ(error.problem, row.problem) << row.reason;
    EXPECT_EQ(error.reason, row.reason);
    EXPECT_EQ(error.http_code, row.code);
  }
}

TEST(ApiError, JudgesOtherBodiesByTheirCode) {
  const ApiError error = error_of_answer(502, "<html>\nBad gateway", {});
  EXPECT_EQ(error.problem, Problem::kServer);
  EXPECT_EQ(error.message, "<html> Bad gateway");
  EXPECT_EQ(error_of_answer(429, "", std::chrono::seconds(3)).retry_after, std::chrono::seconds(3));
  EXPECT_EQ(error_of_answer(404, "[1", {}).problem, Problem::kNotFound);
}

TEST(ApiError, ReadsHowLongToWaitFromTheDetails) {
  const ApiError error =
      error_of_answer(429, R"({"kind":"Status","code":429,"details":{"retryAfterSeconds":5}})", {});
  EXPECT_EQ(error.retry_after, std::chrono::seconds(5));
}

TEST(ApiError, FindsNothingInANamespaceThatIsGoing) {
  const ApiError error =
      error_of_answer(403,
                      R"({"kind":"Status","code":403,"reason":"Forbidden","details":{"causes":[
          {"reason":"NamespaceTerminating","field":"metadata.namespace"}]}})",
                      {});
  EXPECT_EQ(error.problem, Problem::kNotFound);
  EXPECT_EQ(error.http_code, 403);
}

TEST(ApiError, SaysWhatWasTriedAndWhatCame) {
  ApiError error = error_of_answer(409, status("AlreadyExists", 409), {});
  error.operation = "create pods default/a";
  EXPECT_EQ(error.sentence(), "create pods default/a: 409 AlreadyExists: m");
}

TEST(WatchEvent, ReadsEveryType) {
  const auto event = [](const std::string& type) {
    return parse_watch_event(R"({"type":")" + type +
                             R"(","object":{"metadata":{"name":"a","resourceVersion":"7"}}})");
  };
  EXPECT_EQ(event("ADDED")->type, EventType::kAdded);
  EXPECT_EQ(event("MODIFIED")->type, EventType::kModified);
  EXPECT_EQ(event("DELETED")->type, EventType::kDeleted);
  EXPECT_EQ(event("BOOKMARK")->type, EventType::kBookmark);
  EXPECT_EQ(event("ADDED")->resource_version, "7");
  EXPECT_EQ(event("ADDED")->object["metadata"]["name"], "a");
  EXPECT_TRUE(event("OTHER").is(Problem::kProtocol));
}

TEST(WatchEvent, TurnsAnErrorEventIntoItsStatus) {
  const auto event =
      parse_watch_event(R"({"type":"ERROR","object":)" + status("Expired", 410) + "}");
  ASSERT_TRUE(event.is(Problem::kGone));
  EXPECT_EQ(event.error().http_code, 410);
}

TEST(WatchEvent, RefusesWhatIsNoEvent) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"type":"ADDED"})", R"({"type":1,"object":{}})",
        R"({"type":"ADDED","object":{"metadata":{}}})", R"({"type":"ADDED","object":3})"}) {
    EXPECT_TRUE(parse_watch_event(text).is(Problem::kProtocol)) << text;
  }
}

}  // namespace
}  // namespace tilewright::kube
