#include "messages/protocol.h"

#include <fmt/format.h>

namespace troupe {
namespace {

template <class T> std::string of(const Shared<T>& x) { return x ? label(*x) : std::string("(empty)"); }

// "Opened 7#2 ..." on success, "Opened 7#2 launch/slot_exhausted" on failure.
template <class E> std::string or_error(std::string head, const E& error, const std::string& rest) {
  head += ' ';
  head += error.code != ErrorCode::none ? label(error) : rest;
  return head;
}

std::string bracketed(const Ticket& ticket, std::uint32_t slot) { return fmt::format("{} slot={}", label(ticket), slot); }

}  // namespace

std::string label(const Submit& x) { return "Submit " + of(x.request); }
std::string label(const SubmitReply& x) { return or_error("SubmitReply", x.error, label(x.request)); }
std::string label(const Admit& x) { return fmt::format("Admit {} {}", label(x.id), of(x.request)); }
std::string label(const Cancel& x) { return fmt::format("Cancel {}", x.client); }
std::string label(const CancelRequest& x) { return "CancelRequest " + label(x.id); }
std::string label(const CancelReply& x) { return fmt::format("CancelReply {} {}", label(x.id), name(x.outcome)); }
std::string label(const Ended& x) { return fmt::format("Ended{{n={}}}", x.requests.size()); }
std::string label(const Drain&) { return "Drain"; }
std::string label(const Drained&) { return "Drained"; }
std::string label(const Halt& x) { return "Halt " + label(x.error); }
std::string label(const Tick&) { return "Tick"; }
std::string label(const SetTimer& x) { return fmt::format("SetTimer @{}", x.at); }

std::string label(const Open& x) {
  const std::string restore = x.restore.incarnation == 0 ? "" : fmt::format(" restore={}@{}", label(x.restore), x.restore_len);
  return fmt::format("Open {} tokens={} {}{}", label(x.request), x.n_tokens, label(x.adapter), restore);
}
std::string label(const Opened& x) {
  return or_error("Opened " + label(x.request), x.error, fmt::format("{} slot={} cached={}{}", label(x.seq), x.slot, x.cached_len, x.restored ? " restored" : ""));
}
std::string label(const Saved& x) { return or_error("Saved " + label(x.seq), x.error, fmt::format("positions={}", x.positions)); }
std::string label(const Launch& x) { return "Launch " + of(x.plan); }
std::string label(const Accepted& x) { return or_error("Accepted " + label(x.ticket), x.error, label(x.facts)); }
std::string label(const Await& x) { return "Await " + label(x.ticket); }
std::string label(const Settled& x) { return "Settled " + of(x.result); }
std::string label(const Apply& x) { return "Apply " + label(x.effect); }
std::string label(const Applied& x) { return or_error("Applied", x.error, label(x.outcome)); }
std::string label(const LoraSubmit& x) { return fmt::format("LoraSubmit #{} {}", x.id, label(x.command)); }
std::string label(const LoraAnswer& x) { return or_error(fmt::format("LoraAnswer #{}", x.id), x.error, label(x.ack)); }
std::string label(const LoadAdapter& x) { return fmt::format("LoadAdapter #{} slot={}", x.id, x.slot); }
std::string label(const AdapterLoaded& x) { return or_error(fmt::format("AdapterLoaded #{}", x.id), x.error, "ok"); }
std::string label(const LoraHold& x) { return fmt::format("LoraHold {} until @{}", label(x.adapter), x.until); }
std::string label(const LoraResume& x) { return fmt::format("LoraResume {}{}", label(x.adapter), x.gone ? " gone" : ""); }
std::string label(const ChangeTable& x) { return fmt::format("ChangeTable show={} hide={}", label(x.show), label(x.hide)); }
std::string label(const TableChanged& x) { return or_error("TableChanged", x.error, "ok"); }
std::string label(const Lora& x) {
  return fmt::format("Lora {} show={} hide={}{}", label(x.command), label(x.show), label(x.hide), x.withdraw ? " withdraw" : "");
}
std::string label(const LoraReply& x) { return or_error("LoraReply", x.error, label(x.ack)); }
std::string label(const Teardown&) { return "Teardown"; }
std::string label(const TornDown& x) { return "TornDown " + label(x.facts); }

std::string label(const RingReady& x) { return fmt::format("RingReady{{n={}}}", x.slots.size()); }
std::string label(const Enqueue& x) { return "Enqueue " + of(x.step); }
std::string label(const Watch& x) {
  return or_error("Watch " + bracketed(x.ticket, x.ring_slot), x.error, fmt::format("n={} logits={}", x.n_rows, x.n_logits));
}
std::string label(const EventDone& x) { return or_error("EventDone " + bracketed(x.ticket, x.ring_slot), x.error, "ok"); }
std::string label(const Completed& x) { return fmt::format("Completed slot={} {}", x.ring_slot, of(x.result)); }
std::string label(const RecordEvent& x) { return fmt::format("RecordEvent {} place={}", label(x.mark), x.place); }
std::string label(const EventRecorded& x) { return or_error(fmt::format("EventRecorded {} place={}", label(x.mark), x.place), x.error, "ok"); }
std::string label(const CopyBlocks& x) {
  return fmt::format("CopyBlocks {} {} place={} n={}{}", label(x.copy), x.out ? "out" : "in", x.handles.place, x.blocks.size(),
                     x.after != 0 ? " waits" : "");
}
std::string label(const CopyDone& x) { return or_error(fmt::format("CopyDone {} place={}", label(x.copy), x.place), x.error, "ok"); }
std::string label(const StatePiece& x) { return fmt::format("{} blocks {}+{}/{}", label(x.seq), x.begin, x.count, x.n_blocks); }
std::string label(const WriteState& x) { return "WriteState " + label(x.piece); }
std::string label(const StateWritten& x) { return or_error("StateWritten " + label(x.seq), x.error, "ok"); }
std::string label(const ReadState& x) { return "ReadState " + label(x.piece); }
std::string label(const StateRead& x) { return or_error("StateRead " + label(x.seq), x.error, "ok"); }
std::string label(const DropState& x) { return "DropState " + label(x.seq); }
std::string label(const ReadSlot& x) {
  return or_error("ReadSlot " + bracketed(x.ticket, x.ring_slot), x.error, fmt::format("n={} logits={}", x.n_rows, x.n_logits));
}

std::string label(const Sample& x) { return "Sample " + of(x.batch); }
std::string label(const Sampled& x) { return "Sampled " + of(x.batch); }
std::string label(const Deliver& x) { return "Deliver " + of(x.batch); }

}  // namespace troupe
