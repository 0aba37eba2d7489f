#include "worker/elastic/pmix.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pmix.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace tilewright::elastic {
namespace {

constexpr const char* kLibrary = "libpmix.so.2";
constexpr const char* kKey = "tilewright-rendezvous";
constexpr std::size_t kMaxText = 2000;

Failure problem(const std::string& what) {
  return {ExitCode::kPeerLost, "the launcher's process manager (PMIx) " + what};
}

// At least 1: 0 is no limit.
int seconds_until(MonotonicTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - monotonic_now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, 1'000'000));
}

// The functions of the library. It stays loaded, because its threads may run until the end.
struct Library {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Abort) abort;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Fence_nb) fence;
  decltype(&PMIx_Get) get;
  decltype(&PMIx_Error_string) error_string;

  static Library load() {
    void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("the launcher uses PMIx, but {}; expected Debian's package "
                                "libpmix2, or {} and MASTER_ADDR without PMIX_NAMESPACE",
                                dlerror(), "TILEWRIGHT_JOB_KEY_FILE"));
    }
    Library library{};
    const auto find = [handle](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (function == nullptr) {
        throw Failure(ExitCode::kUsage,
                      fmt::format("{} has no function {}, expected PMIx 3 or 4", kLibrary, name));
      }
    };
    find(library.init, "PMIx_Init");
    find(library.finalize, "PMIx_Finalize");
    find(library.abort, "PMIx_Abort");
    find(library.put, "PMIx_Put");
    find(library.commit, "PMIx_Commit");
    find(library.fence, "PMIx_Fence_nb");
    find(library.get, "PMIx_Get");
    find(library.error_string, "PMIx_Error_string");
    return library;
  }
};

// The end of a fence. The library's thread signals it, perhaps after the caller's deadline.
struct FenceEnd {
  net::WakeUp wake_up;
  std::atomic<pmix_status_t> status{PMIX_SUCCESS};
};

void end_fence(pmix_status_t status, void* data) {
  const std::unique_ptr<std::shared_ptr<FenceEnd>> end(
      static_cast<std::shared_ptr<FenceEnd>*>(data));
  (*end)->status = status;
  (*end)->wake_up.signal();
}

class Pmix : public ProcessManager {
 public:
  explicit Pmix(int rank) : library_(Library::load()) {
    std::memset(&self_, 0, sizeof self_);
    const pmix_status_t status = library_.init(&self_, nullptr, 0);
    if (status != PMIX_SUCCESS) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("PMIX_NAMESPACE is set, but {} cannot reach a process manager: {}; "
                                "expected a process that mpirun or srun started",
                                kLibrary, library_.error_string(status)));
    }
    if (self_.rank != static_cast<pmix_rank_t>(rank)) {
      throw problem(fmt::format("counts this process as rank {}, the environment as rank {}",
                                self_.rank, rank));
    }
  }

  std::size_t max_text() const override { return kMaxText; }

  std::string share(std::string_view text, const net::Wait& wait) override {
    if (self_.rank == 0) {
      TW_CHECK(text.size() <= kMaxText, "a text of {} bytes for PMIx", text.size());
      std::string copy(text);
      pmix_value_t value;
      std::memset(&value, 0, sizeof value);
      value.type = PMIX_STRING;
      value.data.string = copy.data();
      check(library_.put(PMIX_GLOBAL, kKey, &value), "cannot store the address of rank 0");
      check(library_.commit(), "cannot commit the address of rank 0");
    }
    fence(wait);
    if (self_.rank == 0) return std::string(text);
    pmix_proc_t rank0 = self_;
    rank0.rank = 0;
    pmix_value_t* value = nullptr;
    // Rank 0 may be lost since the fence.
    pmix_info_t limit;
    std::memset(&limit, 0, sizeof limit);
    std::memcpy(limit.key, PMIX_TIMEOUT, sizeof PMIX_TIMEOUT);
    limit.value.type = PMIX_INT;
    limit.value.data.integer = seconds_until(wait.deadline);
    check(library_.get(&rank0, kKey, &limit, 1, &value), "has no value of rank 0");
    if (value == nullptr || value->type != PMIX_STRING || value->data.string == nullptr) {
      throw problem("has no text of rank 0");
    }
    std::string result(value->data.string, strnlen(value->data.string, kMaxText));
    std::free(value->data.string);
    std::free(value);
    return result;
  }

  void finish() override { library_.finalize(nullptr, 0); }
  void abort(int code) override { library_.abort(code, nullptr, nullptr, 0); }

 private:
  void check(pmix_status_t status, const char* what) const {
    if (status != PMIX_SUCCESS) {
      throw problem(fmt::format("{}: {}", what, library_.error_string(status)));
    }
  }

  // Returns when all ranks have called it.
  void fence(const net::Wait& wait) {
    const auto end = std::make_shared<FenceEnd>();
    auto data = std::make_unique<std::shared_ptr<FenceEnd>>(end);
    check(library_.fence(nullptr, 0, nullptr, 0, end_fence, data.get()), "refuses a fence");
    (void)data.release();  // end_fence() deletes it
    switch (net::wait_ready(end->wake_up.fd(), POLLIN, wait)) {
      case net::Ready::kYes:
        check(end->status, "ended the fence");
        return;
      case net::Ready::kTimedOut:
        throw problem("did not answer in time: not all processes of the run have started");
      case net::Ready::kCancelled:
        throw problem("did not answer before this process was stopped");
    }
  }

  const Library library_;
  pmix_proc_t self_;
};

}  // namespace

std::unique_ptr<ProcessManager> connect_pmix(int rank) { return std::make_unique<Pmix>(rank); }

}  // namespace tilewright::elastic
