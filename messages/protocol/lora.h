// LoRA: dispatcher <-> controllers <-> loader, scheduler, router; router <-> stream actor. See protocol.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/ids.h"
#include "messages/lora.h"
#include "messages/protocol/requests.h"
#include "messages/shared.h"
#include "messages/trace_ctx.h"

namespace troupe {

struct LoraSubmit {  // runtime -> dispatcher -> LoRA controllers, one after the other; answered by LoraAnswer
  TraceCtx ctx;
  std::uint64_t id = 0;  // of the command; what it loads is known by it, on every replica
  LoraCommand command;
  ReplicaRef replica{};
  Shared<AdapterImage> image{};  // promote: what the other replica had in its memory
};
struct LoraAnswer {
  TraceCtx ctx;
  std::uint64_t id = 0;
  LoraAck ack;
  Error error;
  ReplicaRef replica{};
};
// LoRA controller -> dispatcher, where there are other replicas: what the request was bound to, before its first token.
struct LoraBound {
  TraceCtx ctx;
  Placed request;
  std::uint64_t command = 0;  // the LoraSubmit that loaded the adapter; 0 = the base model
  ReplicaRef replica{};
};
struct FetchAdapter {  // dispatcher -> the LoRA controller of the replica that has it; answered by AdapterFetched
  TraceCtx ctx;
  std::uint64_t id = 0;
  std::string name;
  ReplicaRef replica{};
};
struct AdapterFetched {
  TraceCtx ctx;
  std::uint64_t id = 0;
  Shared<AdapterImage> image;
  Error error;  // unknown_adapter, unsupported, io_failed
  ReplicaRef replica{};
};
struct LoadAdapter {  // controller -> loader: into a slot of the model's memory that is not in the table
  TraceCtx ctx;
  std::uint64_t id = 0;
  std::uint32_t slot = 0;
  std::string path;
  Shared<AdapterImage> image{};  // in the place of what is in `path`
};
struct AdapterLoaded {
  TraceCtx ctx;
  std::uint64_t id = 0;
  Error error;
};
struct ReadAdapter {  // controller -> loader: out of a slot of the model's memory; answered by AdapterRead
  TraceCtx ctx;
  std::uint64_t id = 0;
  std::uint32_t slot = 0;
};
struct AdapterRead {
  TraceCtx ctx;
  std::uint64_t id = 0;
  Shared<AdapterImage> image;
  Error error;
};
struct LoraHold {  // controller -> scheduler: preempt its users and open none until `until`, or the Resume before it
  TraceCtx ctx;
  AdapterRef adapter;
  TimeNs until = 0;
};
struct LoraResume {  // controller -> scheduler; gone: requests that are bound to it end with adapter_gone
  TraceCtx ctx;
  AdapterRef adapter;
  bool gone = false;
};
struct Lora {  // controller -> router: change the table, once nothing names what goes out of it; answered by LoraReply
  TraceCtx ctx;
  LoraCommand command;    // what it is for
  AdapterRef show{};      // slot 0: none
  AdapterRef hide{};      // slot 0: none
  bool withdraw = false;  // no longer: it is answered not_quiescent, unless it is done already
};
struct ChangeTable {  // router -> stream actor, in order with the steps
  TraceCtx ctx;
  AdapterRef show;
  AdapterRef hide;
};
struct TableChanged {
  TraceCtx ctx;
  Error error;
};
struct LoraReply {
  TraceCtx ctx;
  LoraAck ack;
  DeviceError error;
};

template <class I>
auto inspect(I& f, LoraSubmit& x) {
  return f(x.ctx, x.id, x.command, x.replica, x.image);
}
template <class I>
auto inspect(I& f, LoraAnswer& x) {
  return f(x.ctx, x.id, x.ack, x.error, x.replica);
}
template <class I>
auto inspect(I& f, LoraBound& x) {
  return f(x.ctx, x.request, x.command, x.replica);
}
template <class I>
auto inspect(I& f, FetchAdapter& x) {
  return f(x.ctx, x.id, x.name, x.replica);
}
template <class I>
auto inspect(I& f, AdapterFetched& x) {
  return f(x.ctx, x.id, x.image, x.error, x.replica);
}
template <class I>
auto inspect(I& f, LoadAdapter& x) {
  return f(x.ctx, x.id, x.slot, x.path, x.image);
}
template <class I>
auto inspect(I& f, AdapterLoaded& x) {
  return f(x.ctx, x.id, x.error);
}
template <class I>
auto inspect(I& f, ReadAdapter& x) {
  return f(x.ctx, x.id, x.slot);
}
template <class I>
auto inspect(I& f, AdapterRead& x) {
  return f(x.ctx, x.id, x.image, x.error);
}
template <class I>
auto inspect(I& f, LoraHold& x) {
  return f(x.ctx, x.adapter, x.until);
}
template <class I>
auto inspect(I& f, LoraResume& x) {
  return f(x.ctx, x.adapter, x.gone);
}
template <class I>
auto inspect(I& f, Lora& x) {
  return f(x.ctx, x.command, x.show, x.hide, x.withdraw);
}
template <class I>
auto inspect(I& f, ChangeTable& x) {
  return f(x.ctx, x.show, x.hide);
}
template <class I>
auto inspect(I& f, TableChanged& x) {
  return f(x.ctx, x.error);
}
template <class I>
auto inspect(I& f, LoraReply& x) {
  return f(x.ctx, x.ack, x.error);
}

std::string label(const LoraSubmit& x);
std::string label(const LoraAnswer& x);
std::string label(const LoraBound& x);
std::string label(const FetchAdapter& x);
std::string label(const AdapterFetched& x);
std::string label(const LoadAdapter& x);
std::string label(const AdapterLoaded& x);
std::string label(const ReadAdapter& x);
std::string label(const AdapterRead& x);
std::string label(const LoraHold& x);
std::string label(const LoraResume& x);
std::string label(const Lora& x);
std::string label(const ChangeTable& x);
std::string label(const TableChanged& x);
std::string label(const LoraReply& x);

}  // namespace troupe
