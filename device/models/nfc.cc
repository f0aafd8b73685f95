#include "device/models/nfc.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "device/models/utf8.h"

namespace troupe::device {

namespace {

constexpr std::size_t kMostMarks = 4096;

// The byte at which a run of more than kMostMarks combining marks ends its allowance.
std::optional<std::size_t> too_many_marks(std::string_view text) {
  std::size_t marks = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_front(text.substr(at));
    marks = c.value >= 0x300 && u_getCombiningClass(static_cast<UChar32>(c.value)) != 0 ? marks + 1 : 0;
    if (marks > kMostMarks) return at;
    at += c.size == 0 ? 1 : c.size;
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<std::string>> to_nfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  if (U_FAILURE(status)) return Error{ErrorCode::internal, fmt::format("ICU has no NFC data: {}", u_errorName(status))};
  if (const auto at = too_many_marks(text)) {
    return Error{ErrorCode::bad_request, fmt::format("the text has more than {} combining marks in a row (byte {})", kMostMarks, *at)};
  }
  const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
  const bool composed = nfc->isNormalizedUTF8(piece, status);
  if (U_SUCCESS(status) && composed) return std::optional<std::string>();
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  nfc->normalizeUTF8(0, piece, sink, nullptr, status);
  if (U_FAILURE(status)) return Error{ErrorCode::internal, fmt::format("NFC failed: {}", u_errorName(status))};
  return std::optional<std::string>(std::move(out));
}

}  // namespace troupe::device
