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
        read.error = Error{ErrorCode::unsupported, "this model cannot read an adapter out of its memory; load it from its folder"};
        post_.send(peers_->lora, std::move(read), context());
      },
      [this](const LoadAdapter& m) {
        post_.handling(m, now_ns());
        AdapterLoaded done;
        done.id = m.id;
        if (m.image)
          done.error = Error{ErrorCode::unsupported, "this model cannot take an adapter from another's memory; load it from its folder"};
        if (!m.image) try {  // what a library throws (memory, above all) is the load's error and nobody's end
            if (const auto loaded = model_.load_adapter(m.slot, m.path); !loaded) done.error = loaded.error();
          } catch (const std::exception& e) {
            done.error = Error{ErrorCode::internal, m.path + ": " + e.what()};
          }
        post_.send(peers_->lora, std::move(done), context());
      },
  };
}

}  // namespace troupe::actors
