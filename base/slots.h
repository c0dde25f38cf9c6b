/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h - a node's slots as a bit mask, and the mask as text: "0-3,6".
 *
 * Ownership: none.
 * Units:     bit i is slot i, from 0 to 63.
 * Errors:    slots_parse(): -EINVAL for a text that is not a list of slots; *ret is untouched then.
 */
#pragma once

#include <stdint.h>

enum { SLOTS_MAX = 64, SLOTS_TEXT_MAX = 192 };

/* Returns ret. The text of an empty mask is "". */
const char *slots_format(uint64_t slots, char ret[SLOTS_TEXT_MAX]);
int slots_parse(const char *text, uint64_t *ret);
