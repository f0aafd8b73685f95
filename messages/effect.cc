#include "messages/effect.h"

#include <fmt/format.h>

namespace troupe {
namespace {

struct ToLabel {
  std::string operator()(const Commit& x) const { return fmt::format("Commit{{{}, len={}}}", label(x.seq), x.settled_len); }
  std::string operator()(const Advance& x) const { return fmt::format("Advance{{{}, {}[{}]}}", label(x.seq), label(x.ticket), x.row); }
  std::string operator()(const Rollback& x) const { return fmt::format("Rollback{{{}, e{}}}", label(x.seq), x.epoch); }
  std::string operator()(const ReleaseSeq& x) const { return fmt::format("ReleaseSeq{{{}}}", label(x.seq)); }
  std::string operator()(const ReadLogits& x) const { return fmt::format("ReadLogits{{{}}}", label(x.ticket)); }
  std::string operator()(const ReserveKv& x) const { return fmt::format("ReserveKv{{{}, positions={}}}", label(x.seq), x.positions); }
  std::string operator()(const CompactSlot& x) const { return fmt::format("CompactSlot{{{}, to={}}}", label(x.seq), x.to_slot); }
  std::string operator()(const DetachSlot& x) const { return fmt::format("DetachSlot{{{}}}", label(x.seq)); }
  std::string operator()(const Quiesce&) const { return "Quiesce{}"; }
  std::string operator()(const SaveSequenceState& x) const { return fmt::format("SaveSequenceState{{{}}}", label(x.seq)); }
  std::string operator()(const SsmSnapshotSave& x) const { return fmt::format("SsmSnapshotSave{{{}}}", label(x.seq)); }
  std::string operator()(const SsmSnapshotRestore& x) const {
    return fmt::format("SsmSnapshotRestore{{{}, snapshot={}}}", label(x.seq), x.snapshot);
  }
  std::string operator()(const SsmCheckpoint& x) const { return fmt::format("SsmCheckpoint{{{}}}", label(x.seq)); }
};

}  // namespace

std::string label(const Effect& x) { return std::visit(ToLabel{}, x); }

std::string label(const EffectOutcome& x) { return fmt::format("outcome{{blocks={}{}}}", x.blocks, x.fenced ? ", fenced" : ""); }

}  // namespace troupe
