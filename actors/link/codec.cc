#include "actors/link/codec.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace troupe::actors::link {
namespace {

Error bad(std::string what) { return {ErrorCode::bad_file, std::move(what)}; }

template <std::size_t I>
trace::Status read_as(trace::Decoder& in, LinkMessage& out) {
  return in.get(out.emplace<I>());
}
using ReadAs = trace::Status (*)(trace::Decoder&, LinkMessage&);

template <std::size_t... Is>
constexpr std::array<ReadAs, sizeof...(Is)> readers(std::index_sequence<Is...>) {
  return {&read_as<Is>...};
}
template <std::size_t... Is>
constexpr std::array<bool, sizeof...(Is)> allowed(std::index_sequence<Is...>, Side sender) {
  return {(sender == Side::runtime ? kToNode<std::variant_alternative_t<Is, LinkMessage>>
                                   : kFromNode<std::variant_alternative_t<Is, LinkMessage>>)...};
}
constexpr auto kAll = std::make_index_sequence<std::variant_size_v<LinkMessage>>{};
constexpr auto kReaders = readers(kAll);
constexpr auto kByRuntime = allowed(kAll, Side::runtime);
constexpr auto kByNode = allowed(kAll, Side::node);

// ---- what receivers rely on

template <class E>
bool past(E x, E last) {
  return x > last;
}
bool wrong(const Error& e) { return past(e.code, kLastErrorCode); }
bool outside(std::size_t begin, std::size_t size, std::size_t whole) { return begin > whole || size > whole - begin; }

std::string fault(const Hello& m) {
  if (m.magic != kMagic) return "this is no link of ours";
  if (m.ref.incarnation == 0 || m.owner == 0) return "it does not say who it is";
  if (m.heartbeat < kShortestHeartbeat || m.silence < 2 * m.heartbeat) return "its times make no sense";
  return {};
}
std::string fault(const Welcome& m) {
  const ModelInfo& i = m.model;
  return i.vocab_size == 0 || i.context_length == 0 || i.block_size == 0 ? "its model has no tokens, positions or blocks" : "";
}
std::string fault(const Refused& m) { return wrong(m.error) || m.error.code == ErrorCode::none ? "no such error" : ""; }
std::string fault(const Heartbeat&) { return {}; }
std::string fault(const Admit& m) {
  if (!m.request) return "there is no request in it";
  if (m.id.generation == 0 || m.id.client != m.request->client) return "it has no id, or another request's";
  return wrong(m.error) ? "no such error" : "";
}
std::string fault(const CancelRequest&) { return {}; }
std::string fault(const Drain&) { return {}; }
std::string fault(const LoraSubmit& m) {
  const LoraCommand& c = m.command;
  return past(c.kind, LoraCommand::Kind::list) || past(c.at_bound, LoraCommand::AtBound::preempt) ? "no such command" : "";
}
std::string fault(const FetchAdapter&) { return {}; }
std::string fault(const AskReport&) { return {}; }
std::string fault(const Deliver& m) {
  if (!m.batch) return "there are no tokens in it";
  const TokenBatch& b = *m.batch;
  for (const TokenEvent& e : b.events) {
    if (outside(e.text_begin, e.text_size, b.text.size()) || outside(e.best_begin, e.best_size, b.best.size()))
      return "a token outside of its batch";
  }
  for (const Finish& e : b.finishes) {
    if (outside(e.text_begin, e.text_size, b.text.size())) return "an end outside of its batch";
    if (past(e.reason, FinishReason::error) || wrong(e.error)) return "no such end";
  }
  return {};
}
std::string fault(const Ended&) { return {}; }
std::string fault(const CancelReply& m) { return past(m.outcome, CancelOutcome::not_found) ? "no such outcome" : ""; }
std::string fault(const Drained&) { return {}; }
std::string fault(const LoraAnswer& m) {
  bool any = wrong(m.error);
  for (const LoraOutcome& o : m.ack.replicas) any = any || wrong(o.error);
  return any ? "no such error" : "";
}
std::string fault(const LoraBound&) { return {}; }
std::string fault(const AdapterFetched& m) {
  return wrong(m.error) ? "no such error" : m.error.code == ErrorCode::none && !m.image ? "there is no adapter in it" : "";
}
std::string fault(const ReplicaLost& m) { return wrong(m.error) ? "no such error" : ""; }
std::string fault(const ReplicaReport&) { return {}; }

}  // namespace

std::string fault_of(const LinkMessage& message) {
  return std::visit([](const auto& m) { return fault(m); }, message);
}

std::uint64_t token_hash(const Shared<TokenTable>& tokens) {
  std::uint64_t h = 0xCBF29CE484222325ull;  // FNV-1a
  const auto mix = [&h](std::uint64_t x) { h = (h ^ x) * 0x100000001B3ull; };
  if (!tokens) return h;
  for (const std::uint32_t x : tokens->offsets) mix(x);
  for (const char c : tokens->bytes) mix(static_cast<std::uint8_t>(c));
  for (const std::uint8_t x : tokens->special) mix(x);
  return h;
}

void FrameWriter::begin(std::uint8_t type) {
  bytes_.clear();
  const std::uint8_t head[kFrameHead] = {0, 0, 0, 0, type};
  bytes_.raw(head, sizeof head);
  bytes_.varint(++number_);
}

std::span<const std::uint8_t> FrameWriter::end() {
  const std::size_t length = bytes_.size() - 4;
  for (unsigned i = 0; i < 4; ++i) bytes_.data()[i] = static_cast<std::uint8_t>(length >> (8 * i));
  return {bytes_.data(), bytes_.size()};
}

Result<LinkMessage> FrameReader::read(const Frame& frame) {
  constexpr std::uint8_t kHello = type_of<Hello>();
  const auto& allowed = sender_ == Side::runtime ? kByRuntime : kByNode;
  if (frame.type >= allowed.size() || !allowed[frame.type]) return bad(fmt::format("a frame of type {} was not to come", frame.type));
  if (number_ == 0 && sender_ == Side::runtime && frame.type != kHello) return bad("a link begins with a hello");
  trace::Decoder in(frame.payload.data(), frame.payload.size());
  std::uint64_t number = 0;
  if (in.varint(number)) return bad("a frame without a number");
  if (number != ++number_) return bad(fmt::format("frame {} came where {} was to come", number, number_));
  if (frame.type == kHello) {
    trace::Decoder peek = in;
    std::uint64_t magic = 0, version = 0;
    if (peek.varint(magic) || magic != kMagic || peek.varint(version)) return bad("this is no link of ours");
    if (version != kVersion) {
      return Error{ErrorCode::unsupported,
                   fmt::format("it speaks version {} of the links' protocol, and this program version {}: use the same "
                               "program on both sides",
                               version, kVersion)};
    }
  }
  LinkMessage out;
  if (kReaders[frame.type](in, out)) return bad(fmt::format("frame {} of type {} is malformed", number, frame.type));
  if (in.left() != 0) return bad(fmt::format("frame {} of type {} has {} bytes too many", number, frame.type, in.left()));
  if (std::string fault = fault_of(out); !fault.empty()) return bad(fmt::format("frame {} of type {}: {}", number, frame.type, fault));
  return out;
}

}  // namespace troupe::actors::link
