// The calls of an MPI library that MpiTransport needs. A plugin implements them with Open MPI, so
// that the programs run where no MPI is installed. The plugin is built from the same sources as the
// program; only these types cross the boundary, and no exceptions.
#pragma once

#include <cstddef>

namespace tilewright::collectives {

// Not thread-safe, but different threads may call it one after another.
class MpiPort {
 public:
  using Request = void*;  // a transfer in progress; nullptr: none
  // nullptr: success. Otherwise what went wrong, valid until the next call.
  using Problem = const char*;
  static constexpr long long kNone = -1;

  virtual ~MpiPort() = default;
  virtual int rank() const = 0;   // in MPI_COMM_WORLD
  virtual int world() const = 0;  // size of MPI_COMM_WORLD
  // Name and version of the library.
  virtual const char* library() const = 0;

  // Starts to send a message of up to 1 GiB. The memory must not change until test() says that the
  // request is complete.
  virtual Problem start_send(int peer, const void* data, std::size_t bytes, Request& request) = 0;
  // Takes the next message of a peer, in the order of sending, if it has arrived: its size, or
  // kNone. start_receive() must follow.
  virtual Problem probe(int peer, long long& bytes) = 0;
  // Starts to receive the message that probe() took.
  virtual Problem start_receive(int peer, void* into, Request& request) = 0;
  // Sets the request to nullptr if it is complete.
  virtual Problem test(Request& request) = 0;
  // MPI_Finalize: returns when all ranks have called it.
  virtual Problem finish() = 0;
};

inline constexpr int kMpiPortVersion = 1;
inline constexpr const char* kOpenMpiPort = "tilewright_open_mpi_port";
// The plugin's function of that name: MPI_Init_thread. Returns nullptr and the port, or what went
// wrong, for the end of a message. Call it once in a process, from its main thread.
using OpenMpiPort = const char* (*)(int version, MpiPort** port);

}  // namespace tilewright::collectives
