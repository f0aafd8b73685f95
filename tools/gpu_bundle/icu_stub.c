/* ICU's data library without data: a table of contents with no entries, under the name that libicuuc looks for. What the program asks
 * of ICU, normal form C, lies in libicuuc itself; the real library is 31 MB.
 * The layout is that of a data memory with header (icu4c, common/ucmndata.h: DataHeader, and an offset table of type "ToCP").
 * -DDATA=icudt72_dat */
#include <stdint.h>

#define VISIBLE __attribute__((visibility("default")))

VISIBLE const struct {
  uint16_t header_size;
  uint8_t magic[2];
  uint16_t info_size, reserved;
  uint8_t is_big_endian, charset, char_size, reserved2;
  uint8_t format[4], format_version[4], data_version[4];
  uint8_t padding[8];
  uint32_t entries, padding2[3];
} DATA __attribute__((aligned(16))) = {32, {0xda, 0x27}, 20, 0, 0, 0, 2, 0, {'T', 'o', 'C', 'P'}, {1, 0, 0, 0}, {0, 0, 0, 0}, {0}, 0, {0}};
