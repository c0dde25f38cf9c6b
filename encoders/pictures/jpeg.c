/* SPDX-License-Identifier: Apache-2.0 */
/* jpeg.c - JPEG files by libjpeg-turbo: grey, YCbCr, RGB, CMYK and YCCK, baseline and progressive.
 *
 * If data are missing or broken, libjpeg only warns, continues, and fills in grey. A picture that is partly grey is not
 * usable, so these warnings reject it here. Scans are counted: each scan costs a pass over all coefficients. */
#include "encoders/pictures/pixels.h"

#include "base/cleanup.h"

/* jpeglib.h needs stdio.h and stddef.h before it. */
#include <jpeglib.h>

#include <jerror.h>
#include <setjmp.h>
#include <string.h>

enum { SCANS_MAX = 100, ROWS_AT_ONCE = 8, EXIF_HEAD_BYTES = 6 };

/* One read by libjpeg: its source and its result. The callbacks find it through cinfo->client_data. */
typedef struct JpegRead {
    const PictureRecipe *recipe;
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    int r; /* the result of pixels_from_jpeg(); 0 while no fault was found */
    Error err;
    int orientation;
    uint8_t *rgb, *cmyk; /* rgb: the picture; cmyk: one row */
} JpegRead;

static _noreturn_ void give_up(j_common_ptr cinfo, int r, const char *text)
{
    JpegRead *read = cinfo->client_data;
    if (r < 0)
        read->r = error_set(&read->err, r, "JPEG: %s", text);
    else
        read->r = picture_reject(&read->err, (PictureVerdict)r, "JPEG: %s", text);
    longjmp(read->back, 1);
}

static _noreturn_ void on_error(j_common_ptr cinfo)
{
    char text[JMSG_LENGTH_MAX];
    cinfo->err->format_message(cinfo, text);
    give_up(cinfo, cinfo->err->msg_code == JERR_OUT_OF_MEMORY ? -ENOMEM : PICTURE_DECODE, text);
}

static void on_message(j_common_ptr cinfo, int level)
{
    char text[JMSG_LENGTH_MAX];
    if (level >= 0)
        return; /* the message is a trace, not a warning */
    switch (cinfo->err->msg_code) {
    case JWRN_HIT_MARKER:
        cinfo->err->format_message(cinfo, text);
        give_up(cinfo, PICTURE_TRUNCATED, text);
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        cinfo->err->format_message(cinfo, text);
        give_up(cinfo, PICTURE_DECODE, text);
    default: /* warns of bytes between segments, for example: no pixel is missing */
        break;
    }
}

static void on_output(j_common_ptr cinfo) { (void)cinfo; }
static void on_source(j_decompress_ptr cinfo) { (void)cinfo; }

static boolean on_empty(j_decompress_ptr cinfo)
{
    give_up((j_common_ptr)cinfo, PICTURE_TRUNCATED, "it ends before its last marker");
}

static void on_skip(j_decompress_ptr cinfo, long n)
{
    if (n > 0 && (size_t)n > cinfo->src->bytes_in_buffer)
        give_up((j_common_ptr)cinfo, PICTURE_TRUNCATED, "it ends in a segment");
    if (n > 0) {
        cinfo->src->next_input_byte += n;
        cinfo->src->bytes_in_buffer -= (size_t)n;
    }
}

static void on_progress(j_common_ptr cinfo)
{
    if (((j_decompress_ptr)cinfo)->input_scan_number > SCANS_MAX)
        give_up(cinfo, PICTURE_DECODE, "more than 100 scans");
}

static uint8_t muldiv255(uint32_t a, uint32_t b)
{
    uint32_t t = a * b + 128;
    return (uint8_t)(((t >> 8) + t) >> 8);
}

/* Converts with Pillow's arithmetic. Files hold 255 - ink, a convention of Photoshop, which Pillow assumes for all
 * files. */
static void rgb_from_cmyk(const uint8_t *cmyk, size_t n, uint8_t *rgb)
{
    for (; n > 0; n--, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(cmyk[3] - muldiv255(255U - cmyk[c], cmyk[3]));
}

static void find_orientation(JpegRead *read)
{
    read->orientation = 1;
    for (jpeg_saved_marker_ptr m = read->cinfo.marker_list; m; m = m->next)
        if (m->data_length > EXIF_HEAD_BYTES && memcmp(m->data, "Exif\0\0", EXIF_HEAD_BYTES) == 0) {
            read->orientation =
                exif_orientation(m->data + EXIF_HEAD_BYTES, m->data_length - EXIF_HEAD_BYTES);
            break;
        }
}

static void choose_colours(struct jpeg_decompress_struct *cinfo)
{
    if (cinfo->num_components == 2)
        give_up((j_common_ptr)cinfo, PICTURE_DECODE, "two components");
    cinfo->out_color_space = cinfo->num_components == 4 ? JCS_CMYK : JCS_RGB;
}

static void decode_rows(JpegRead *read)
{
    struct jpeg_decompress_struct *cinfo = &read->cinfo;
    size_t width = cinfo->output_width, row = width * 3;
    bool cmyk = cinfo->out_color_space == JCS_CMYK;
    read->rgb = malloc(row * cinfo->output_height);
    read->cmyk = cmyk ? malloc(width * 4) : NULL;
    if (!read->rgb || (cmyk && !read->cmyk))
        give_up((j_common_ptr)cinfo, -ENOMEM, "out of memory for its pixels");
    while (cinfo->output_scanline < cinfo->output_height) {
        uint8_t *to = read->rgb + cinfo->output_scanline * row;
        JSAMPROW rows[ROWS_AT_ONCE];
        JDIMENSION n = MIN(cinfo->output_height - cinfo->output_scanline, (JDIMENSION)ROWS_AT_ONCE);
        for (JDIMENSION i = 0; i < n; i++)
            rows[i] = to + i * row;
        if (!cmyk) {
            (void)jpeg_read_scanlines(cinfo, rows, n); /* output_scanline counts the rows */
        } else {
            rows[0] = read->cmyk;
            /* Reads the one row, since the source never suspends. */
            (void)jpeg_read_scanlines(cinfo, rows, 1);
            rgb_from_cmyk(read->cmyk, width, to);
        }
    }
}

/* libjpeg's errors return to the setjmp() here; everything that is needed afterwards is in *read. */
static void decode(JpegRead *read)
{
    if (setjmp(read->back))
        return;
    jpeg_create_decompress(&read->cinfo);
    read->cinfo.src = &read->source;
    read->cinfo.progress = &read->progress;
    jpeg_save_markers(&read->cinfo, JPEG_APP0 + 1, 0xFFFF);
    /* The result is always the same: the source never suspends, and with TRUE an abbreviated file is an error. */
    (void)jpeg_read_header(&read->cinfo, TRUE);
    read->r =
        pixels_admit(read->recipe, read->cinfo.image_width, read->cinfo.image_height, &read->err);
    if (read->r != 0)
        return;
    find_orientation(read);
    choose_colours(&read->cinfo);
    (void)jpeg_start_decompress(&read->cinfo); /* the source never suspends */
    decode_rows(read);
    (void)jpeg_finish_decompress(&read->cinfo); /* reads to the last marker */
}

static void jpeg_release(JpegRead *read)
{
    jpeg_destroy_decompress(&read->cinfo);
    free(read->rgb);
    free(read->cmyk);
}

int pixels_from_jpeg(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                     Error *err)
{
    _cleanup_(jpeg_release) JpegRead read = {.recipe = recipe};
    read.cinfo.err = jpeg_std_error(&read.errors);
    read.cinfo.client_data = &read;
    read.errors.error_exit = on_error;
    read.errors.emit_message = on_message;
    read.errors.output_message = on_output;
    read.progress.progress_monitor = on_progress;
    read.source = (struct jpeg_source_mgr){.next_input_byte = data,
                                           .bytes_in_buffer = n_bytes,
                                           .init_source = on_source,
                                           .fill_input_buffer = on_empty,
                                           .skip_input_data = on_skip,
                                           .resync_to_restart = jpeg_resync_to_restart,
                                           .term_source = on_source};
    decode(&read);
    if (read.r != 0) {
        if (err)
            *err = read.err;
        return read.r;
    }
    *ret = (Pixels){.width = (int)read.cinfo.output_width,
                    .height = (int)read.cinfo.output_height,
                    .orientation = read.orientation,
                    .rgb = TAKE_PTR(read.rgb)};
    return 0;
}
