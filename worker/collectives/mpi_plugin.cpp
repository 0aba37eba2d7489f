// The plugin tilewright-mpi.so: MpiPort over Open MPI. It links nothing of Tilewright.
// Source: MPI 3.1, chapters 3 (point-to-point; 3.8.2 matched probes) and 12.4 (threads).
#define OMPI_SKIP_MPICXX 1  // the C++ interface was removed from MPI
#include <mpi.h>

#include <array>
#include <cstdio>
#include <new>
#include <vector>

#include "worker/collectives/mpi_port.h"

namespace {

using tilewright::collectives::kMpiPortVersion;
using tilewright::collectives::MpiPort;

class OpenMpi : public MpiPort {
 public:
  // Returns what went wrong, or nullptr.
  const char* open() {
    int started = 0, provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&started);
    if (started != 0) return "MPI is in use already";
    // The main thread and the communication thread call MPI one after another.
    if (failed(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init"))
      return text_.data();
    if (provided < MPI_THREAD_SERIALIZED)
      return "the library lacks MPI_THREAD_SERIALIZED, which the communication thread needs";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (failed(MPI_Comm_dup(MPI_COMM_WORLD, &ranks_), "MPI_Comm_dup")) return text_.data();
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &world_);
    probed_.resize(static_cast<std::size_t>(world_));
    int size = 0;
    MPI_Get_library_version(library_.data(), &size);
    for (char& letter : library_) {
      if (letter == ',' || letter == '\n') letter = '\0';
    }
    return nullptr;
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  const char* library() const override { return library_.data(); }

  Problem start_send(int peer, const void* data, std::size_t bytes, Request& request) override {
    auto* handle = new (std::nothrow) MPI_Request;
    if (handle == nullptr) return "no memory for a request";
    if (failed(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, kTag, ranks_, handle),
               "MPI_Isend")) {
      delete handle;
      return text_.data();
    }
    request = handle;
    return nullptr;
  }

  Problem probe(int peer, long long& bytes) override {
    Probed& one = probed_[static_cast<std::size_t>(peer)];
    int arrived = 0;
    MPI_Status status;
    bytes = kNone;
    if (failed(MPI_Improbe(peer, kTag, ranks_, &arrived, &one.message, &status), "MPI_Improbe"))
      return text_.data();
    if (arrived == 0) return nullptr;
    MPI_Get_count(&status, MPI_BYTE, &one.bytes);
    if (one.bytes == MPI_UNDEFINED) return "MPI_Get_count has no size of a message";
    bytes = one.bytes;
    return nullptr;
  }

  Problem start_receive(int peer, void* into, Request& request) override {
    Probed& one = probed_[static_cast<std::size_t>(peer)];
    auto* handle = new (std::nothrow) MPI_Request;
    if (handle == nullptr) return "no memory for a request";
    if (failed(MPI_Imrecv(into, one.bytes, MPI_BYTE, &one.message, handle), "MPI_Imrecv")) {
      delete handle;
      return text_.data();
    }
    request = handle;
    return nullptr;
  }

  Problem test(Request& request) override {
    int complete = 0;
    auto* handle = static_cast<MPI_Request*>(request);
    if (failed(MPI_Test(handle, &complete, MPI_STATUS_IGNORE), "MPI_Test")) return text_.data();
    if (complete == 0) return nullptr;
    delete handle;
    request = nullptr;
    return nullptr;
  }

  Problem finish() override {
    MPI_Comm_free(&ranks_);
    return failed(MPI_Finalize(), "MPI_Finalize") ? text_.data() : nullptr;
  }

 private:
  static constexpr int kTag = 1;

  // A message that MPI_Improbe has matched.
  struct Probed {
    MPI_Message message = MPI_MESSAGE_NULL;
    int bytes = 0;
  };

  bool failed(int code, const char* call) {
    if (code == MPI_SUCCESS) return false;
    std::array<char, MPI_MAX_ERROR_STRING> reason{};
    int size = 0;
    MPI_Error_string(code, reason.data(), &size);
    std::snprintf(text_.data(), text_.size(), "%s: %s", call, reason.data());
    return true;
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0, world_ = 1;
  std::vector<Probed> probed_;  // by rank
  std::array<char, MPI_MAX_ERROR_STRING + 64> text_{};
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library_{};
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* tilewright_open_mpi_port(
    int version, MpiPort** port) {
  if (version != kMpiPortVersion) return "it belongs to another release of Tilewright";
  static OpenMpi mpi;  // MPI can be initialised once in a process
  const char* problem = mpi.open();
  *port = problem == nullptr ? &mpi : nullptr;
  return problem;
}
