// Tests of ApiError (responses as errors) and parse_watch_event().
#include "controller/client/api_error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "controller/client/watch_event.h"

namespace tilewright::kube {
namespace {

std::string status(const std::string& reason, int code) {
  return fmt::format(R"({{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m",)"
                     R"("reason":"{}","code":{}}})",
                     reason, code);
}

TEST(ApiError, MapsTheReasonsOfStatusObjects) {
  struct Row {
    int code;
    const char* reason;
    ErrorKind kind;
  };
  for (const Row& row :
       {Row{404, "NotFound", ErrorKind::kNotFound},
        Row{409, "AlreadyExists", ErrorKind::kAlreadyExists},
        Row{409, "Conflict", ErrorKind::kConflict}, Row{410, "Expired", ErrorKind::kGone},
        Row{410, "Gone", ErrorKind::kGone}, Row{422, "Invalid", ErrorKind::kInvalid},
        Row{400, "BadRequest", ErrorKind::kInvalid}, Row{403, "Forbidden", ErrorKind::kForbidden},
        Row{401, "Unauthorized", ErrorKind::kUnauthorized},
        Row{429, "TooManyRequests", ErrorKind::kTooManyRequests},
        Row{500, "ServerTimeout", ErrorKind::kServerTimeout},
        Row{504, "Timeout", ErrorKind::kServerTimeout},
        Row{500, "InternalError", ErrorKind::kServer},
        Row{503, "ServiceUnavailable", ErrorKind::kServer},
        Row{405, "MethodNotAllowed", ErrorKind::kOther}}) {
    const ApiError error = error_from_response(row.code, status(row.reason, row.code), {});
    EXPECT_EQ(error.kind, row.kind) << row.reason;
    EXPECT_EQ(error.reason, row.reason);
    EXPECT_EQ(error.http_code, row.code);
  }
}

TEST(ApiError, MapsOtherBodiesByHttpCode) {
  const ApiError error = error_from_response(502, "<html>\nBad gateway", {});
  EXPECT_EQ(error.kind, ErrorKind::kServer);
  EXPECT_EQ(error.message, "<html>\\nBad gateway");
  EXPECT_EQ(error_from_response(429, "", std::chrono::seconds(3)).retry_after,
            std::chrono::seconds(3));
  EXPECT_EQ(error_from_response(404, "[1", {}).kind, ErrorKind::kNotFound);
}

TEST(ApiError, ReadsRetryAfterFromTheDetails) {
  const ApiError error = error_from_response(
      429, R"({"kind":"Status","code":429,"details":{"retryAfterSeconds":5}})", {});
  EXPECT_EQ(error.retry_after, std::chrono::seconds(5));
}

TEST(ApiError, MapsATerminatingNamespaceToNotFound) {
  const ApiError error =
      error_from_response(403,
                          R"({"kind":"Status","code":403,"reason":"Forbidden","details":{"causes":[
          {"reason":"NamespaceTerminating","field":"metadata.namespace"}]}})",
                          {});
  EXPECT_EQ(error.kind, ErrorKind::kNotFound);
  EXPECT_EQ(error.http_code, 403);
}

TEST(ApiError, DescribesOperationAndResponse) {
  ApiError error = error_from_response(409, status("AlreadyExists", 409), {});
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
  EXPECT_TRUE(event("OTHER").is(ErrorKind::kProtocol));
}

TEST(WatchEvent, TurnsAnErrorEventIntoItsStatus) {
  const auto event =
      parse_watch_event(R"({"type":"ERROR","object":)" + status("Expired", 410) + "}");
  ASSERT_TRUE(event.is(ErrorKind::kGone));
  EXPECT_EQ(event.error().http_code, 410);
}

TEST(WatchEvent, AnErrorEventWithoutAMessageIsStillASentence) {
  const auto event = parse_watch_event(R"({"type": "ERROR", "object": {}})");
  ASSERT_FALSE(event.ok());
  EXPECT_EQ(event.error().sentence(), "no message");
}

TEST(WatchEvent, RejectsInvalidEvents) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"type":"ADDED"})", R"({"type":1,"object":{}})",
        R"({"type":"ADDED","object":{"metadata":{}}})", R"({"type":"ADDED","object":3})"}) {
    EXPECT_TRUE(parse_watch_event(text).is(ErrorKind::kProtocol)) << text;
  }
}

}  // namespace
}  // namespace tilewright::kube
