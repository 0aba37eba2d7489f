// What the thread of cpprestsdk and the caller of a request share. For transport.cpp and
// body_streams.h only.
#pragma once

#include <pplx/pplxtasks.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "controller/kube/transport.h"

namespace tilewright::kube {

struct Exchange::State {
  // Bytes that wait for their reader; when there are more, the connection is not read on.
  static constexpr std::size_t kMostBuffered = 256 << 10;

  explicit State(const HttpRequest& request)
      : max_answer_bytes(request.max_answer_bytes), whole(request.whole) {}

  const std::uint64_t max_answer_bytes;
  const bool whole;
  net::WakeUp news;  // rung whenever something below changes for the reader
  pplx::cancellation_token_source cancellation;

  std::mutex mutex;
  std::optional<HttpHead> head;
  std::string buffered;
  std::uint64_t received = 0;
  bool ended = false;
  bool abandoned = false;
  bool body_sent = false;  // cpprestsdk has taken the request's body, so its headers were written
  std::optional<HttpFailure> failure;
  std::optional<pplx::task_completion_event<std::size_t>> held_back;  // of a write into `buffered`
  std::size_t held_back_bytes = 0;

  // With the lock held: there is more of the answer, but not all of it.
  void more() {
    if (!whole) news.signal();
  }

  // With the lock held: the reader has seen all there is.
  void heard() {
    if (news.signalled()) news.clear();
  }

  // The first failure counts.
  void fail(HttpFailure::Kind kind, std::string message) {
    const std::lock_guard lock(mutex);
    if (!failure && !ended) failure = HttpFailure{kind, std::move(message), body_sent};
    news.signal();
  }

  // From cpprestsdk's thread: more of the body.
  pplx::task<std::size_t> receive(const char* bytes, std::size_t size) {
    const std::lock_guard lock(mutex);
    received += size;
    if (received > max_answer_bytes && !failure) {
      failure = HttpFailure{HttpFailure::Kind::kTooLarge,
                            "the answer is larger than " + std::to_string(max_answer_bytes) +
                                " bytes, which is the most that is taken",
                            true};
      news.signal();
    }
    if (failure || abandoned) return pplx::task_from_result(size);
    buffered.append(bytes, size);
    more();
    if (whole || buffered.size() <= kMostBuffered) return pplx::task_from_result(size);
    held_back.emplace();
    held_back_bytes = size;
    return pplx::create_task(*held_back);
  }

  // With the lock held: lets cpprestsdk read on.
  void release() {
    if (!held_back) return;
    held_back->set(held_back_bytes);
    held_back.reset();
  }
};

}  // namespace tilewright::kube
