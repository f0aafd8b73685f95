#include "tests/tools/trace/chrome_trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <exception>
#include <set>
#include <utility>

namespace troupe::tools {
namespace {

namespace json = boost::json;

using Ns = std::int64_t;
using Track = std::pair<std::int64_t, std::int64_t>;  // process, thread

struct Slice {
  Ns begin = 0, end = 0;
  std::string name;
};

struct End {
  Track track;
  Ns at = 0;
};

struct Arrow {
  std::vector<End> begins, ends;
  std::string name;
};

class Checker {
 public:
  ChromeTrace run(const json::value& v) {
    const json::object& top = v.as_object();
    if (const json::value* unit = top.if_contains("displayTimeUnit"); unit != nullptr && *unit != "ns" && *unit != "ms")
      broken("displayTimeUnit is neither ns nor ms");
    for (const json::value& e : top.at("traceEvents").as_array()) event(e.as_object());
    tracks();
    arrows();
    return std::move(out_);
  }

 private:
  void broken(std::string what) {
    if (out_.violations.size() < 20) out_.violations.push_back(std::move(what));
  }
  static std::string text(const json::object& o, const char* key) { return std::string(o.at(key).as_string()); }
  // Microseconds, with three places.
  Ns time(const json::object& e, const char* key) {
    const double us = e.at(key).to_number<double>();
    if (!std::isfinite(us) || us < 0) broken(std::string(key) + " is " + std::to_string(us));
    return std::llround(us * 1000);
  }

  void event(const json::object& e) {
    const std::string ph = text(e, "ph"), name = text(e, "name");
    if (name.empty()) broken("an event of kind " + ph + " has no name");
    const std::int64_t pid = e.at("pid").as_int64();
    if (ph == "M") return meta(e, pid, name);
    const Ns at = time(e, "ts");
    if (ph == "C") {
      const json::object& args = e.at("args").as_object();
      if (args.empty()) broken("counter " + name + " has no value");
      Ns& last = counted_[name];
      if (at < last) broken("counter " + name + " goes back in time");
      last = at;
      for (const auto& arg : args) out_.counters[name].push_back(arg.value().to_number<std::int64_t>());
      return;
    }
    const Track track{pid, e.at("tid").as_int64()};
    if (ph == "X") {
      slices_[track].push_back({at, at + time(e, "dur"), name});
    } else if (ph == "s" || ph == "f") {
      if (text(e, "cat").empty()) broken("arrow " + name + " has no category");
      Arrow& a = arrows_[{text(e, "cat"), e.at("id").as_int64()}];
      if (!a.name.empty() && a.name != name) broken("the ends of an arrow are called " + a.name + " and " + name);
      a.name = name;
      (ph == "s" ? a.begins : a.ends).push_back({track, at});
      if (ph == "f" && text(e, "bp") != "e") broken("arrow " + name + " would end at the slice after");
    } else {
      broken("kind " + ph + " is not expected");
    }
  }

  void meta(const json::object& e, std::int64_t pid, const std::string& name) {
    const json::object& args = e.at("args").as_object();
    if (name == "process_name") {
      if (!processes_.insert(pid).second) broken("process " + std::to_string(pid) + " is named twice");
      if (text(args, "name").empty()) broken("a process is called nothing");
      return;
    }
    const Track track{pid, e.at("tid").as_int64()};
    if (name == "thread_name") {
      if (!names_.emplace(track, text(args, "name")).second) broken("track " + text(args, "name") + " is named twice");
      if (!taken_.insert(text(args, "name")).second) broken("two tracks are called " + text(args, "name"));
    } else if (name == "thread_sort_index") {
      (void)args.at("sort_index").as_int64();
    } else {
      broken("metadata " + name + " is not expected");
    }
  }

  void tracks() {
    for (auto& [track, slices] : slices_) {
      const auto name = names_.find(track);
      if (name == names_.end() || processes_.count(track.first) == 0) {
        broken("track " + std::to_string(track.second) + " has no name");
        continue;
      }
      Ns end = 0;
      for (const Slice& s : slices) {
        if (s.end <= s.begin) broken(s.name + " on " + name->second + " is empty: no arrow can touch it");
        if (s.begin < end) broken(s.name + " on " + name->second + " begins within the slice before it");
        end = s.end;
        out_.slices[name->second].push_back(s.name);
      }
    }
  }

  void arrows() {
    out_.arrows = arrows_.size();
    for (const auto& [id, a] : arrows_) {
      const std::string what = "arrow " + a.name + " (" + std::to_string(id.second) + ")";
      if (a.begins.size() != 1 || a.ends.size() != 1) {
        broken(what + " has " + std::to_string(a.begins.size()) + " beginnings and " + std::to_string(a.ends.size()) + " ends");
        continue;
      }
      if (a.begins[0].at > a.ends[0].at) broken(what + " leads back in time");
      if (!within(a.begins[0])) broken(what + " begins outside of every slice");
      if (!within(a.ends[0])) broken(what + " ends outside of every slice");
    }
  }

  bool within(const End& e) const {
    const auto track = slices_.find(e.track);
    if (track == slices_.end()) return false;
    const auto& all = track->second;
    const auto after = std::upper_bound(all.begin(), all.end(), e.at, [](Ns at, const Slice& s) { return at < s.begin; });
    return after != all.begin() && e.at < std::prev(after)->end;
  }

  ChromeTrace out_;
  std::set<std::int64_t> processes_;
  std::map<Track, std::string> names_;
  std::set<std::string> taken_;
  std::map<Track, std::vector<Slice>> slices_;
  std::map<std::pair<std::string, std::int64_t>, Arrow> arrows_;
  std::map<std::string, Ns> counted_;
};

}  // namespace

ChromeTrace check_chrome_trace(const std::string& text) {
  try {
    return Checker().run(json::parse(text));
  } catch (const std::exception& e) {
    ChromeTrace out;
    out.violations.push_back(std::string("it is not of the format: ") + e.what());
    return out;
  }
}

}  // namespace troupe::tools
