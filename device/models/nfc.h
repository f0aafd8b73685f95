// Unicode's composed normal form (NFC), by ICU. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "messages/error.h"

namespace troupe::device {

// The composed form of `text`, which must be UTF-8 of less than 2 GiB; none: it is composed already. Errors: bad_request:
// more than 4096 combining marks in a row (ICU takes quadratic time over them); internal: ICU has no data.
Result<std::optional<std::string>> to_nfc(std::string_view text);

}  // namespace troupe::device
