// Whom a node trusts by TLS.

#include "syncnorm/error.hpp"

#include "tests/actors/outcome.hpp"
#include "tests/actors/served_master.hpp"

#include <doctest/doctest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Another node by TLS.
struct tls_node {
  explicit tls_node(const tls_options& files) : cfg{{.tls = files}} {}

  int types = init_types();
  network_config cfg;
  caf::actor_system system{cfg};
};

} // namespace

TEST_CASE_FIXTURE(master_by_tls, "a node that refuses this one by TLS disturbs "
                                 "no connection to another") {
  tls_node stranger{{.certificate = files.file("foreign.pem"),
                     .key = files.file("foreign.key"),
                     .ca = files.file("foreign-ca.pem")}};
  tls_node trusting{{.certificate = files.file("node.pem"),
                     .key = files.file("node.key"),
                     .ca = files.file("abroad/ca.pem")}};
  auto friendly =
      remote_master<block, block>(trusting.system, "127.0.0.1", publish());
  REQUIRE_MESSAGE(friendly, why_not(friendly));
  auto theirs = spawn_sync_master<block, block>(
      stranger.system, {.layer = "sum"}, [](std::span<identified<block>>) {
        return std::vector<identified<block>>{};
      });
  auto port = publish_master(stranger.system, theirs);
  REQUIRE(port);
  auto refused =
      remote_master<block, block>(trusting.system, "127.0.0.1", *port);
  REQUIRE_FALSE(refused);
  CHECK(code_of(refused.error()) == errc::invalid_argument);
  caf::scoped_actor self{trusting.system};
  for (int i = 0; i < 3; ++i)
    read_metrics(self, *friendly)
        .receive([](const sync_metrics& x) { CHECK(x.layer == "sum"); },
                 [](const caf::error& x) { FAIL_CHECK(describe(x)); });
  caf::anon_send_exit(theirs, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(with_certificates, "that a node was not trusted is no reason "
                                     "any more when it has gone") {
  tls_node here{node()};
  std::uint16_t port = 0;
  auto look = [&] {
    return remote_master<block, block>(here.system, "127.0.0.1", port);
  };
  {
    tls_node foreign{{.certificate = files.file("foreign.pem"),
                      .key = files.file("foreign.key"),
                      .ca = files.file("foreign-ca.pem")}};
    auto theirs = spawn_sync_master<block, block>(
        foreign.system, {.layer = "sum"}, [](std::span<identified<block>>) {
          return std::vector<identified<block>>{};
        });
    auto opened = publish_master(foreign.system, theirs);
    REQUIRE(opened);
    port = *opened;
    auto refused = look();
    REQUIRE_FALSE(refused);
    CHECK(code_of(refused.error()) == errc::invalid_argument);
    caf::anon_send_exit(theirs, caf::exit_reason::user_shutdown);
  }
  auto gone = look();
  REQUIRE_FALSE(gone);
  CHECK_MESSAGE(code_of(gone.error()) == errc::master_down,
                describe(gone.error()));
}

namespace {

/// Certificates of nodes below a CA that is below the one that all trust.
class chain_of_trust : public with_certificates {
public:
  /// @param days  for which the CA in between is good.
  explicit chain_of_trust(int days) {
    make("middle", "ca", "basicConstraints=critical,CA:TRUE", days);
    make("below", "middle", "keyUsage=critical,digitalSignature", 1);
    auto chain = train::read_text(files.file("below.pem"))
                 + train::read_text(files.file("middle.pem"));
    train::write_text(files.file("chain.pem"), chain);
  }

  [[nodiscard]] tls_options shown(const std::string& certificate) const {
    return {.certificate = files.file(certificate),
            .key = files.file("below.key"),
            .ca = files.file("ca.pem")};
  }

private:
  /// NAME.pem and NAME.key, signed by CA.
  void make(const std::string& name, const std::string& ca,
            const std::string& extension, int days) const {
    train::write_text(files.file(name + ".ext"), extension + "\n");
    auto command = "cd " + files.folder()
                   + " && openssl req -newkey ec -pkeyopt "
                     "ec_paramgen_curve:P-256 -nodes -subj /CN="
                   + name + " -keyout " + name + ".key -out " + name
                   + ".csr 2>/dev/null && openssl x509 -req -in " + name
                   + ".csr -CA " + ca + ".pem -CAkey " + ca
                   + ".key -set_serial 7 -days " + std::to_string(days)
                   + " -extfile " + name + ".ext -out " + name
                   + ".pem 2>/dev/null";
    REQUIRE(std::system(command.c_str()) == 0);
  }
};

std::string refusal_of(const tls_options& files) {
  caf::actor_system_config cfg;
  try {
    use_tls(cfg, files);
  } catch (const error& x) {
    return x.what();
  }
  return "none";
}

} // namespace

TEST_CASE("a node shows the CAs between its own certificate and the one that "
          "all trust") {
  chain_of_trust chain{1};
  served_master served{{.tls = chain.shown("chain.pem")}};
  auto port = served.publish();
  served.connect(port);
}

TEST_CASE("a CA between a node's certificate and the one that all trust must "
          "be shown, and good") {
  auto refusal = [](const chain_of_trust& chain, const std::string& shown) {
    return refusal_of(chain.shown(shown));
  };
  CHECK(refusal(chain_of_trust{1}, "below.pem")
            .ends_with("found unable to get local issuer certificate"));
  CHECK(refusal(chain_of_trust{-1}, "chain.pem")
            .ends_with("found certificate has expired, at a CA above it"));
}

TEST_CASE_FIXTURE(master_by_tls, "what a reduction leaves among OpenSSL's "
                                 "errors ends no connection of its thread") {
  sync_reduction<block, block> last{.merge =
                                        [](std::span<identified<block>> parts) {
                                          ERR_raise(ERR_LIB_USER,
                                                    ERR_R_INTERNAL_ERROR);
                                          return parts.back().message;
                                        },
                                    .finish = [](block x) { return x; }};
  auto reduction = spawn_sync_master<block, block>(
      system, {.layer = "last", .deadline = std::chrono::seconds{20}}, last);
  auto port = publish_master(system, reduction);
  REQUIRE(port);
  auto pipe = register_slave_thread<block, block>(other, connect(*port), 1);
  REQUIRE(pipe);
  caf::scoped_actor owner{system};
  for (auto round = 0; round < 5; ++round) {
    auto reply = run_master(owner, reduction, block{1});
    // Behind the owner's message, so that the round ends with the slave's.
    detail::request(owner, reduction, nr_slaves_atom_v)
        .receive([](std::uint64_t) {},
                 [](const caf::error& x) { FAIL(describe(x)); });
    auto outcome = pipe->run_slave(block{2});
    REQUIRE_MESSAGE(outcome, why_not(outcome));
    std::move(reply).receive([](const block& x) { CHECK(x[0] == 2); },
                             [](const caf::error& x) { FAIL(describe(x)); });
  }
  caf::anon_send_exit(reduction, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(master_by_tls,
                  "of many messages that come in one piece of TLS "
                  "none waits for the next piece") {
  auto remote = connect(publish());
  caf::scoped_actor self{other};
  constexpr auto requests = 1000;
  std::vector<decltype(detail::request_within(self, caf::timespan{}, remote,
                                              nr_slaves_atom_v))>
      answers;
  for (auto i = 0; i < requests; ++i)
    answers.push_back(detail::request_within(self, std::chrono::minutes{1},
                                             remote, nr_slaves_atom_v));
  for (auto& x : answers)
    std::move(x).receive([](std::uint64_t) {},
                         [](const caf::error& e) { FAIL(describe(e)); });
}

TEST_CASE_FIXTURE(master_by_tls, "a node with certificates serves at any "
                                 "address") {
  auto port = publish_master(system, master, {.address = "0.0.0.0"});
  CHECK_MESSAGE(port, why_not(port));
}

TEST_CASE_FIXTURE(with_certificates, "OpenSSL's errors of a connection that "
                                     "another part of the program makes are "
                                     "left to it") {
  caf::actor_system_config cfg;
  use_tls(cfg, node());
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context{
      SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  REQUIRE(context);
  std::unique_ptr<SSL, void (*)(SSL*)> connection{SSL_new(context.get()),
                                                  SSL_free};
  REQUIRE(connection);
  // Its own from now on.
  SSL_set_bio(connection.get(), BIO_new_mem_buf("HTTP/1.1 400 Bad Request", -1),
              BIO_new(BIO_s_mem()));
  ERR_clear_error();
  CHECK(SSL_connect(connection.get()) < 0);
  CHECK(ERR_GET_REASON(ERR_get_error()) == SSL_R_WRONG_VERSION_NUMBER);
}
