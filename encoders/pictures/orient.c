/* SPDX-License-Identifier: Apache-2.0 */
/* orient.c - finds EXIF's orientation in a TIFF block, and applies it to pixels; see pixels.h. */
#include "base/cleanup.h"
#include "encoders/pictures/pixels.h"

#include <string.h>

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY_BYTES = 12, HEAD_BYTES = 8 };

static uint32_t number(const uint8_t *p, int n, bool little)
{
    uint32_t value = 0;
    for (int i = 0; i < n; i++)
        value = value << 8 | p[little ? n - 1 - i : i];
    return value;
}

int exif_orientation(const uint8_t *tiff, size_t n_bytes)
{
    if (n_bytes < HEAD_BYTES)
        return 1;
    bool little = memcmp(tiff, "II*\0", 4) == 0;
    if (!little && memcmp(tiff, "MM\0*", 4) != 0)
        return 1;
    size_t at = number(tiff + 4, 4, little);
    if (at > n_bytes || n_bytes - at < 2)
        return 1;
    size_t n_entries = number(tiff + at, 2, little);
    for (at += 2; n_entries > 0 && n_bytes - at >= ENTRY_BYTES; n_entries--, at += ENTRY_BYTES) {
        const uint8_t *entry = tiff + at;
        uint32_t type = number(entry + 2, 2, little);
        if (number(entry, 2, little) != TAG_ORIENTATION)
            continue;
        if ((type != TYPE_SHORT && type != TYPE_LONG) || number(entry + 4, 4, little) != 1)
            return 1;
        uint32_t value = number(entry + 8, type == TYPE_SHORT ? 2 : 4, little);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

int pixels_orient(Pixels *pixels, Error *err)
{
    int o = pixels->orientation;
    assert(o >= 1 && o <= 8);
    if (o == 1)
        return 0;
    /* Orientations 5 to 8 exchange rows and columns. To give the visible picture from its top left, the stored pixels
     * are read from the right in orientations 2, 3, 7 and 8, and from the bottom in 3, 4, 6 and 7. */
    bool turned = o >= 5, from_right = o == 2 || o == 3 || o == 7 || o == 8;
    bool from_below = o == 3 || o == 4 || o == 6 || o == 7;
    size_t w = (size_t)pixels->width, h = (size_t)pixels->height;
    size_t to_w = turned ? h : w, to_h = turned ? w : h;
    uint8_t *to = malloc(w * h * 3);
    if (!to)
        return error_set(err, -ENOMEM, "out of memory to turn %zu x %zu pixels", w, h);
    ptrdiff_t step_x = from_right ? -3 : 3, step_y = (ptrdiff_t)w * (from_below ? -3 : 3);
    const uint8_t *origin = pixels->rgb + (from_right ? (w - 1) * 3 : 0);
    origin += from_below ? (h - 1) * w * 3 : 0;
    for (size_t y = 0; y < to_h; y++) {
        const uint8_t *from = origin + (ptrdiff_t)y * (turned ? step_x : step_y);
        uint8_t *out = to + y * to_w * 3;
        for (size_t x = 0; x < to_w; x++, from += turned ? step_y : step_x, out += 3)
            memcpy(out, from, 3);
    }
    free(pixels->rgb);
    *pixels = (Pixels){.width = (int)to_w, .height = (int)to_h, .orientation = 1, .rgb = to};
    return 0;
}
