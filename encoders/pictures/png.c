/* SPDX-License-Identifier: Apache-2.0 */
/* png.c - PNG files by libpng: every colour type and depth, interlaced pictures, transparency by palette, colour or
 * alpha.
 *
 * read_head() scans the chunks for size, animation and orientation before libpng reads a byte, so that a decompression
 * bomb costs nothing. libpng reads only the chunks that the pixels need: it unpacks no profile and keeps no text. */
#include "encoders/pictures/pixels.h"

#include "base/cleanup.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

enum { SIGNATURE_BYTES = 8, CHUNK_HEAD_BYTES = 8, CHUNK_TAIL_BYTES = 4 };
/* libpng keeps two rows of up to 8 bytes per pixel: very long rows would exceed the memory of a decoder process, and
 * running out of memory is not a verdict. */
enum { ROW_PIXELS_MAX = 1 << 23 };

typedef struct PngHead {
    uint32_t width, height;
    int orientation;
} PngHead;

/* One read by libpng: its source and its result. */
typedef struct PngRead {
    const uint8_t *data;
    size_t n_bytes, at;
    bool truncated, no_memory;
    char text[128];
    png_structp png;
    png_infop info;
    uint8_t *pixels;
    size_t row_bytes;
} PngRead;

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int read_head(const uint8_t *data, size_t n_bytes, PngHead *ret, Error *err)
{
    *ret = (PngHead){.orientation = 1};
    bool pixels = false;
    for (size_t at = SIGNATURE_BYTES; n_bytes - at >= CHUNK_HEAD_BYTES;) {
        const uint8_t *chunk = data + at, *body = chunk + CHUNK_HEAD_BYTES;
        size_t length = be32(chunk), left = n_bytes - at - CHUNK_HEAD_BYTES;
        bool whole = left >= CHUNK_TAIL_BYTES && length <= left - CHUNK_TAIL_BYTES;
        if (at == SIGNATURE_BYTES && (memcmp(chunk + 4, "IHDR", 4) != 0 || length != 13))
            return picture_reject(err, PICTURE_DECODE, "PNG: it does not begin with IHDR");
        if (!whole)
            break;
        if (at == SIGNATURE_BYTES) {
            ret->width = be32(body);
            ret->height = be32(body + 4);
        } else if (memcmp(chunk + 4, "IDAT", 4) == 0)
            pixels = true;
        else if (memcmp(chunk + 4, "acTL", 4) == 0 && length >= 4 && !pixels && be32(body) > 1)
            return picture_reject(err, PICTURE_ANIMATED, "PNG: %u frames", be32(body));
        else if (memcmp(chunk + 4, "eXIf", 4) == 0)
            ret->orientation = exif_orientation(body, length);
        else if (memcmp(chunk + 4, "IEND", 4) == 0)
            break;
        at += CHUNK_HEAD_BYTES + length + CHUNK_TAIL_BYTES;
    }
    if (ret->width == 0 && ret->height == 0 &&
        n_bytes < SIGNATURE_BYTES + CHUNK_HEAD_BYTES + 13 + 4)
        return picture_reject(err, PICTURE_TRUNCATED, "PNG: it ends in its header");
    if (ret->width < 1 || ret->height < 1 || ret->width > INT32_MAX || ret->height > INT32_MAX)
        return picture_reject(err, PICTURE_DECODE, "PNG: %u x %u pixels", ret->width, ret->height);
    return 0;
}

static _noreturn_ void on_error(png_structp png, png_const_charp text)
{
    PngRead *read = png_get_error_ptr(png);
    (void)snprintf(read->text, sizeof(read->text), "%s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    PngRead *read = png_get_io_ptr(png);
    if (n > read->n_bytes - read->at) {
        read->truncated = true;
        png_error(png, "it ends before its pixels do");
    }
    memcpy(to, read->data + read->at, n);
    read->at += n;
}

static png_voidp on_malloc(png_structp png, size_t n)
{
    PngRead *read = png_get_mem_ptr(png);
    void *p = malloc(n);
    if (!p)
        read->no_memory = true;
    return p;
}

static void on_free(png_structp png, png_voidp p)
{
    (void)png;
    free(p);
}

static void png_release(PngRead *read)
{
    png_destroy_read_struct(&read->png, &read->info, NULL);
    free(read->pixels);
}

/* libpng's errors return to the setjmp() here; everything that is needed afterwards is in *read. */
static bool decode_rows(PngRead *read)
{
    if (setjmp(png_jmpbuf(read->png)))
        return false;
    png_set_read_fn(read->png, read, on_read);
    png_set_user_limits(read->png, INT32_MAX, INT32_MAX);
    png_set_keep_unknown_chunks(read->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_crc_action(read->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_read_info(read->png, read->info);
    /* libpng compares a transparent colour with all 16 bits of each value, and only then keeps the high byte. */
    png_set_expand(read->png);
    png_set_strip_16(read->png);
    png_set_gray_to_rgb(read->png);
    int n_passes = png_set_interlace_handling(read->png);
    png_read_update_info(read->png, read->info);
    read->row_bytes = png_get_rowbytes(read->png, read->info);
    uint32_t height = png_get_image_height(read->png, read->info);
    read->pixels = calloc(height, read->row_bytes);
    if (!read->pixels) {
        read->no_memory = true;
        return false;
    }
    for (int pass = 0; pass < n_passes; pass++)
        for (uint32_t y = 0; y < height; y++)
            png_read_row(read->png, read->pixels + y * read->row_bytes, NULL);
    return true;
}

int pixels_from_png(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                    Error *err)
{
    PngHead head;
    int r = read_head(data, n_bytes, &head, err);
    if (r == 0)
        r = pixels_admit(recipe, head.width, head.height, err);
    if (r == 0 && head.width > ROW_PIXELS_MAX)
        r = picture_reject(err, PICTURE_TOO_LARGE, "PNG: %u x %u pixels, rows of more than %d",
                           head.width, head.height, ROW_PIXELS_MAX);
    if (r != 0)
        return r;

    _cleanup_(png_release) PngRead read = {.data = data, .n_bytes = n_bytes};
    read.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &read, on_error, on_warning, &read,
                                        on_malloc, on_free);
    if (read.png)
        read.info = png_create_info_struct(read.png);
    if (!read.png || !read.info)
        return error_set(err, -ENOMEM, "PNG: out of memory");
    bool whole = decode_rows(&read);
    if (!whole && read.no_memory)
        return error_set(err, -ENOMEM, "PNG: out of memory for %u x %u pixels", head.width,
                         head.height);
    if (!whole)
        return picture_reject(err, read.truncated ? PICTURE_TRUNCATED : PICTURE_DECODE, "PNG: %s",
                              read.text);

    size_t n_pixels = (size_t)head.width * head.height;
    assert(read.row_bytes == (size_t)head.width * 3 || read.row_bytes == (size_t)head.width * 4);
    if (read.row_bytes == (size_t)head.width * 4)
        pixels_on_white(read.pixels, n_pixels);
    *ret = (Pixels){.width = (int)head.width,
                    .height = (int)head.height,
                    .orientation = head.orientation,
                    .rgb = TAKE_PTR(read.pixels)};
    return 0;
}
