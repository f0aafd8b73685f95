// A model's LoRA adapters in the memory of its device: slots 1 .. max_loras + 1 of max_rank each (slot 0 is the base model; one is
// loaded while the others serve),
// and the table by which a step finds an adapter's weights. A slot is empty, loaded (its weights are there, the table does
// not show it) or in the table; ranks may differ by slot and by matrix.
//
// Threads: upload and read by any thread, one call at a time; show, hide and in_table by the stream actor; a step in flight
// reads only slots that its rows name, which stay as they are while it is in flight (R9).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/models/device_memory.h"
#include "device/models/lora.h"
#include "device/models/lora_image.h"
#include "device/models/model_config.h"
#include "device/models/upload.h"
#include "kernels/kernels.h"
#include "messages/error.h"
#include "messages/lora.h"

namespace troupe::device {

class LlamaAdapters {
 public:
  // All memory is set aside here. max_loras 0: none.
  Result<void> init(DeviceMemory& memory, const ModelConfig& config, std::uint32_t max_loras, std::uint32_t max_rank);

  // How the memory of init() is written to; returns when it is.
  using Write = std::function<Result<void>(std::span<const UploadPiece>)>;
  // rank_too_large; not_found: no such slot; slot_in_use: it is in the table. Then nothing has changed. What `write` answers: the
  // slot is empty.
  Result<void> upload(std::uint32_t slot, const LoraAdapter& adapter, const Write& write);
  // The same where the host reaches the memory.
  Result<void> upload(std::uint32_t slot, const LoraAdapter& adapter);
  // How the memory of init() is read; returns when it is.
  using Read = std::function<Result<void>(std::span<const DownloadPiece>)>;
  // What is loaded in the slot (lora_image.h). not_found: no such slot, or nothing is; what `read` answers.
  Result<AdapterImage> read(std::uint32_t slot, const Read& read) const;
  // The same where the host reaches the memory.
  Result<AdapterImage> read(std::uint32_t slot) const;
  // Shows a loaded slot in the table. not_found: no such slot, or nothing is loaded there.
  Result<void> show(std::uint32_t slot);
  // Takes it out of the table; it is empty then. not_found: no such slot.
  Result<void> hide(std::uint32_t slot);
  bool in_table(std::uint32_t slot) const {
    return slot < states_.size() && states_[slot].load(std::memory_order_acquire) == State::in_table;
  }

  // Of one matrix, by slot.
  const kernels::LoraWeight* slots(std::uint32_t layer, LoraTarget target) const {
    return table_ + (layer * kLoraTargets + static_cast<std::size_t>(target)) * states_.size();
  }

 private:
  enum class State : std::uint8_t { empty, loaded, in_table };
  Result<void> known(std::uint32_t slot) const;
  // Where row r of a B that transformers wrote stands in the model.
  std::uint32_t row_of(std::uint32_t r, LoraTarget target) const;

  ModelConfig config_;
  std::uint32_t max_rank_ = 0;
  std::size_t elements_ = 0;                       // of a slot
  std::vector<std::atomic<State>> states_;         // by slot
  std::vector<float*> weights_;                    // by slot
  std::vector<std::vector<LoraImagePair>> pairs_;  // by slot: [layers][targets] of what was loaded there last; the uploading thread's
  kernels::LoraWeight* table_ = nullptr;           // [layers][targets][slots]
};

}  // namespace troupe::device
