// Embedding the runtime: load a model, start, submit one chat, print the answer as it comes.
#include <cstdio>
#include <future>

#include "actors/runtime.h"
#include "device/models/load.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: embed MODEL.gguf PROMPT\n"), 2;

  auto loaded = troupe::device::load_model(argv[1], {.exact = true});
  if (!loaded) return std::fprintf(stderr, "%s\n", loaded.error().what.c_str()), 1;
  auto& model = loaded.value();

  troupe::Request request;
  request.client = 1;  // unique among the requests that are live
  request.stop.max_tokens = 64;
  auto prompt = model.text.encode_chat(std::vector<troupe::device::ChatMessage>{{"user", argv[2]}});
  if (!prompt) return std::fprintf(stderr, "%s\n", prompt.error().what.c_str()), 1;
  request.prompt = prompt.value();

  auto runtime = troupe::Runtime::start({.depth = 2}, std::move(model.driver), std::move(model.model));
  if (!runtime) return std::fprintf(stderr, "%s\n", runtime.error().what.c_str()), 1;

  std::promise<troupe::FinishReason> ended;
  auto id = runtime.value()->submit(request, [&](const troupe::RequestEvent& event) {  // on the delivery thread
    std::fwrite(event.text.data(), 1, event.text.size(), stdout);
    if (event.finish != nullptr) ended.set_value(event.finish->reason);
  });
  if (!id) return std::fprintf(stderr, "%s\n", id.error().what.c_str()), 1;

  std::printf("\n[%s]\n", troupe::name(ended.get_future().get()));
  return runtime.value()->stop() ? 0 : 1;
}
