// A client of PMI-1, the text protocol between a process and Hydra or Slurm's process manager. Each
// message is a line of fields, "cmd=get_result rc=0 value=text".
// Source: "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems" (Balaji
// et al., 2010) and the simple wire protocol of MPICH.
#pragma once

#include <optional>

#include "common/base/file_descriptor.h"
#include "worker/elastic/process_manager.h"

namespace tilewright::elastic {

class Pmi1 : public ProcessManager {
 public:
  static constexpr std::size_t kMaxLine = 4096;  // bytes of a received message

  // `connection`: a stream socket. Greets the process manager.
  Pmi1(FileDescriptor connection, int rank, const net::Wait& wait);

  std::size_t max_text() const override { return max_text_; }
  std::string share(std::string_view text, const net::Wait& wait) override;
  void finish() override;
  void abort(int code) override;

 private:
  void send(std::string_view line);
  // Sends a request and returns the answer, whose cmd is `expected`.
  std::string call(std::string_view request, std::string_view expected, const net::Wait& wait);
  std::string read_line(const net::Wait& wait);

  FileDescriptor connection_;
  const int rank_;
  std::string received_;  // bytes after the last line
  std::string space_;     // kvsname
  std::size_t max_text_ = 0;
};

// The value of a field in a message; nullopt if it is not there.
std::optional<std::string_view> pmi1_field(std::string_view message, std::string_view name);

}  // namespace tilewright::elastic
