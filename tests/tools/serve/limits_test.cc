// What the server does when clients or the device misbehave. On a scripted model, whose steps can be made to hang: no
// test depends on how fast anything is.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <future>

#include "tests/tools/serve/rig.h"

namespace troupe::serve {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

device::ScriptedOptions script(std::optional<std::uint64_t> hangs_at = {}) {
  device::ScriptedOptions s;
  s.context = 4096;
  s.kv_blocks = 1024;
  if (hangs_at) s.faults.push_back({device::ScriptedFault::Kind::hang_step, *hangs_at});
  return s;
}

const std::string kStream = R"(, "stream": true)";

Client begin_stream(const ServeRig& rig, int max_tokens, std::size_t events) {
  Client c = rig.client();
  c.send(Client::post_text("/v1/completions", greedy("1, 2, 3", max_tokens, kStream)));
  EXPECT_TRUE(c.receive_until("data: ", events));
  return c;
}

// "the front forgot the request before the engine heard the cancel; thousands of tokens for nobody": the call stays in
// the books until the runtime has ended it, and nothing is generated for it after the cancel but what was in flight.
TEST(Scenario, StateDroppedFirst) {
  ServeRig rig = scripted_server(script(20));
  Client c = begin_stream(rig, 3000, 5);
  const RuntimeMetrics hung = rig.runtime->metrics();
  c.hang_up();
  eventually([&] { return rig.figure("cancels_acknowledged") == 1; });
  EXPECT_EQ(rig.figure("calls"), 0) << "its last event came with the acknowledgement";
  rig.model->release();
  eventually([&] { return rig.state().at("facts").at("in_flight").as_int64() == 0; });
  EXPECT_LE(rig.tokens(), 20) << "tokens for nobody, past the step that hung";
  EXPECT_EQ(rig.metric("vllm:request_success_total{model_name=\"m\",finished_reason=\"abort\"}"), 1);
  EXPECT_EQ(rig.metric("troupe_requests_abandoned_total{"), 1);
  eventually([&] { return rig.runtime->facts().used_blocks + rig.runtime->facts().fenced_blocks == 0; });
  EXPECT_EQ(rig.runtime->facts().free_slots, hung.facts.total_slots);
}

// "the loop was stuck, health 200, running 2, 0 tokens/s": health is progress (R10).
TEST(Scenario, WedgedHealthy) {
  ServeOptions options;
  options.stall_after = 50ms;
  ServeRig rig = scripted_server(script(10), options);
  EXPECT_EQ(rig.client().get("/health").status, 200);
  Client c = rig.client();
  c.send(Client::post_text("/v1/completions", greedy("1, 2, 3", 40, kStream)));
  eventually([&] { return rig.client().get("/health").status == 503; });
  const Response sick = rig.client().get("/health");
  EXPECT_EQ(sick.error(), "stalled") << sick.body;
  EXPECT_EQ(sick.retry_after, "1");
  rig.model->release();
  EXPECT_EQ(events_of(c.response().body).size(), 41u);
  EXPECT_EQ(rig.client().get("/health").status, 200);
}

TEST(Limits, AClientThatDoesNotReadIsCutOffAndOthersAreNot) {
  ServeOptions options;
  options.stream_buffer = 128 << 10;  // more than all of the short answers, however late they are read
  options.send_buffer = 4 << 10;
  ServeRig rig = scripted_server(script(), options);
  Client slow(rig.server->port(), 4 << 10);
  slow.send(Client::post_text("/v1/completions", greedy("1, 2, 3", 4000, kStream)));
  const std::string wanted = greedy("4, 5", 200, kStream);
  EXPECT_EQ(events_of(rig.client().post("/v1/completions", wanted).body).size(), 201u);
  eventually([&] { return rig.metric("troupe_requests_abandoned_total{") == 1; });
  eventually([&] { return rig.figure("calls") == 0; });
  EXPECT_EQ(slow.receive_all().find("[DONE]"), std::string::npos);
  EXPECT_LT(rig.tokens(), 4200);
  EXPECT_EQ(events_of(rig.client().post("/v1/completions", wanted).body).size(), 201u);
}

TEST(Limits, ClientsThatSendSlowlyHoldUpNobodyAndAreToldSo) {
  ServeOptions options;
  options.header_timeout = options.body_timeout = 100ms;
  ServeRig rig = scripted_server(script(), options);
  std::vector<Client> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(rig.client());
    slow.back().send(i % 2 == 0 ? "POST /v1/completions HTTP/1.1\r\nHo"
                                : "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{");
  }
  Client silent = rig.client();
  EXPECT_EQ(rig.client().post("/v1/completions", greedy("1", 5)).status, 200);
  for (Client& c : slow) EXPECT_EQ(c.response().status, 408);
  EXPECT_EQ(silent.receive_all(), "");
  eventually([&] { return rig.metric("troupe_http_connections{") == 1; });
}

TEST(Limits, ConnectionsPastTheLimitAreToldToComeBack) {
  ServeOptions options;
  options.max_connections = 2;
  ServeRig rig = scripted_server(script(), options);
  Client a = rig.client(), b = rig.client();
  EXPECT_EQ(a.get("/v1/models").status, 200);
  EXPECT_EQ(b.get("/v1/models").status, 200);
  const Response refused = rig.client().get("/v1/models");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.retry_after, "1");
  a.hang_up();
  eventually([&] { return rig.client().get("/v1/models").status == 200; });
}

TEST(Limits, AFullRuntimeIs429) {
  RuntimeOptions runtime;
  runtime.max_live = 2;
  ServeRig rig = scripted_server(script(5), {}, runtime);
  Client c = begin_stream(rig, 50, 1);
  const Response full = rig.client().post("/v1/completions", greedy("1", 5, R"(, "n": 2)"));
  EXPECT_EQ(full.status, 429);
  EXPECT_GE(std::stoi(full.retry_after), 1);
  EXPECT_GE(std::stoi(full.retry_after_ms), 100) << "the runtime's own hint";
  EXPECT_EQ(full.json().at("error").at("type").as_string(), "rate_limit_error");
  rig.model->release();
  EXPECT_EQ(events_of(c.response().body).size(), 51u);
  // The first of the two had been let in, and was taken back.
  eventually([&] { return rig.figure("calls") == 0; });
  EXPECT_EQ(rig.client().post("/v1/completions", greedy("1", 5, R"(, "n": 2)")).status, 200);
}

TEST(Limits, AnAnswerThatWouldNotFitInMemoryIsRefusedUnlessItIsStreamed) {
  ServeRig rig = scripted_server(script());
  const auto ask = [&](int max_tokens, const std::string& more) {
    return rig.client().post("/v1/completions", greedy("1", max_tokens, R"(, "n": 64, "logprobs": 20)" + more));
  };
  const Response whole = ask(800, "");
  EXPECT_EQ(whole.status, 400);
  EXPECT_EQ(whole.json().at("error").at("param").as_string(), "logprobs");
  EXPECT_EQ(ask(5, "").status, 200);
}

TEST(Limits, KeysAreAskedForWhereThereAreSome) {
  ServeOptions options;
  options.api_keys = {"alpha", "beta"};
  ServeRig rig = scripted_server(script(), options);
  Client c = rig.client();
  EXPECT_EQ(c.get("/v1/models").error(), "invalid_api_key");
  for (const char* wrong : {"Bearer gamma", "Bearer alph", "alpha", "Basic alpha", "Bearer "}) {
    EXPECT_EQ(c.get("/v1/models", fmt::format("Authorization: {}\r\n", wrong)).status, 401) << wrong;
  }
  EXPECT_EQ(c.get("/v1/models", "Authorization: Bearer alpha\r\n").status, 200);
  EXPECT_EQ(c.get("/debug/state", "authorization: bearer beta\r\n").status, 200);
  EXPECT_EQ(c.get("/debug/state").status, 401);
  EXPECT_EQ(c.get("/debug/trace").status, 401);
  EXPECT_EQ(c.get("/debug/trace", "authorization: bearer beta\r\n").status, 200);
  EXPECT_EQ(c.post("/v1/completions", greedy("1", 5)).status, 401);
  EXPECT_EQ(c.get("/health").status, 200);
  EXPECT_EQ(c.get("/metrics").status, 200);
}

TEST(Stop, LetsWhatRunsComeToItsEnd) {
  ServeRig rig = scripted_server(script(10));
  Client idle = rig.client();
  EXPECT_EQ(idle.get("/v1/models").status, 200);
  Client c = begin_stream(rig, 60, 1);
  auto stopped = std::async(std::launch::async, [&] { return rig.server->stop(); });
  EXPECT_FALSE(idle.receive()) << "an idle connection closes";
  EXPECT_FALSE(rig.client().connected()) << "no new one is taken";
  rig.model->release();
  EXPECT_EQ(events_of(c.response().body).size(), 61u);
  EXPECT_TRUE(stopped.get());
}

TEST(Stop, EndsWhatTakesTooLongAndSaysSoInTheStream) {
  ServeOptions options;
  options.drain_limit = 1ms;
  auto slow = script();
  slow.step_ns = 2'000'000;
  ServeRig rig = scripted_server(slow, options);
  Client c = begin_stream(rig, 4000, 1);
  EXPECT_FALSE(rig.server->stop());
  const std::string body = c.response().body;
  EXPECT_EQ(body.find("[DONE]"), body.npos);
  const json::value error = json::parse(body.substr(body.rfind("data: ") + 6));
  EXPECT_EQ(error.at("error").at("code").as_string(), "closed") << body;
}

TEST(Stop, ADeadlineOfTheServerIs504) {
  ServeOptions options;
  options.request_timeout = 20ms;
  auto slow = script();
  slow.step_ns = 2'000'000;
  ServeRig rig = scripted_server(slow, options);
  EXPECT_EQ(rig.client().post("/v1/completions", greedy("1", 4000)).status, 504);
}

// A key and a certificate for localhost, signed by itself.
void make_certificate(const std::string& certificate, const std::string& key) {
  EVP_PKEY* pair = EVP_EC_gen("P-256");
  X509* x = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  X509_gmtime_adj(X509_getm_notBefore(x), 0);
  X509_gmtime_adj(X509_getm_notAfter(x), 3600);
  X509_set_pubkey(x, pair);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x, X509_get_subject_name(x));
  X509_sign(x, pair, EVP_sha256());
  std::FILE* out = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(out, x);
  std::fclose(out);
  out = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(out, pair, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  X509_free(x);
  EVP_PKEY_free(pair);
}

// By OpenSSL's own blocking client.
std::string tls_exchange(std::uint16_t port, const std::string& text) {
  Client socket(port);
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, socket.fd());
  std::string out;
  if (SSL_connect(ssl) == 1) {
    SSL_write(ssl, text.data(), static_cast<int>(text.size()));
    char bytes[4096];
    for (int n = 0; (n = SSL_read(ssl, bytes, sizeof bytes)) > 0;) out.append(bytes, static_cast<std::size_t>(n));
    SSL_shutdown(ssl);
  }
  SSL_free(ssl);
  SSL_CTX_free(context);
  return out;
}

TEST(Tls, ServesOverIt) {
  ServeOptions options;
  options.tls_certificate = ::testing::TempDir() + "/certificate.pem";
  options.tls_key = ::testing::TempDir() + "/key.pem";
  make_certificate(options.tls_certificate, options.tls_key);
  options.header_timeout = 100ms;
  ServeRig rig = scripted_server(script(), options);
  const std::string close = "Connection: close\r\n";
  const std::string answer = tls_exchange(rig.server->port(), Client::post_text("/v1/completions", greedy("1, 2", 5, kStream), close));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("[DONE]"), answer.npos) << answer;
  // Who speaks no TLS, or nothing, is cut off; others are served.
  Client plain = rig.client(), silent = rig.client();
  plain.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(plain.receive_all().find("HTTP"), std::string::npos);
  EXPECT_EQ(silent.receive_all(), "");
  EXPECT_TRUE(tls_exchange(rig.server->port(), "GET /health HTTP/1.1\r\nHost: x\r\n" + close + "\r\n").starts_with("HTTP/1.1 200"));
}

TEST(Tls, FilesThatDoNotFitAreRefused) {
  ServeRig rig = scripted_server(script());
  ServeOptions options;
  options.port = 0;
  options.tls_certificate = options.tls_key = "/nonexistent.pem";
  const auto server = Server::start(*rig.runtime, {}, options);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::bad_file);
}

TEST(Start, AnAddressThatIsTakenOrNoneIsRefused) {
  ServeRig rig = scripted_server(script());
  ServeOptions options;
  options.port = rig.server->port();
  EXPECT_EQ(Server::start(*rig.runtime, {}, options).error().code, ErrorCode::io_failed);
  options.address = "somewhere";
  EXPECT_EQ(Server::start(*rig.runtime, {}, options).error().code, ErrorCode::bad_request);
}

}  // namespace
}  // namespace troupe::serve
