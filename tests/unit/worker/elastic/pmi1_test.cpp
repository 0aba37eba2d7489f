#include "worker/elastic/pmi1.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "tests/support/running_program.h"

namespace tilewright::elastic {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A process manager in a thread: answers each line of the client with what `answer` returns.
class Manager {
 public:
  using Answer = std::function<std::string(const std::string& line)>;

  explicit Manager(Answer answer) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    client_ = FileDescriptor(ends[0]);
    thread_ = std::thread([answer = std::move(answer), own = FileDescriptor(ends[1])] {
      std::string received;
      char buffer[256];
      while (true) {
        const ssize_t size = read(own.get(), buffer, sizeof buffer);
        if (size <= 0) return;
        received.append(buffer, static_cast<std::size_t>(size));
        for (std::size_t end = 0; (end = received.find('\n')) != std::string::npos;) {
          const std::string text = answer(received.substr(0, end));
          received.erase(0, end + 1);
          if (text == kClose) return;
          // In two parts: a line may arrive in pieces.
          const std::string head = text.substr(0, text.size() / 2);
          if (send(own.get(), head.data(), head.size(), MSG_NOSIGNAL) < 0) return;
          const std::string tail = text.substr(head.size());
          if (send(own.get(), tail.data(), tail.size(), MSG_NOSIGNAL) < 0) return;
        }
      }
    });
  }
  ~Manager() {
    client_.reset();
    thread_.join();
  }
  static constexpr const char* kClose = "close";
  FileDescriptor take_client() { return std::move(client_); }

 private:
  FileDescriptor client_;
  std::thread thread_;
};

net::Wait limit() { return net::within(testing::kTimeout); }

// As hydra_pmi_proxy of MPICH 4.0 answers, with the value that `store` holds.
Manager::Answer hydra(std::string& store) {
  return [&store](const std::string& line) -> std::string {
    if (line == "cmd=init pmi_version=1 pmi_subversion=1")
      return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (line == "cmd=get_maxes") return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    if (line == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0\n";
    const std::string put = "cmd=put kvsname=kvs_1_0 key=tilewright-rendezvous value=";
    if (line.starts_with(put)) {
      store = line.substr(put.size());
      return "cmd=put_result rc=0 msg=success\n";
    }
    if (line == "cmd=barrier_in") return "cmd=barrier_out\n";
    if (line == "cmd=get kvsname=kvs_1_0 key=tilewright-rendezvous")
      return "cmd=get_result rc=0 msg=success value=" + store + "\n";
    if (line == "cmd=finalize") return "cmd=finalize_ack\n";
    return "cmd=unknown rc=-1 msg=" + line + "\n";
  };
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kPeerLost);
    return failure.what();
  }
  return "no failure";
}

TEST(Pmi1, SharesATextOfRank0) {
  std::string store;
  {
    Manager manager(hydra(store));
    Pmi1 rank0(manager.take_client(), 0, limit());
    EXPECT_EQ(rank0.max_text(), 1023u);
    EXPECT_EQ(rank0.share("uid,00ff,10.0.0.1:4000", limit()), "uid,00ff,10.0.0.1:4000");
    rank0.finish();
  }
  EXPECT_EQ(store, "uid,00ff,10.0.0.1:4000");
  Manager manager(hydra(store));
  Pmi1 rank1(manager.take_client(), 1, limit());
  EXPECT_EQ(rank1.share("", limit()), "uid,00ff,10.0.0.1:4000");
}

TEST(Pmi1, RefusesOtherAnswers) {
  const struct {
    const char* request;  // that gets the answer
    const char* answer;
    const char* message;
  } kCases[] = {
      {"cmd=init", "cmd=response_to_init pmi_version=2 rc=0\n", "expected version 1"},
      {"cmd=init", "cmd=response_to_init rc=1\n", "rc=1"},
      {"cmd=init", "nonsense\n", "answered cmd= "},
      {"cmd=get_maxes", "cmd=maxes vallen_max=16\n", "expected vallen_max of 128 or more"},
      {"cmd=get_maxes", "cmd=maxes vallen_max=99999999999999999999999\n", "expected vallen_max"},
      {"cmd=get_maxes", "cmd=maxes\n", "expected vallen_max"},
      {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=\n", "expected kvsname"},
      {"cmd=barrier_in", Manager::kClose, "a process of the run has ended"},
      {"cmd=get ", "cmd=get_result rc=0 msg=success\n", "has no value of rank 0"},
  };
  for (const auto& one : kCases) {
    std::string store;
    Manager manager([&, usual = hydra(store)](const std::string& line) -> std::string {
      return line.starts_with(one.request) ? one.answer : usual(line);
    });
    EXPECT_THAT(failure_of([&] {
                  Pmi1 rank1(manager.take_client(), 1, limit());
                  rank1.share("", limit());
                }),
                HasSubstr(one.message))
        << one.request << " " << one.answer;
  }
}

TEST(Pmi1, DoesNotReadALineWithoutAnEnd) {
  Manager manager([](const std::string&) { return std::string(2 * Pmi1::kMaxLine, 'x'); });
  EXPECT_THAT(failure_of([&] { Pmi1(manager.take_client(), 0, limit()); }),
              HasSubstr("a line of more than 4096 bytes"));
}

TEST(Pmi1, DoesNotPrintTheSecretOfARefusedAnswer) {
  std::string store;
  Manager manager([usual = hydra(store)](const std::string& line) -> std::string {
    return line.starts_with("cmd=get ") ? "cmd=get_result rc=-1 value=0badc0de\n" : usual(line);
  });
  EXPECT_THAT(failure_of([&] {
                Pmi1 rank1(manager.take_client(), 1, limit());
                rank1.share("", limit());
              }),
              Not(HasSubstr("0badc0de")));
}

TEST(Pmi1, EndsAWaitForRanksThatDoNotStart) {
  std::string store;
  Manager manager([usual = hydra(store)](const std::string& line) -> std::string {
    return line == "cmd=barrier_in" ? "" : usual(line);
  });
  Pmi1 rank1(manager.take_client(), 1, limit());
  EXPECT_THAT(failure_of([&] { rank1.share("", net::within(std::chrono::milliseconds(20))); }),
              HasSubstr("not all processes of the run have started"));
}

TEST(Pmi1, EndsAWaitWhenTheProcessIsStopped) {
  std::string store;
  net::WakeUp stop;
  Manager manager([&stop, usual = hydra(store)](const std::string& line) -> std::string {
    if (line != "cmd=barrier_in") return usual(line);
    stop.signal();
    return "";
  });
  Pmi1 rank1(manager.take_client(), 1, limit());
  EXPECT_THAT(failure_of([&] { rank1.share("", net::within(testing::kTimeout, &stop)); }),
              HasSubstr("before this process was stopped"));
}

TEST(Pmi1, FindsFieldsByTheirWholeName) {
  const std::string_view message = "cmd=maxes xrc=7 rc=0 value=a=b";
  EXPECT_EQ(pmi1_field(message, "rc"), "0");
  EXPECT_EQ(pmi1_field(message, "value"), "a=b");
  EXPECT_EQ(pmi1_field(message, "max"), std::nullopt);
  EXPECT_EQ(pmi1_field("", "rc"), std::nullopt);
  EXPECT_EQ(pmi1_field("rc", "rc"), std::nullopt);
}

}  // namespace
}  // namespace tilewright::elastic
