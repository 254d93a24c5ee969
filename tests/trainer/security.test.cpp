// Who may take part in a run, and what becomes of those who may not.

#include "trainer/certificates.hpp"
#include "trainer/run_processes.hpp"
#include "trainer/stranger.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

using namespace syncnorm::train;

namespace {

struct secure_run {
  certificates files;
  arguments options =
      small + arguments{"--devices=cpu", "--epochs=3", "--patience=60"};

  /// Options that make a process a member with that certificate.
  [[nodiscard]] arguments as(const std::string& member,
                             const std::string& ca = "ca.pem") const {
    return {"--tls-certificate=" + files.file(member + ".pem"),
            "--tls-key=" + files.file(member + ".key"),
            "--tls-ca=" + files.file(ca)};
  }
};

/// Fails unless it is one line that contains all of `parts`.
void require_line(const std::string& output,
                  std::initializer_list<std::string> parts) {
  INFO(output);
  CHECK(std::ranges::count(output, '\n') == 1);
  for (const auto& part : parts)
    CHECK(contains(output, part));
}

} // namespace

TEST_CASE_FIXTURE(secure_run,
                  "two processes that speak TLS get the bits of two that do "
                  "not") {
  auto same = small + arguments{"--epochs=3"};
  CHECK(is_same(run(2, "cpu*2", same + as("node")), run(2, "cpu*2", same)));
}

TEST_CASE_FIXTURE(secure_run,
                  "whoever has no good certificate is refused, says so in one "
                  "line and is listed by the server; the others go on") {
  auto first = serve(options + as("server"), 1);
  auto refused = [&](const arguments& who, const std::string& why) {
    std::string output;
    // What the other side says may be lost with the connection that it ends:
    // then once more.
    for (auto i = 0; i < 10 && !contains(output, why); ++i) {
      auto other = join(first.where, options + who);
      CHECK(other->finish() == 1);
      output = other->output();
    }
    require_line(output, {"syncnorm-train: --join: ", why});
  };
  files.show_expired(port_of(first.where));
  refused(as("abroad/foreign", "abroad/ca.pem"),
          "the other side says: unknown CA");
  refused(as("server"), "the other side says: ");
  // The server is not who this one trusts; that it says so to the server may
  // be lost with the connection.
  refused(as("foreign", "foreign-ca.pem"), "no trust between this node and");
  refused({"--patience=0.3"}, "did not answer for 0.3 s");
  auto strangers = disturb(port_of(first.where));
  auto good = join(first.where, options + as("client"));
  // Unlike wait_for, this keeps the lines before.
  REQUIRE(first.process->line_that_begins("mlp, ").starts_with("mlp, "));
  auto late = disturb(port_of(first.where));
  // CAF 0.17 waits for them at its end, for up to 10 s.
  strangers.clear();
  late.clear();
  require_good_end(*first.process);
  require_good_end(*good);
  const auto& said = first.process->output();
  INFO(said);
  for (const auto* line :
       {"127.0.0.1 is refused: certificate has expired\n",
        "127.0.0.1 is refused: self-signed certificate in certificate chain\n",
        "127.0.0.1 is refused: unsuitable certificate purpose\n",
        "127.0.0.1 is refused: wrong version number\n"})
    CHECK(contains(said, line));
}

TEST_CASE_FIXTURE(secure_run,
                  "by TLS, too, a worker that is killed, stopped or leaves "
                  "ends the run for all in time, who learn its name") {
  for (auto number : {SIGKILL, SIGSTOP, SIGINT}) {
    CAPTURE(number);
    running_trio trio{endless + as("node")};
    trio.goes->signal(number);
    require_failure(*trio.first.process, trio.name);
    require_failure(*trio.stays, trio.name);
    trio.goes->kill(SIGKILL);
  }
}

TEST_CASE_FIXTURE(secure_run, "by TLS, too, workers of a server that is killed "
                              "or stopped say so, and end") {
  for (auto number : {SIGKILL, SIGSTOP}) {
    CAPTURE(number);
    running_trio trio{endless + as("node")};
    trio.first.process->signal(number);
    require_failure(*trio.stays, "the serving process is gone");
    require_failure(*trio.goes, "the serving process is gone");
    trio.first.process->kill(SIGKILL);
  }
}

TEST_CASE_FIXTURE(
    secure_run, "a member of TLS does not speak with a server that has none") {
  auto first = serve(options, 1);
  auto other = join(first.where, options + as("client"));
  CHECK(other->finish() == 1);
  require_line(other->output(), {"no trust between", "wrong version number"});
  auto good = join(first.where, options);
  require_good_end(*first.process);
  require_good_end(*good);
}

TEST_CASE_FIXTURE(secure_run,
                  "in a tree whoever does not trust the process above it says "
                  "why, and everybody learns it") {
  auto tree = options + arguments{"--fan-in=2"};
  auto first = serve(tree + as("server"), 4);
  // Others are to connect to some of them, whose certificate is no server's.
  std::vector<child> others;
  for (int i = 0; i < 4; ++i)
    others.push_back(join(first.where, tree + as("client")));
  const std::string why = "the process above it: remote_master: no trust "
                          "between this node and port ";
  require_failure(*first.process, why);
  for (auto& one : others)
    require_failure(*one, why);
}

TEST_CASE_FIXTURE(secure_run, "files of TLS that are missing, unreadable, none "
                              "of their kind, do not match or are not to be "
                              "trusted are one line") {
  REQUIRE(::mkfifo(files.file("pipe").c_str(), 0600) == 0);
  auto encrypt = "openssl pkey -aes256 -passout pass:x -in "
                 + files.file("node.key") + " -out " + files.file("secret.key");
  REQUIRE(std::system(encrypt.c_str()) == 0);
  auto refused = [&](const arguments& tls, const std::string& text) {
    for (const auto* how : {"--serve=127.0.0.1:0", "--join=127.0.0.1:1"}) {
      auto more = std::string{how}.starts_with("--serve")
                      ? arguments{how, "--workers=1"}
                      : arguments{how};
      auto process = start(options + more + tls);
      CHECK(process->finish() == 1);
      require_line(process->output(), {text});
    }
  };
  auto with = [&](std::size_t which, const std::string& option,
                  const std::string& name) {
    auto tls = as("node");
    tls[which] = option + files.file(name);
    return tls;
  };
  refused(
      with(0, "--tls-certificate=", "none.pem"),
      "none.pem: expected a usable certificate in PEM format, found No such "
      "file");
  refused(
      with(0, "--tls-certificate=", "node.key"),
      "node.key: expected a usable certificate in PEM format, found no start "
      "line");
  refused(with(0, "--tls-certificate=", ""), "found Is a directory");
  refused(with(1, "--tls-key=", "none.key"), "found No such file");
  refused(with(1, "--tls-key=", "broken.key"),
          "broken.key: expected the certificate's private key in PEM format, "
          "without a passphrase, found something else");
  refused(with(1, "--tls-key=", "secret.key"),
          "without a passphrase, found bad password read");
  refused(with(1, "--tls-key=", "client.key"),
          "client.key: expected the certificate's private key in PEM format, "
          "without a passphrase, found key values mismatch");
  refused(with(2, "--tls-ca=", "none.pem"), "found No such file");
  refused(with(2, "--tls-ca=", "broken.key"),
          "broken.key: expected certificates of CAs in PEM format, found no "
          "certificate or crl found");
  // Which nobody writes to.
  const auto a_pipe = "found a pipe or a device";
  refused(with(0, "--tls-certificate=", "pipe"), a_pipe);
  refused(with(1, "--tls-key=", "pipe"), a_pipe);
  refused(with(2, "--tls-ca=", "pipe"), a_pipe);
  refused(as("expired"), "expired.pem: expected a certificate that is valid "
                         "now and signed by a CA of ");
  refused(as("foreign"), "found unable to get local issuer certificate");
  refused({"--tls-key=" + files.file("node.key")},
          "--tls-certificate, --tls-key, --tls-ca: expected all three");
  refused(as("node") + arguments{"--insecure"},
          "--insecure, --tls-certificate: expected one of them, found both");
}

TEST_CASE("the server lists, once, each process that it refuses, and why") {
  auto options = small + arguments{"--epochs=2", "--devices=cpu"};
  auto first = serve(options, 1);
  auto other = join(first.where, options + arguments{"--batch=32"});
  auto number = other->id();
  CHECK(other->finish() == 1);
  auto line = fmt::format(":{} is refused: it would train something else: "
                          "expected batch=64, found batch=32\n",
                          number);
  CHECK(contains(other->output(), line));
  auto good = join(first.where, options);
  require_good_end(*first.process);
  require_good_end(*good);
  CHECK(contains(first.process->output(), line));
}
