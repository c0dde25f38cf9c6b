/* SPDX-License-Identifier: Apache-2.0 */
/* grid-notes.c - see grid-notes.h. A PNG chunk has four parts: the body's size, the type, the body, and the CRC-32 of
 * type and body. */
#include "protocol/grid-notes.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "base/text/printable.h"

#include <endian.h>
#include <string.h>

enum { HEADER_BYTES = 8 + 25 /* signature, IHDR */, FRAME_BYTES = 12 };

static const char keyword[] = "sdtrain"; /* the chunk contains its NUL, too */
static const char *const kinds[] = {"network", "data"}, *const weights[] = {"plain", "ema"};

/* ---- captions ---- */

/* Returns how many bytes of the text are kept. The text is cut only between characters of UTF-8. */
static size_t cut(const char *text)
{
    size_t n = strnlen(text, GRID_CAPTION_MAX + 1);
    if (n <= GRID_CAPTION_MAX)
        return n;
    n = GRID_CAPTION_MAX - strlen("...");
    while (n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

void grid_notes_add(GridNotes *notes, const char *caption)
{
    assert(notes->n_captions < GRID_CELLS_MAX);
    if (!notes->captions)
        notes->captions = memory_zeroed(GRID_CELLS_MAX, sizeof(*notes->captions));
    char *to = notes->captions[notes->n_captions++];
    const size_t n = cut(caption);
    memcpy(to, caption, n);
    if (caption[n])
        (void)stpcpy(to + n, "...");
    printable_make(to);
    _cleanup_json_ json_t *text = json_string(to);
    if (!text)
        (void)stpcpy(to, "(not UTF-8)");
}

void grid_notes_clear(GridNotes *notes)
{
    free(notes->captions);
    *notes = (GridNotes){0};
}

/* ---- writing ---- */

static uint32_t crc_of(const uint8_t *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320U : 0);
    }
    return ~crc;
}

static char *put_word(char *to, uint32_t word)
{
    word = htobe32(word);
    return mempcpy(to, &word, sizeof(word));
}

static char *format(const GridNotes *notes)
{
    char seed[24];
    _cleanup_json_ json_t *root = json_object();
    json_t *captions = json_array();
    (void)json_object_set_new(root, "job", json_string(notes->job));
    (void)json_object_set_new(root, "of", json_string(kinds[notes->real]));
    if (!notes->real) {
        (void)snprintf(seed, sizeof(seed), "%llu", (unsigned long long)notes->seed);
        (void)json_object_set_new(root, "step", json_integer(notes->step));
        (void)json_object_set_new(root, "weights", json_string(weights[notes->ema]));
        (void)json_object_set_new(root, "seed", json_string(seed));
    }
    for (int i = 0; i < notes->n_captions; i++)
        (void)json_array_append_new(captions, json_string(notes->captions[i]));
    (void)json_object_set_new(root, "captions", captions);
    return json_dumps(root, JSON_ENSURE_ASCII);
}

char *grid_notes_put(const GridNotes *notes, const void *png, size_t n_bytes, size_t *ret_bytes)
{
    assert(n_bytes >= HEADER_BYTES);
    _cleanup_free_ char *text = format(notes);
    const size_t n_text = strlen(text), n_body = sizeof(keyword) + n_text;
    /* The text fits: there are at most GRID_CELLS_MAX captions, and each of their bytes takes at most three in JSON. */
    assert(n_text <= GRID_NOTES_BYTES_MAX);
    char *whole = memory_zeroed(n_bytes + FRAME_BYTES + n_body, 1);
    char *to = put_word(mempcpy(whole, png, HEADER_BYTES), (uint32_t)n_body);
    const char *type = to;
    to = mempcpy(mempcpy(mempcpy(to, "tEXt", 4), keyword, sizeof(keyword)), text, n_text);
    to = put_word(to, crc_of((const uint8_t *)type, 4 + n_body));
    to = mempcpy(to, (const char *)png + HEADER_BYTES, n_bytes - HEADER_BYTES);
    *ret_bytes = (size_t)(to - whole);
    return whole;
}

/* ---- reading ---- */

static uint32_t get_word(const uint8_t *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof(word));
    return be32toh(word);
}

static void get_seed(JsonReader *r, uint64_t *ret)
{
    char text[24], *end;
    if (!json_get_text(r, "seed", JSON_REQUIRED, text, sizeof(text)))
        return;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        json_refuse(r, "seed", "\"%s\" is not a number", text);
}

static void get_captions(JsonReader *r, GridNotes *ret)
{
    json_t *array = NULL;
    if (!json_get_array(r, "captions", JSON_REQUIRED, GRID_CELLS_MAX, &array))
        return;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *caption = json_string_value(json_array_get(array, i));
        if (caption)
            grid_notes_add(ret, caption);
        else
            json_refuse(r, "captions", "the one of cell %zu is not a text", i);
    }
}

static int parse(const char *source, const char *text, size_t n_bytes, GridNotes *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int kind = 0, weight = 0;
    int r = json_parse(source, text, n_bytes, &root, err);
    if (r < 0)
        return r;
    JsonReader j = json_open(source, root, JSON_ANY_KEYS, err);
    json_get_text(&j, "job", JSON_REQUIRED, ret->job, sizeof(ret->job));
    printable_make(ret->job);
    json_get_choice(&j, "of", JSON_REQUIRED, kinds, ELEMENTSOF(kinds), &kind);
    ret->real = kind == 1;
    if (!ret->real) {
        json_get_int(&j, "step", JSON_REQUIRED, 0, INT64_MAX, &ret->step);
        json_get_choice(&j, "weights", JSON_REQUIRED, weights, ELEMENTSOF(weights), &weight);
        ret->ema = weight == 1;
        get_seed(&j, &ret->seed);
    }
    get_captions(&j, ret);
    return json_close(&j);
}

/* Reads the notes from a chunk. The body consists of the keyword, a NUL and the text. */
static int read_chunk(const char *source, const uint8_t *chunk, size_t n_body, GridNotes *ret,
                      Error *err)
{
    if (n_body > sizeof(keyword) + GRID_NOTES_BYTES_MAX)
        return error_set(err, -EINVAL, "%s: its notes have %zu bytes, more than %d", source, n_body,
                         (int)GRID_NOTES_BYTES_MAX);
    if (get_word(chunk + 8 + n_body) != crc_of(chunk + 4, 4 + n_body))
        return error_set(err, -EINVAL, "%s: its notes are damaged: their CRC is another one",
                         source);
    int r = parse(source, (const char *)chunk + 8 + sizeof(keyword), n_body - sizeof(keyword), ret,
                  err);
    if (r < 0)
        grid_notes_clear(ret);
    return r < 0 ? r : 1;
}

int grid_notes_get(const char *source, const void *png, size_t n_bytes, GridNotes *ret, Error *err)
{
    const uint8_t *bytes = png;
    *ret = (GridNotes){0};
    for (size_t at = 8; n_bytes >= FRAME_BYTES && at <= n_bytes - FRAME_BYTES;) {
        const uint8_t *chunk = bytes + at;
        const size_t n_body = get_word(chunk);
        if (n_body > n_bytes - at - FRAME_BYTES)
            break;
        if (memcmp(chunk + 4, "IEND", 4) == 0)
            return 0;
        if (memcmp(chunk + 4, "tEXt", 4) == 0 && n_body >= sizeof(keyword) &&
            memcmp(chunk + 8, keyword, sizeof(keyword)) == 0)
            return read_chunk(source, chunk, n_body, ret, err);
        at += FRAME_BYTES + n_body;
    }
    return error_set(err, -EINVAL, "%s: the PNG is cut short", source);
}
