/* SPDX-License-Identifier: Apache-2.0 */
/* test-picture-decode.c - pictures of every kind, compared with Pillow's results; files that are not pictures or must
 * not be decoded; truncated files. */
#include "encoders/pictures/picture-decode.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "encoders/pictures/pixels.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static const char GOLDEN[] = "tests/golden/pictures";

static const PictureRecipe small = {.side = 16, .max_pixels = 1 << 20};

typedef struct Bytes {
    char *data;
    size_t n;
} Bytes;

static void bytes_release(Bytes *bytes) { free(bytes->data); }

static Bytes golden(const char *name)
{
    char path[256];
    Bytes bytes = {0};
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s", GOLDEN, name);
    if (file_read(path, 1 << 24, &bytes.data, &bytes.n, &err) < 0)
        fail_msg("%s", err.text);
    return bytes;
}

/* Decodes a copy of the bytes in a block of their size, so that a sanitizer detects a read beyond them. */
static int decode_exactly(const PictureRecipe *recipe, const void *data, size_t n, uint8_t *rgb,
                          Error *err)
{
    char *tight = malloc(MAX(n, 1U));
    assert_non_null(tight);
    memcpy(tight, data, n);
    int r = picture_decode(recipe, tight, n, rgb, err);
    free(tight);
    return r;
}

static void pillow_makes_the_same_bytes(void **state)
{
    (void)state;
    _cleanup_(bytes_release) Bytes list = golden("expected.txt"), expected = golden("expected.bin");
    size_t at = 0;
    int n_wrong = 0, n = 0;
    char *rest = NULL;
    for (char *line = strtok_r(list.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[64], resample[16];
        PictureRecipe recipe = small;
        assert_int_equal(sscanf(line, "%63s %15s %d", name, resample, &recipe.side), 3);
        recipe.resample = strcmp(resample, "bicubic") == 0 ? PICTURE_BICUBIC : PICTURE_BILINEAR;
        size_t n_rgb = (size_t)recipe.side * (size_t)recipe.side * 3;
        assert_true(at + n_rgb <= expected.n);
        _cleanup_(bytes_release) Bytes file = golden(name);
        _cleanup_free_ uint8_t *rgb = calloc(1, n_rgb);
        Error err = ERROR_INIT;
        int r = decode_exactly(&recipe, file.data, file.n, rgb, &err);
        if (r != 0 || memcmp(rgb, expected.data + at, n_rgb) != 0) {
            size_t first = 0;
            while (r == 0 && rgb[first] == (uint8_t)expected.data[at + first])
                first++;
            print_error("%s: %s %s, byte %zu is %d, not %d\n", line,
                        r < 0 ? "error" : picture_verdict_name(r), err.text, first, rgb[first],
                        (uint8_t)expected.data[at + first]);
            n_wrong++;
        }
        at += n_rgb;
        n++;
    }
    assert_int_equal(at, expected.n);
    assert_true(n > 50);
    assert_int_equal(n_wrong, 0);
}

static int verdict_of(const PictureRecipe *recipe, const void *data, size_t n, Error *err)
{
    static uint8_t rgb[16 * 16 * 3];
    *err = ERROR_INIT;
    int r = decode_exactly(recipe, data, n, rgb, err);
    assert_true(r >= 0 && r < PICTURE_N_VERDICTS);
    if (r > 0) {
        assert_int_equal(err->code, -EBADMSG);
        assert_true(err->text[0] != '\0');
    }
    return r;
}

static void put_be32(char *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(v >> (24 - 8 * i));
}

static void what_is_no_picture_is_named(void **state)
{
    (void)state;
    Error err;
    assert_int_equal(verdict_of(&small, "", 0, &err), PICTURE_EMPTY);
    assert_int_equal(verdict_of(&small, "a text\n", 7, &err), PICTURE_DECODE);
    assert_int_equal(verdict_of(&small, "GIF89a\1\0\1\0\0\0\0", 13, &err), PICTURE_DECODE);
    assert_int_equal(verdict_of(&small, "\x89PNG\r\n\x1a\n", 8, &err), PICTURE_TRUNCATED);

    _cleanup_(bytes_release) Bytes file = golden("rgb.png");
    put_be32(file.data + 16, 0);
    assert_int_equal(verdict_of(&small, file.data, file.n, &err), PICTURE_DECODE);
    put_be32(file.data + 16, UINT32_MAX);
    assert_int_equal(verdict_of(&small, file.data, file.n, &err), PICTURE_DECODE);
    file.data[12] = 'i';
    assert_int_equal(verdict_of(&small, file.data, file.n, &err), PICTURE_DECODE);
}

/* A decompression bomb is recognized by its header: it costs neither memory nor time. */
static void a_picture_of_60000_by_60000_costs_nothing(void **state)
{
    (void)state;
    Error err;
    struct rusage before, after;
    _cleanup_(bytes_release) Bytes file = golden("rgb.png");
    put_be32(file.data + 16, 60000);
    put_be32(file.data + 20, 60000);
    (void)getrusage(RUSAGE_SELF, &before);
    assert_int_equal(verdict_of(&picture_recipe_default, file.data, file.n, &err),
                     PICTURE_TOO_LARGE);
    (void)getrusage(RUSAGE_SELF, &after);
    assert_non_null(strstr(err.text, "60000 x 60000"));
    assert_true(after.ru_maxrss - before.ru_maxrss < 4096);
}

/* The picture has few pixels, but libpng would also keep two rows of 8 bytes per pixel. */
static void a_png_of_one_long_row_is_too_large(void **state)
{
    (void)state;
    Error err;
    _cleanup_(bytes_release) Bytes file = golden("rgb.png");
    put_be32(file.data + 16, (1 << 23) + 1);
    put_be32(file.data + 20, 1);
    assert_int_equal(verdict_of(&picture_recipe_default, file.data, file.n, &err),
                     PICTURE_TOO_LARGE);
    assert_non_null(strstr(err.text, "8388609 x 1"));
    /* The recipe's own size limits are checked first. */
    PictureRecipe recipe = picture_recipe_default;
    recipe.min_side = 2;
    assert_int_equal(verdict_of(&recipe, file.data, file.n, &err), PICTURE_TOO_SMALL);
    put_be32(file.data + 16, 1 << 23); /* the width is allowed, the header's checksum is wrong */
    assert_int_equal(verdict_of(&picture_recipe_default, file.data, file.n, &err), PICTURE_DECODE);
}

static void the_recipe_bounds_sizes(void **state)
{
    (void)state;
    Error err;
    _cleanup_(bytes_release) Bytes file = golden("rgb.png"); /* 45 x 31 */
    PictureRecipe recipe = small;
    recipe.max_pixels = 45 * 31;
    assert_int_equal(verdict_of(&recipe, file.data, file.n, &err), 0);
    recipe.max_pixels--;
    assert_int_equal(verdict_of(&recipe, file.data, file.n, &err), PICTURE_TOO_LARGE);

    recipe = small;
    recipe.min_side = 31;
    assert_int_equal(verdict_of(&recipe, file.data, file.n, &err), 0);
    recipe.min_side = 32;
    assert_int_equal(verdict_of(&recipe, file.data, file.n, &err), PICTURE_TOO_SMALL);

    recipe = small;
    recipe.max_aspect = 45.0 / 31;
    assert_int_equal(verdict_of(&recipe, file.data, file.n, &err), 0);
    recipe.max_aspect = 1.45;
    assert_int_equal(verdict_of(&recipe, file.data, file.n, &err), PICTURE_ASPECT);

    _cleanup_free_ char *long_file = calloc(1, (size_t)PICTURE_FILE_BYTES_MAX + 1);
    assert_non_null(long_file);
    memcpy(long_file, file.data, file.n);
    uint8_t rgb[16 * 16 * 3];
    assert_int_equal(picture_decode(&small, long_file, PICTURE_FILE_BYTES_MAX, rgb, &err), 0);
    assert_int_equal(picture_decode(&small, long_file, (size_t)PICTURE_FILE_BYTES_MAX + 1, rgb,
                                    &err),
                     PICTURE_TOO_LARGE);
}

static void a_recipe_that_cannot_be_is_refused(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    uint8_t rgb[3];
    assert_int_equal(picture_recipe_check(&picture_recipe_default, &err), 0);
    const PictureRecipe wrong[] = {
        {.side = 0, .max_pixels = 1},
        {.side = PICTURE_RECIPE_SIDE_MAX + 1, .max_pixels = 1},
        {.side = 1, .max_pixels = 0},
        {.side = 1, .max_pixels = (int64_t)PICTURE_RECIPE_PIXELS_MAX + 1},
        {.side = 1, .max_pixels = 1, .max_aspect = 0.5},
        {.side = 1, .max_pixels = 1, .max_aspect = -1},
        {.side = 1, .max_pixels = 1, .max_aspect = __builtin_nan("")},
        {.side = 1, .max_pixels = 1, .min_side = -1},
        {.side = 1, .max_pixels = 1, .resample = (PictureResample)2},
    };
    for (size_t i = 0; i < ELEMENTSOF(wrong); i++)
        assert_int_equal(picture_decode(&wrong[i], "x", 1, rgb, &err), -EINVAL);
}

/* Each file is cut after each of its bytes: first it is too short to be recognized, then it is truncated. As in Pillow,
 * a PNG with all of its pixels is accepted without its end. */
static void a_file_may_end_anywhere(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t known; /* number of bytes from which the file's kind is known */
        bool end_to_spare;
    } files[] = {
        {"rgba-16.png", 8, true},
        {"palette-holes.png", 8, true},
        {"interlaced-rgb.png", 8, true},
        {"orientation-7-late.png", 8, true},
        {"420.jpg", 3, false},
        {"restart.jpg", 3, false},
        {"progressive-cmyk.jpg", 3, false},
        {"orientation-6.jpg", 3, false},
        {"lossy-rgba.webp", 12, false},
        {"lossless-rgb.webp", 12, false},
    };
    for (size_t i = 0; i < ELEMENTSOF(files); i++) {
        _cleanup_(bytes_release) Bytes file = golden(files[i].name);
        bool whole = false;
        for (size_t n = 1; n < file.n; n++) {
            Error err;
            int r = verdict_of(&small, file.data, n, &err);
            whole = whole || (r == 0 && files[i].end_to_spare);
            int right = n < files[i].known ? PICTURE_DECODE : whole ? 0 : PICTURE_TRUNCATED;
            if (r != right)
                fail_msg("%s, %zu of %zu bytes: %s %s, not %s", files[i].name, n, file.n,
                         picture_verdict_name(r), err.text, picture_verdict_name(right));
        }
        assert_int_equal(whole, files[i].end_to_spare);
    }
}

/* libjpeg fills missing pixels with grey and only warns: a file that was cut and then ended properly is rejected, and
 * so is a file with a lost restart marker. */
static void a_jpeg_that_lacks_pixels_is_rejected(void **state)
{
    (void)state;
    static const char *const names[] = {"420.jpg", "grey.jpg", "cmyk.jpg"};
    Error err;
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        _cleanup_(bytes_release) Bytes file = golden(names[i]);
        size_t n = file.n - 300;
        memcpy(file.data + n, "\xff\xd9", 2);
        assert_int_equal(verdict_of(&small, file.data, n + 2, &err), PICTURE_TRUNCATED);
    }
    _cleanup_(bytes_release) Bytes file = golden("restart.jpg");
    char *marker = memmem(file.data, file.n, "\xff\xd2", 2);
    assert_non_null(marker);
    marker[1] = (char)0xd6;
    int r = verdict_of(&small, file.data, file.n, &err);
    assert_true(r == PICTURE_DECODE || r == PICTURE_TRUNCATED);
}

/* Each scan costs a pass over all coefficients, but may have few bytes. */
static void a_jpeg_of_1000_scans_is_rejected(void **state)
{
    (void)state;
    Error err;
    _cleanup_(bytes_release) Bytes file = golden("progressive-grey.jpg");
    char *scan = memmem(file.data, file.n, "\xff\xda", 2);
    assert_non_null(scan);
    char *next = scan + 2;
    while (next[0] != '\xff' || next[1] == 0)
        next++;
    size_t before = (size_t)(scan - file.data), length = (size_t)(next - scan);
    for (int n = 50; n <= 1000; n *= 20) {
        size_t total = file.n + (size_t)n * length;
        _cleanup_free_ char *many = malloc(total);
        assert_non_null(many);
        memcpy(many, file.data, before);
        for (int i = 0; i <= n; i++)
            memcpy(many + before + (size_t)i * length, scan, length);
        memcpy(many + before + (size_t)(n + 1) * length, next, file.n - before - length);
        assert_int_equal(verdict_of(&small, many, total, &err), n == 50 ? 0 : PICTURE_DECODE);
    }
    assert_non_null(strstr(err.text, "scans"));
}

/* A flipped byte is detected by a checksum. */
static void a_flipped_byte_in_a_png_is_found(void **state)
{
    (void)state;
    _cleanup_(bytes_release) Bytes file = golden("gamma.png");
    Error err;
    for (size_t at = 8 + 8; at < file.n - 12; at += 3) {
        file.data[at] ^= 0x10;
        int r = verdict_of(&small, file.data, file.n, &err);
        if (r != PICTURE_DECODE && r != PICTURE_TRUNCATED && r != PICTURE_TOO_LARGE)
            fail_msg("byte %zu: %s", at, picture_verdict_name(r));
        file.data[at] ^= 0x10;
    }
    assert_int_equal(verdict_of(&small, file.data, file.n, &err), 0);
}

static void an_animation_is_rejected(void **state)
{
    (void)state;
    Error err;
    _cleanup_(bytes_release) Bytes file = golden("one-frame.png");
    char *chunk = memmem(file.data, file.n, "acTL", 4);
    assert_non_null(chunk);
    put_be32(chunk + 4, 2);
    assert_int_equal(verdict_of(&small, file.data, file.n, &err), PICTURE_ANIMATED);

    _cleanup_(bytes_release) Bytes webp = golden("animated.webp");
    assert_int_equal(verdict_of(&small, webp.data, webp.n, &err), PICTURE_ANIMATED);
}

/* Other entries, as cameras write them, may precede the orientation. */
static void orientation_is_found_among_other_entries(void **state)
{
    (void)state;
    static const uint8_t tiff[] = {'M', 'M', 0, '*', 0, 0, 0, 8, 0,   3,         /* three entries */
                                   1,   15,  0, 2,   0, 0, 0, 4, 'u', 's', 0, 0, /* camera maker */
                                   1,   18,  0, 3,   0, 0, 0, 1, 0,   6,   0, 0, /* orientation 6 */
                                   1,   18,  0, 3,   0, 0, 0, 1, 0,   3,   0, 0}; /* not used */
    assert_int_equal(exif_orientation(tiff, sizeof(tiff)), 6);
    /* An incomplete entry is ignored. */
    for (size_t n = 0; n < sizeof(tiff); n++)
        assert_int_equal(exif_orientation(tiff, n), n < 10 + 24 ? 1 : 6);
}

static void put_le32(char *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(v >> (8 * i));
}

/* Asserts that both files are decoded to the same pixels. */
static void assert_same_picture(const Bytes *a, const Bytes *b)
{
    Error err = ERROR_INIT;
    uint8_t rgb[2][16 * 16 * 3];
    assert_int_equal(decode_exactly(&small, a->data, a->n, rgb[0], &err), 0);
    assert_int_equal(decode_exactly(&small, b->data, b->n, rgb[1], &err), 0);
    assert_memory_equal(rgb[0], rgb[1], sizeof(rgb[0]));
}

/* As in Pillow, EXIF has no effect if the head of a WebP file does not announce it, or if the EXIF is behind the
 * file's end. */
static void a_webp_says_that_it_has_an_orientation(void **state)
{
    (void)state;
    enum { FLAGS = 20, HAS_EXIF = 8, VALUE = 18 };
    _cleanup_(bytes_release) Bytes turned = golden("orientation-8.webp");
    _cleanup_(bytes_release) Bytes upright = golden("orientation-8.webp");
    char *exif = memmem(upright.data, upright.n, "MM\0*", 4);
    assert_non_null(exif);
    assert_int_equal(exif[VALUE + 1], 8);
    exif[VALUE + 1] = 1;
    assert_memory_equal(turned.data + 12, "VP8X", 4);
    assert_true(turned.data[FLAGS] & HAS_EXIF);
    turned.data[FLAGS] &= ~HAS_EXIF;
    assert_same_picture(&turned, &upright);

    _cleanup_(bytes_release) Bytes plain = golden("lossless-rgb.webp");
    assert_memory_equal(plain.data + 12, "VP8L", 4);
    char *chunk = memmem(turned.data, turned.n, "EXIF", 4);
    assert_non_null(chunk);
    size_t n_chunk = (size_t)(turned.data + turned.n - chunk);
    _cleanup_(bytes_release) Bytes longer = {malloc(plain.n + n_chunk), plain.n + n_chunk};
    assert_non_null(longer.data);
    memcpy(longer.data, plain.data, plain.n);
    memcpy(longer.data + plain.n, chunk, n_chunk);
    assert_same_picture(&longer, &plain); /* the EXIF is behind the file's end */
    put_le32(longer.data + 4, (uint32_t)longer.n - 8);
    assert_same_picture(&longer, &plain); /* no extended head announces the EXIF */

    turned.data[FLAGS] |= HAS_EXIF;
    put_le32(turned.data + 4, (uint32_t)(chunk - turned.data) - 8);
    assert_same_picture(&turned, &upright); /* the announced EXIF is behind the file's end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pillow_makes_the_same_bytes),
        cmocka_unit_test(what_is_no_picture_is_named),
        cmocka_unit_test(a_picture_of_60000_by_60000_costs_nothing),
        cmocka_unit_test(a_png_of_one_long_row_is_too_large),
        cmocka_unit_test(the_recipe_bounds_sizes),
        cmocka_unit_test(a_recipe_that_cannot_be_is_refused),
        cmocka_unit_test(a_file_may_end_anywhere),
        cmocka_unit_test(a_jpeg_that_lacks_pixels_is_rejected),
        cmocka_unit_test(a_jpeg_of_1000_scans_is_rejected),
        cmocka_unit_test(a_flipped_byte_in_a_png_is_found),
        cmocka_unit_test(orientation_is_found_among_other_entries),
        cmocka_unit_test(a_webp_says_that_it_has_an_orientation),
        cmocka_unit_test(an_animation_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
