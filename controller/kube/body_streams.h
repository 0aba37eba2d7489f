// The request's body and the answer's as cpprestsdk wants them: stream buffers of its own kind.
#pragma once

#include <cpprest/astreambuf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "controller/kube/exchange_state.h"

namespace tilewright::kube {

// What both kinds of buffer have no use for.
class PlainStreambuf : public concurrency::streams::details::streambuf_state_manager<std::uint8_t> {
 protected:
  using Base = concurrency::streams::details::streambuf_state_manager<std::uint8_t>;
  using Int = int_type;
  explicit PlainStreambuf(std::ios_base::openmode mode) : Base(mode) {}

 public:
  // A body that can be rewound would be sent again by cpprestsdk when a kept connection breaks,
  // though the server may have acted on it. Whether to repeat is for retry.h to say.
  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  std::size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(std::size_t, std::ios_base::openmode) override {}
  std::size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return npos(); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return npos(); }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return npos();
  }
  bool acquire(std::uint8_t*& bytes, std::size_t& count) override {
    bytes = nullptr;
    count = 0;
    return false;
  }
  void release(std::uint8_t*, std::size_t) override {}

 protected:
  pplx::task<Int> _putc(std::uint8_t) override { return none(); }
  pplx::task<std::size_t> _putn(const std::uint8_t*, std::size_t) override {
    return pplx::task_from_result<std::size_t>(0);
  }
  pplx::task<Int> _bumpc() override { return none(); }
  Int _sbumpc() override { return traits::eof(); }
  pplx::task<Int> _getc() override { return none(); }
  Int _sgetc() override { return traits::eof(); }
  pplx::task<Int> _nextc() override { return none(); }
  pplx::task<Int> _ungetc() override { return none(); }
  pplx::task<std::size_t> _getn(std::uint8_t*, std::size_t) override {
    return pplx::task_from_result<std::size_t>(0);
  }
  std::size_t _scopy(std::uint8_t*, std::size_t) override { return 0; }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }
  std::uint8_t* _alloc(std::size_t) override { return nullptr; }
  void _commit(std::size_t) override {}

 private:
  static pos_type npos() { return static_cast<pos_type>(traits::eof()); }
  static pplx::task<Int> none() { return pplx::task_from_result<Int>(traits::eof()); }
};

// Where cpprestsdk puts what it receives; it waits when the reader does not follow.
class AnswerSink : public PlainStreambuf {
 public:
  explicit AnswerSink(std::shared_ptr<Exchange::State> state)
      : PlainStreambuf(std::ios_base::out), state_(std::move(state)) {}

 protected:
  pplx::task<std::size_t> _putn(const std::uint8_t* bytes, std::size_t count) override {
    return state_->receive(reinterpret_cast<const char*>(bytes), count);
  }

 private:
  const std::shared_ptr<Exchange::State> state_;
};

// The request's body, once from front to back.
class RequestSource : public PlainStreambuf {
 public:
  RequestSource(std::shared_ptr<Exchange::State> state, std::string body)
      : PlainStreambuf(std::ios_base::in), state_(std::move(state)), body_(std::move(body)) {}

  bool has_size() const override { return true; }
  utility::size64_t size() const override { return body_.size(); }
  std::size_t in_avail() const override { return body_.size() - taken_; }

 protected:
  pplx::task<std::size_t> _getn(std::uint8_t* bytes, std::size_t count) override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->body_sent = true;
    }
    count = std::min(count, body_.size() - taken_);
    std::memcpy(bytes, body_.data() + taken_, count);
    taken_ += count;
    return pplx::task_from_result(count);
  }

 private:
  const std::shared_ptr<Exchange::State> state_;
  const std::string body_;
  std::size_t taken_ = 0;
};

}  // namespace tilewright::kube
