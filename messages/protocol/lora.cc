#include "messages/protocol/lora.h"

#include <fmt/format.h>

#include "messages/protocol/text.h"

namespace troupe {

using namespace protocol_text;

std::string label(const LoraSubmit& x) { return fmt::format("LoraSubmit #{} {}{}", x.id, label(x.command), at(x.replica)); }
std::string label(const LoraAnswer& x) { return or_error(fmt::format("LoraAnswer #{}", x.id), x.error, label(x.ack) + at(x.replica)); }
std::string label(const LoraBound& x) { return fmt::format("LoraBound {} #{}{}", label(x.request), x.command, at(x.replica)); }
std::string label(const FetchAdapter& x) { return fmt::format("FetchAdapter #{} {}{}", x.id, x.name, at(x.replica)); }
std::string label(const AdapterFetched& x) { return or_error(fmt::format("AdapterFetched #{}", x.id), x.error, "ok" + at(x.replica)); }
std::string label(const LoadAdapter& x) { return fmt::format("LoadAdapter #{} slot={}", x.id, x.slot); }
std::string label(const AdapterLoaded& x) { return or_error(fmt::format("AdapterLoaded #{}", x.id), x.error, "ok"); }
std::string label(const ReadAdapter& x) { return fmt::format("ReadAdapter #{} slot={}", x.id, x.slot); }
std::string label(const AdapterRead& x) { return or_error(fmt::format("AdapterRead #{}", x.id), x.error, "ok"); }
std::string label(const LoraHold& x) { return fmt::format("LoraHold {} until @{}", label(x.adapter), x.until); }
std::string label(const LoraResume& x) { return fmt::format("LoraResume {}{}", label(x.adapter), x.gone ? " gone" : ""); }
std::string label(const Lora& x) {
  return fmt::format("Lora {} show={} hide={}{}", label(x.command), label(x.show), label(x.hide), x.withdraw ? " withdraw" : "");
}
std::string label(const ChangeTable& x) { return fmt::format("ChangeTable show={} hide={}", label(x.show), label(x.hide)); }
std::string label(const TableChanged& x) { return or_error("TableChanged", x.error, "ok"); }
std::string label(const LoraReply& x) { return or_error("LoraReply", x.error, label(x.ack)); }

}  // namespace troupe
