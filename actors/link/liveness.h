// Whether the other end of a link is there: both ends send something within every `heartbeat`, and one that hears nothing for
// `silence` takes the other for gone. It notices at its next look, which comes every heartbeat: so within silence + heartbeat.
#pragma once

#include "messages/ids.h"

namespace troupe::actors::link {

class Liveness {
 public:
  void start(TimeNs heartbeat, TimeNs silence, TimeNs now) {
    heartbeat_ = heartbeat;
    silence_ = silence;
    heard_ = sent_ = now;
  }
  void heard(TimeNs now) { heard_ = now; }
  void sent(TimeNs now) { sent_ = now; }
  bool gone(TimeNs now) const { return now - heard_ >= silence_; }
  bool owes(TimeNs now) const { return now - sent_ >= heartbeat_ / 2; }  // nothing was sent for so long that something has to be
  TimeNs heartbeat() const { return heartbeat_; }
  TimeNs silence() const { return silence_; }

 private:
  TimeNs heartbeat_ = 0;
  TimeNs silence_ = 0;
  TimeNs heard_ = 0;
  TimeNs sent_ = 0;
};

}  // namespace troupe::actors::link
