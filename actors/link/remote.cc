#include "actors/link/remote.h"

namespace troupe::actors::link {
namespace {

// Hears the transport's thread for the actor.
class Ear final : public Handler {
 public:
  Ear(RemoteActor actor, std::uint32_t number) : actor_(std::move(actor)), number_(number) {}
  void opened(const std::shared_ptr<Connection>& connection) override { caf::anon_send(actor_, LinkUp{number_, connection}); }
  Result<void> on(const Frame& frame) override {
    TROUPE_TRY(auto message, reader_.read(frame));
    caf::anon_send(actor_, LinkSaid{number_, std::move(message), kFrameHead + frame.payload.size()});
    return success();
  }
  void closed(const Error& why) override { caf::anon_send(actor_, LinkDown{number_, why}); }

 private:
  RemoteActor actor_;
  std::uint32_t number_;
  FrameReader reader_{Side::node};
};

}  // namespace

RemoteShell::behavior_type RemoteShell::make_behavior() {
  return {
      [this](const StartReplica& m) { handle(this, m); },
      [this](const StopReplica& m) { handle(this, m); },
      [this](const Admit& m) { handle(this, m); },
      [this](const CancelRequest& m) { handle(this, m); },
      [this](const Drain& m) { handle(this, m); },
      [this](const LoraSubmit& m) {
        if (fits(m.image)) return handle(this, m);
        LoraAnswer refused;
        refused.id = m.id;
        refused.replica = m.replica;
        refused.ack.name = m.command.name;
        refused.error = {ErrorCode::unsupported, "the adapter is too large for a link: load it from a folder on the node"};
        put(std::move(refused));
      },
      [this](const FetchAdapter& m) { handle(this, m); },
      [](const Ended&) {},  // the node's own controller hears of it there
      [](const Halt&) {},   // StopReplica says it
      [this](const AskReport& m) { handle(this, m); },
      [this](const LinkUp& m) {
        wires_.add(m);
        post_.caused_by(0);
        core_.on(Connected{m.number}, now_ns(), out_);
        send_all(this);
      },
      [this](const LinkSaid& m) {
        post_.caused_by(0);
        core_.on(m.number, LinkMessage(m.message), now_ns(), out_);
        send_all(this);
        wires_.taken(m);
      },
      [this](const LinkDown& m) {
        wires_.remove(m.number);
        post_.caused_by(0);
        core_.on(Disconnected{m.number, m.why}, now_ns(), out_);
        send_all(this);
      },
      [this](const Tick& m) {
        if (timer_.due(now_ns(), *this, post_)) handle(this, m);
      },
  };
}

void RemoteShell::put(Connect&& m) {
  setup_.io->connect(setup_.node.host, setup_.node.port, std::make_shared<Ear>(RemoteActor{this}, m.connection));
}

// The dispatcher is told whom to send to.
void RemoteShell::put(ReplicaUp&& m) {
  const RemoteActor self{this};
  Joined joined;
  joined.up = std::move(m);
  post_.stamp(joined.up);
  joined.doors.requests = self;
  joined.doors.scheduler = self;
  joined.doors.lora = self;
  caf::anon_send(setup_.owner, std::move(joined));
}

void RemoteShell::on_exit() {
  wires_.close_all({ErrorCode::closed, "the runtime has stopped"});
  setup_ = {};
  Shell::on_exit();
}

}  // namespace troupe::actors::link
