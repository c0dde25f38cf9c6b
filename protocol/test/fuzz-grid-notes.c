/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-grid-notes.c - the notes of a grid: any bytes as a PNG, and any text as a caption. */
#include "base/memory.h"
#include "protocol/grid-notes.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_png(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    _cleanup_(grid_notes_clear) GridNotes notes;
    int r = grid_notes_get("fuzz", data, n, &notes, &err);
    assert(r >= 0 || *err.text);
    assert(r > 0 || !notes.captions);
    for (int i = 0; i < notes.n_captions; i++)
        for (const char *p = notes.captions[i]; *p; p++)
            assert(((uint8_t)*p >= 0x20 || *p == '\t') && *p != 0x7f);
}

/* Checks that an added caption is read back unchanged. */
static void try_caption(const uint8_t *data, size_t n)
{
    static const char png[33 + 12] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\0\0\0\0\0\0\0\0IEND";
    size_t n_whole;
    Error err = ERROR_INIT;
    _cleanup_(grid_notes_clear) GridNotes notes = {.job = "j"}, back;
    _cleanup_free_ char *caption = memory_bytes(data, n);
    grid_notes_add(&notes, caption);
    _cleanup_free_ char *whole = grid_notes_put(&notes, png, sizeof(png), &n_whole);
    int r = grid_notes_get("again", whole, n_whole, &back, &err);
    assert(r == 1 && strcmp(back.captions[0], notes.captions[0]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    try_png(data, n);
    try_caption(data, n);
    return 0;
}
