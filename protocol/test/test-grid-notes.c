/* SPDX-License-Identifier: Apache-2.0 */
/* test-grid-notes.c - notes are written into a PNG and read back; PNGs that are cut or damaged, or have other notes,
 * are refused. */
#include "base/json/json.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "protocol/grid-notes.h"

#include <endian.h>
#include <string.h>

/* A valid PNG of one grey pixel. */
static const char png[] =
    "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55"
    "\0\0\0\nIDAT\x78\x9c\x63\x68\0\0\0\x82\0\x81\x77\xcd\x72\xb6\0\0\0\0IEND\xae\x42\x60\x82";
enum { PNG_BYTES = sizeof(png) - 1, HEADER = 33, TEXT = HEADER + 8 };

static int get(const char *bytes, size_t n, GridNotes *ret, Error *err)
{
    /* A copy of the exact size, so that the sanitizer detects reads beyond its end. */
    _cleanup_free_ char *exact = malloc(n + !n);
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    return grid_notes_get("g.png", exact, n, ret, err);
}

static char *some(size_t *ret_n)
{
    _cleanup_(grid_notes_clear)
        GridNotes notes = {.job = "first", .ema = true, .step = 240, .seed = UINT64_MAX};
    grid_notes_add(&notes, "a \"cat\", caf\xc3\xa9");
    grid_notes_add(&notes, "");
    return grid_notes_put(&notes, png, PNG_BYTES, ret_n);
}

static void what_is_put_is_read(_unused_ void **state)
{
    size_t n;
    Error err = ERROR_INIT;
    _cleanup_free_ char *whole = some(&n);
    _cleanup_(grid_notes_clear) GridNotes notes;
    assert_int_equal(get(whole, n, &notes, &err), 1);
    assert_string_equal(notes.job, "first");
    assert_true(notes.ema && !notes.real);
    assert_int_equal(notes.step, 240);
    assert_true(notes.seed == UINT64_MAX);
    assert_int_equal(notes.n_captions, 2);
    assert_string_equal(notes.captions[0], "a \"cat\", caf\xc3\xa9");
    assert_string_equal(notes.captions[1], "");
    static const char said[] =
        "tEXtsdtrain\0{\"job\": \"first\", \"of\": \"network\", \"step\": 240, ";
    assert_memory_equal(whole + HEADER + 4, said, sizeof(said) - 1);
    assert_memory_equal(whole, png, HEADER);
    assert_memory_equal(whole + n - (PNG_BYTES - HEADER), png + HEADER, PNG_BYTES - HEADER);
    grid_notes_clear(&notes);
    assert_int_equal(get(png, PNG_BYTES, &notes, &err), 0);
}

/* The CRC equals that of Python's zlib.crc32(). */
static void the_crc_is_that_of_png(_unused_ void **state)
{
    size_t n;
    uint32_t crc;
    const GridNotes notes = {.job = "j", .real = true};
    _cleanup_free_ char *whole = grid_notes_put(&notes, png, PNG_BYTES, &n);
    memcpy(&crc, whole + n - (PNG_BYTES - HEADER) - 4, 4);
    assert_int_equal(be32toh(crc), 0xb16d965d);
}

static void many_and_long_captions(_unused_ void **state)
{
    size_t n;
    Error err = ERROR_INIT;
    GridNotes notes = {.job = "j", .real = true}, back;
    char widest[2 * GRID_CAPTION_MAX + 1] = ""; /* a cut at the limit would be within a character */
    for (int i = 0; i < GRID_CAPTION_MAX; i++)
        (void)stpcpy(widest + 2 * i, "\xc3\xa9");
    for (int i = 0; i < GRID_CELLS_MAX; i++)
        grid_notes_add(&notes, i == 7 ? "a\nb\x1b[2J\xc2\x9b" : i == 8 ? "caf\xe9" : widest);
    _cleanup_free_ char *whole = grid_notes_put(&notes, png, PNG_BYTES, &n);
    assert_int_equal(get(whole, n, &back, &err), 1);
    assert_true(back.real);
    assert_int_equal(back.n_captions, GRID_CELLS_MAX);
    assert_string_equal(back.captions[7], "a b?[2J??");
    assert_string_equal(back.captions[8], "(not UTF-8)");
    for (int i = 9; i < GRID_CELLS_MAX; i++)
        assert_string_equal(back.captions[i], notes.captions[i]);
    const size_t kept = strlen(back.captions[9]);
    assert_int_equal(kept, GRID_CAPTION_MAX - 1);
    assert_string_equal(back.captions[9] + kept - 5, "\xc3\xa9...");
    grid_notes_clear(&notes);
    grid_notes_clear(&back);
}

/* A PNG that is cut before the end of the notes is refused, and so is a PNG with a flipped bit in the notes'
 * text. */
static void a_file_that_is_damaged(_unused_ void **state)
{
    size_t n;
    Error err = ERROR_INIT;
    GridNotes notes;
    _cleanup_free_ char *whole = some(&n);
    const size_t end = n - (PNG_BYTES - HEADER);
    for (size_t cut = 0; cut < end; cut++)
        assert_int_equal(get(whole, cut, &notes, &err), -EINVAL);
    assert_int_equal(get(png, PNG_BYTES - 1, &notes, &err), -EINVAL);
    assert_string_equal(err.text, "g.png: the PNG is cut short");
    for (size_t at = TEXT + sizeof("sdtrain"); at < end; at++) {
        whole[at] ^= 1;
        assert_int_equal(get(whole, n, &notes, &err), -EINVAL);
        assert_null(notes.captions);
        whole[at] ^= 1;
    }
    assert_string_equal(err.text, "g.png: its notes are damaged: their CRC is another one");
    memcpy(whole + HEADER, "\xff\xff\xff\xff", 4); /* a body of 4 GiB */
    assert_int_equal(get(whole, n, &notes, &err), -EINVAL);
}

static void a_chunk_that_is_huge(_unused_ void **state)
{
    Error err = ERROR_INIT;
    GridNotes notes;
    const uint32_t n_body = GRID_NOTES_BYTES_MAX + 100;
    _cleanup_free_ char *huge = memory_zeroed(PNG_BYTES + 12 + (size_t)n_body, 1);
    memcpy(huge, png, HEADER);
    memcpy(huge + HEADER, &(uint32_t){htobe32(n_body)}, 4);
    memcpy(huge + HEADER + 4, "tEXtsdtrain", 12);
    assert_int_equal(get(huge, PNG_BYTES + 12 + (size_t)n_body, &notes, &err), -EINVAL);
    assert_string_equal(err.text, "g.png: its notes have 524388 bytes, more than 524288");
}

static uint32_t crc_of(const char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < 8 * n; i++) {
        const uint32_t bit = (crc ^ (uint32_t)((uint8_t)bytes[i / 8] >> i % 8)) & 1;
        crc = crc >> 1 ^ bit * 0xedb88320U;
    }
    return ~crc;
}

/* Makes a PNG with this text as its notes. */
static char *with(const char *text, size_t *ret_n)
{
    const size_t n_body = sizeof("sdtrain") + strlen(text);
    char *whole = memory_zeroed(PNG_BYTES + 12 + n_body, 1);
    memcpy(whole, png, HEADER);
    memcpy(whole + HEADER, &(uint32_t){htobe32((uint32_t)n_body)}, 4);
    memcpy(whole + HEADER + 4, "tEXtsdtrain", 12);
    (void)stpcpy(whole + TEXT + sizeof("sdtrain"), text);
    memcpy(whole + TEXT + n_body, &(uint32_t){htobe32(crc_of(whole + HEADER + 4, 4 + n_body))}, 4);
    memcpy(whole + TEXT + n_body + 4, png + HEADER, PNG_BYTES - HEADER);
    *ret_n = PNG_BYTES + 12 + n_body;
    return whole;
}

/* Invalid notes with a valid CRC are refused with the reason. */
static void notes_of_others(_unused_ void **state)
{
#define BEGIN "{\"job\": \"j\", \"of\": \"network\", \"step\": 1, \"weights\": \"ema\", "
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "g.png"},
        {"[1]", "g.png"},
        {"{\"job\": \"j\", \"of\": \"dreams\", \"captions\": []}", "of: "},
        {"{\"job\": 1, \"of\": \"data\", \"captions\": []}", "job: "},
        {"{\"job\": \"j\", \"of\": \"network\", \"captions\": []}", "step: "},
        {BEGIN "\"seed\": \"-1\", \"captions\": []}", "seed: \"-1\" is not a number"},
        {BEGIN "\"seed\": \"99999999999999999999\", \"captions\": []}", "seed: "},
        {BEGIN "\"seed\": \"1\", \"captions\": [1]}", "captions: the one of cell 0 is not a text"},
        {BEGIN "\"seed\": \"1\", \"captions\": {}}", "captions: "},
    };
    GridNotes notes;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        size_t n;
        Error err = ERROR_INIT;
        _cleanup_free_ char *whole = with(cases[i].text, &n);
        assert_int_equal(get(whole, n, &notes, &err), -EINVAL);
        assert_non_null(strstr(err.text, cases[i].why));
        assert_null(notes.captions);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_read),    cmocka_unit_test(the_crc_is_that_of_png),
        cmocka_unit_test(many_and_long_captions), cmocka_unit_test(a_file_that_is_damaged),
        cmocka_unit_test(a_chunk_that_is_huge),   cmocka_unit_test(notes_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
