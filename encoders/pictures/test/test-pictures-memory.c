/* SPDX-License-Identifier: Apache-2.0 */
/* test-pictures-memory.c - the resident memory of a decoder process while it decodes the largest picture of the default
 * recipe, for the kinds that need most: a progressive CMYK JPEG, all of whose coefficients are kept, and a PNG of the
 * longest rows, of which libpng keeps two, unpacked. */
#include "encoders/pictures/pictures.h"

#include "base/cleanup.h"
#include "base/test/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

enum { WIDTH = 8192, HEIGHT = 4096, INKS = 4, SIDE = 256 };
enum { ROW_PIXELS = 1 << 23, N_ROWS = 4, DEEP_PIXEL_BYTES = 8, FILE_ROOM = 4 << 20 };
/* A file that is being written. */
typedef struct Bytes {
    unsigned char *data;
    size_t n;
} Bytes;

static const long BASE_BYTES = 256 << 20, PIXEL_BYTES = 8;

static unsigned char *draw_jpeg(unsigned long *ret_bytes)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *file = NULL;
    _cleanup_free_ JSAMPLE *row = calloc(WIDTH, INKS);
    assert_non_null(row);
    cinfo.err = jpeg_std_error(&errors); /* ends the process on errors */
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &file, ret_bytes);
    cinfo.image_width = WIDTH;
    cinfo.image_height = HEIGHT;
    cinfo.input_components = INKS;
    cinfo.in_color_space = JCS_CMYK;
    jpeg_set_defaults(&cinfo);
    jpeg_simple_progression(&cinfo);
    jpeg_start_compress(&cinfo, TRUE);
    for (int y = 0; y < HEIGHT; y++) {
        memset(row, y / 16, (size_t)WIDTH * INKS);
        (void)jpeg_write_scanlines(&cinfo, &row, 1); /* always writes the row */
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    return file;
}

static void append(png_structp png, png_bytep data, size_t n)
{
    Bytes *file = png_get_io_ptr(png);
    assert_true(n <= FILE_ROOM - file->n);
    memcpy(file->data + file->n, data, n);
    file->n += n;
}

/* Draws four rows, from black to white. */
static unsigned char *draw_png(unsigned long *ret_bytes)
{
    const size_t n_row = (size_t)ROW_PIXELS * DEEP_PIXEL_BYTES;
    Bytes file = {.data = malloc(FILE_ROOM)};
    _cleanup_free_ png_byte *row = malloc(n_row);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png); /* errors end the process */
    assert_true(file.data && row && info);
    png_set_write_fn(png, &file, append, NULL);
    png_set_user_limits(png, ROW_PIXELS, N_ROWS);
    png_set_IHDR(png, info, ROW_PIXELS, N_ROWS, 16, PNG_COLOR_TYPE_RGB_ALPHA, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_NONE);
    png_set_compression_level(png, 1);
    png_write_info(png, info);
    for (int y = 0; y < N_ROWS; y++) {
        memset(row, y * 85, n_row);
        for (size_t i = 6; i < n_row; i += DEEP_PIXEL_BYTES)
            row[i] = row[i + 1] = 255; /* alpha: opaque */
        png_write_row(png, row);
    }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    *ret_bytes = file.n;
    return file.data;
}

/* Returns the peak of the process's resident memory, including shared pages. */
static long peak_bytes(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    assert_non_null(status);
    while (fgets(line, sizeof(line), status))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    (void)fclose(status);
    return kib << 10;
}

/* Decodes the picture in a new child, and frees the file. The child's peak of resident memory must be between `least`
 * and the bound. */
static void decode_within_the_bound(unsigned char *file, unsigned long n_bytes, long least)
{
    _cleanup_(pictures_freep) Pictures *pictures = NULL;
    Error err = ERROR_INIT;
    PicturesOptions options = {.recipe = picture_recipe_default, .n_children = 1};
    assert_int_equal(options.recipe.side, SIDE);
    if (pictures_open(&options, &pictures, &err) < 0)
        fail_msg("%s", err.text);
    static uint8_t rgb[SIDE * SIDE * 3];
    pid_t child = pictures_child_pid(pictures, 0);
    long before = peak_bytes(child), bound = BASE_BYTES + PIXEL_BYTES * options.recipe.max_pixels;
    assert_int_equal(pictures_request(pictures, file, n_bytes, &err), 0);
    int r = pictures_take(pictures, rgb, &err);
    if (r != 0)
        fail_msg("%d: %s", r, err.text);
    assert_int_equal(pictures_child_pid(pictures, 0), child); /* no second child was started */
    assert_true(rgb[sizeof(rgb) - 1] > rgb[0] + 100);         /* it is dark above and light below */
    long peak = peak_bytes(child);
    print_message("a child: %ld MiB resident at most, %ld before; bound %ld\n", peak >> 20,
                  before >> 20, bound >> 20);
    assert_true(peak >= least); /* else the peak was not measured */
    assert_true(peak <= bound);
    free(file);
}

/* The peak is at least 8 bytes per pixel: the coefficients of a CMYK JPEG alone take so much. */
static void the_largest_picture_fits(void **state)
{
    (void)state;
    unsigned long n_bytes = 0;
    assert_int_equal((int64_t)WIDTH * HEIGHT, picture_recipe_default.max_pixels);
    unsigned char *file = draw_jpeg(&n_bytes);
    decode_within_the_bound(file, n_bytes, PIXEL_BYTES * WIDTH * HEIGHT);
}

static void the_longest_rows_fit(void **state)
{
    (void)state;
    unsigned long n_bytes = 0;
    assert_int_equal((int64_t)ROW_PIXELS * N_ROWS, picture_recipe_default.max_pixels);
    unsigned char *file = draw_png(&n_bytes);
    decode_within_the_bound(file, n_bytes, (long)ROW_PIXELS * (2 * DEEP_PIXEL_BYTES + 4 * N_ROWS));
}

int main(int argc, char **argv)
{
    pictures_child(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_picture_fits),
                                       cmocka_unit_test(the_longest_rows_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
