#include "actors/lora/actor.h"

#include <exception>
#include <string>
#include <utility>

namespace troupe::actors {

LoraShell::behavior_type LoraShell::make_behavior() {
  return {
      [this](const Attach& m) { peers_ = m.peers; },
      [this](const Admit& m) { handle(this, m); },
      [this](const CancelRequest& m) { handle(this, m); },
      [this](const Drain& m) { handle(this, m); },
      [this](const Ended& m) { handle(this, m); },
      [this](const LoraSubmit& m) { handle(this, m); },
      [this](const AdapterLoaded& m) { handle(this, m); },
      [this](const FetchAdapter& m) { handle(this, m); },
      [this](const AdapterRead& m) { handle(this, m); },
      [this](const LoraReply& m) { handle(this, m); },
      [this](const Tick& m) {
        if (timer_.due(now_ns(), *this, post_)) handle(this, m);
      },
  };
}

LoaderShell::LoaderShell(caf::actor_config& config, std::shared_ptr<Counts> counts, device::ModelDeviceFeed* model)
    : LoaderActor::base(config), model_(*model), post_(Sender::loader, std::move(counts)) {
  keep_quiet(*this);
}

LoaderShell::behavior_type LoaderShell::make_behavior() {
  return {
      [this](const Attach& m) { peers_ = m.peers; },
      [this](const ReadAdapter& m) {
        post_.handling(m, now_ns());
        AdapterRead read;
        read.id = m.id;
        try {  // as below
          if (auto image = model_.read_adapter(m.slot); image)
            read.image = Shared<AdapterImage>::of(std::move(image).value());
          else
            read.error = image.error();
        } catch (const std::exception& e) {
          read.error = Error{ErrorCode::internal, std::string("the adapter could not be read out of the model's memory: ") + e.what()};
        }
        post_.send(peers_->lora, std::move(read), context());
      },
      [this](const LoadAdapter& m) {
        post_.handling(m, now_ns());
        AdapterLoaded done;
        done.id = m.id;
        try {  // what a library throws (memory, above all) is the load's error and nobody's end
          const auto loaded = m.image ? model_.load_adapter_image(m.slot, *m.image) : model_.load_adapter(m.slot, m.path);
          if (!loaded) done.error = loaded.error();
        } catch (const std::exception& e) {
          done.error = Error{ErrorCode::internal, m.path + ": " + e.what()};
        }
        post_.send(peers_->lora, std::move(done), context());
      },
  };
}

}  // namespace troupe::actors
