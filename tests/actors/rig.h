// A runtime on the scripted model, and clients that write down what they get.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/runtime.h"
#include "device/host/driver.h"
#include "device/models/scripted.h"

namespace troupe::test {

// What the callbacks of one request said. A second end, a token after the end or a gap is `wrong`.
struct Record {
  std::vector<Token> tokens;
  std::string text;
  std::optional<Finish> finish;
  std::string wrong;
};

class Clients {
 public:
  RequestCallback callback(std::uint64_t client) {
    return [this, client](const RequestEvent& event) { take(client, event); };
  }
  // Waits until so many requests have ended.
  void wait_ended(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= n; });
  }
  void wait_tokens(std::uint64_t client, std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return records_[client].tokens.size() >= n || records_[client].finish; });
  }
  Record record(std::uint64_t client) {
    const std::lock_guard lock(mutex_);
    return records_[client];
  }
  std::map<std::uint64_t, Record> all() {
    const std::lock_guard lock(mutex_);
    return records_;
  }

 private:
  void take(std::uint64_t client, const RequestEvent& event) {
    const std::lock_guard lock(mutex_);
    Record& r = records_[client];
    if (r.finish) r.wrong += "event after the end; ";
    if ((event.token == nullptr) == (event.finish == nullptr)) r.wrong += "neither token nor end; ";
    r.text += event.text;
    if (event.token != nullptr) {
      if (event.token->index != r.tokens.size()) r.wrong += "token " + std::to_string(event.token->index) + " out of order; ";
      r.tokens.push_back(event.token->id);
    }
    if (event.finish != nullptr) {
      r.finish = *event.finish;
      ++ended_;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Record> records_;
  std::size_t ended_ = 0;
};

struct Rig {
  std::unique_ptr<Clients> clients = std::make_unique<Clients>();
  device::Driver* driver = nullptr;  // the runtime's
  device::ScriptedModel* model = nullptr;
  std::unique_ptr<Runtime> runtime;
};

inline Rig make_rig(const RuntimeOptions& options, const device::ScriptedOptions& script,
                    std::unique_ptr<device::Driver> driver = device::make_host_driver()) {
  Rig rig;
  rig.driver = driver.get();
  auto model = device::ScriptedModel::load(*driver, script);
  EXPECT_TRUE(model) << model.error().what;
  rig.model = model.value().get();
  RuntimeOptions settings = options;
  if (settings.trace.flight_dir.empty()) settings.trace.flight_dir = testing::TempDir();
  auto runtime = Runtime::start(settings, std::move(driver), std::move(model.value()));
  EXPECT_TRUE(runtime) << runtime.error().what;
  rig.runtime = std::move(runtime.value());
  return rig;
}

inline Request make_request(std::uint64_t client, std::size_t prompt, std::uint32_t max_tokens, const device::ScriptedOptions& script) {
  Request r;
  r.client = client;
  for (std::size_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<Token>((client * 31 + i * 7) % (script.vocab - 1)));
  r.stop.max_tokens = max_tokens;
  return r;
}

// What a greedy request gets, by the model's arithmetic alone.
inline std::vector<Token> expected(const Request& r, const device::ScriptedOptions& script) {
  device::ScriptedOracle oracle(script);
  for (const Token id : r.prompt) oracle.push(id);
  std::vector<Token> out;
  while (out.size() < r.stop.max_tokens && r.prompt.size() + out.size() < script.context) {
    const Token id = oracle.next();
    out.push_back(id);
    oracle.push(id);
    if (!r.stop.ignore_eos && id == script.eos()) break;
  }
  return out;
}

}  // namespace troupe::test
