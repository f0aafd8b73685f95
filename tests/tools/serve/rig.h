// A server in the test's own process, over a scripted model or a tiny real one.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "actors/runtime.h"
#include "device/host/driver.h"
#include "device/models/load.h"
#include "device/models/scripted.h"
#include "tests/tools/serve/client.h"
#include "tools/serve/server.h"

namespace troupe::serve {

inline const std::string kTinyModel = "tests/golden/tiny-llama/tiny-llama.F32.gguf";

struct ServeRig {
  device::ScriptedModel* model = nullptr;  // the runtime's
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Server> server;

  Client client() const { return Client(server->port()); }
  boost::json::value state() const { return client().get("/debug/state").json(); }
  std::int64_t figure(const char* name) const { return state().at(name).as_int64(); }
  std::int64_t tokens() const { return state().at("scheduler").at("tokens").as_int64(); }

  // The value of a metric's first line with that beginning.
  double metric(const std::string& name) const {
    const std::string text = '\n' + client().get("/metrics").body;
    const std::size_t at = text.find('\n' + name);
    EXPECT_NE(at, text.npos) << name;
    return at == text.npos ? -1 : std::stod(text.substr(text.find(' ', at)));
  }
};

// Until `what` holds; a test that waits for ever is ended by its time limit.
template <class F>
void eventually(F what) {
  while (!what()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

inline ServeRig serve_over(std::unique_ptr<device::Driver> driver, std::unique_ptr<device::ModelDeviceFeed> model, device::TextSide text,
                           ServeOptions options, const RuntimeOptions& runtime) {
  ServeRig rig;
  auto started = Runtime::start(runtime, std::move(driver), std::move(model));
  EXPECT_TRUE(started) << started.error().what;
  rig.runtime = std::move(started.value());
  options.port = 0;
  options.model_name = "m";
  auto server = Server::start(*rig.runtime, std::move(text), options);
  EXPECT_TRUE(server) << server.error().what;
  rig.server = std::move(server.value());
  return rig;
}

inline ServeRig scripted_server(device::ScriptedOptions script, const ServeOptions& options = {}, const RuntimeOptions& runtime = {}) {
  auto text = device::load_text(kTinyModel);
  EXPECT_TRUE(text) << text.error().what;
  auto driver = device::make_host_driver();
  auto model = device::ScriptedModel::load(*driver, std::move(script));
  EXPECT_TRUE(model) << model.error().what;
  device::ScriptedModel* raw = model.value().get();
  ServeRig rig = serve_over(std::move(driver), std::move(model.value()), std::move(text.value()), options, runtime);
  rig.model = raw;
  return rig;
}

inline ServeRig tiny_server(const ServeOptions& options = {}, const RuntimeOptions& runtime = {}) {
  auto loaded = device::load_model(kTinyModel, {.exact = true, .threads = 1, .kv_blocks = 512, .max_loras = 2});
  EXPECT_TRUE(loaded) << loaded.error().what;
  auto& m = loaded.value();
  return serve_over(std::move(m.driver), std::move(m.model), std::move(m.text), options, runtime);
}

// A completion of `prompt_ids`, greedy, that does not end by itself before `max_tokens`.
inline std::string greedy(const std::string& prompt_ids, int max_tokens, const std::string& more = "") {
  return fmt::format(R"({{"prompt": [{}], "temperature": 0, "ignore_eos": true, "max_tokens": {}{}}})", prompt_ids, max_tokens, more);
}

}  // namespace troupe::serve
