/* SPDX-License-Identifier: Apache-2.0 */
/* webp.c - WebP files by libwebp: lossy and lossless, with alpha or without. */
#include "encoders/pictures/pixels.h"

#include "base/cleanup.h"

#include <string.h>
#include <webp/decode.h>

enum { RIFF_HEAD_BYTES = 12, CHUNK_HEAD_BYTES = 8, EXIF_HEAD_BYTES = 6, HAS_EXIF = 0x08 };

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* As in other readers, EXIF counts only if the head of an extended file announces it, and bytes behind the RIFF chunk
 * are not part of the file. */
static int find_orientation(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes <= RIFF_HEAD_BYTES + CHUNK_HEAD_BYTES ||
        memcmp(data + RIFF_HEAD_BYTES, "VP8X", 4) != 0 ||
        !(data[RIFF_HEAD_BYTES + CHUNK_HEAD_BYTES] & HAS_EXIF))
        return 1;
    for (size_t at = RIFF_HEAD_BYTES; n_bytes - at >= CHUNK_HEAD_BYTES;) {
        const uint8_t *body = data + at + CHUNK_HEAD_BYTES;
        size_t length = le32(data + at + 4), left = n_bytes - at - CHUNK_HEAD_BYTES;
        if (length > left)
            break;
        if (memcmp(data + at, "EXIF", 4) == 0) {
            bool head = length > EXIF_HEAD_BYTES && memcmp(body, "Exif\0\0", EXIF_HEAD_BYTES) == 0;
            size_t skip = head ? EXIF_HEAD_BYTES : 0;
            return exif_orientation(body + skip, length - skip);
        }
        if (length + (length & 1) > left)
            break;
        at += CHUNK_HEAD_BYTES + length + (length & 1);
    }
    return 1;
}

/* Converts libwebp's status to a verdict or -ENOMEM. The file's RIFF chunk is complete, so data that end early are
 * broken, not truncated. */
static int reject_status(VP8StatusCode status, Error *err)
{
    static const char *const texts[] = {
        [VP8_STATUS_INVALID_PARAM] = "invalid parameter",
        [VP8_STATUS_BITSTREAM_ERROR] = "broken",
        [VP8_STATUS_UNSUPPORTED_FEATURE] = "of a kind that libwebp does not read",
        [VP8_STATUS_SUSPENDED] = "its data end early",
        [VP8_STATUS_USER_ABORT] = "stopped",
        [VP8_STATUS_NOT_ENOUGH_DATA] = "its data end early",
    };
    if (status == VP8_STATUS_OUT_OF_MEMORY)
        return error_set(err, -ENOMEM, "WebP: out of memory");
    const char *text = (size_t)status < ELEMENTSOF(texts) ? texts[status] : NULL;
    return picture_reject(err, PICTURE_DECODE, "WebP: %s", text ? text : "broken");
}

int pixels_from_webp(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                     Error *err)
{
    assert(n_bytes >= RIFF_HEAD_BYTES);
    size_t riff_bytes = (size_t)le32(data + 4) + CHUNK_HEAD_BYTES;
    if (riff_bytes > n_bytes)
        return picture_reject(err, PICTURE_TRUNCATED, "WebP: %zu bytes of %zu", n_bytes,
                              riff_bytes);

    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return error_set(err, -EINVAL, "libwebp is not of the version of its headers");
    VP8StatusCode status = WebPGetFeatures(data, n_bytes, &config.input);
    if (status != VP8_STATUS_OK)
        return reject_status(status, err);
    if (config.input.has_animation)
        return picture_reject(err, PICTURE_ANIMATED, "WebP: an animation");
    size_t width = (size_t)config.input.width, height = (size_t)config.input.height;
    int r = pixels_admit(recipe, (int64_t)width, (int64_t)height, err);
    if (r != 0)
        return r;

    size_t row = width * (config.input.has_alpha ? 4 : 3);
    _cleanup_free_ uint8_t *pixels = malloc(row * height);
    if (!pixels)
        return error_set(err, -ENOMEM, "WebP: out of memory for %zu x %zu pixels", width, height);
    config.output.colorspace = config.input.has_alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA =
        (WebPRGBABuffer){.rgba = pixels, .stride = (int)row, .size = row * height};
    status = WebPDecode(data, n_bytes, &config);
    if (status != VP8_STATUS_OK)
        return reject_status(status, err);

    if (config.input.has_alpha)
        pixels_on_white(pixels, width * height);
    *ret = (Pixels){.width = (int)width,
                    .height = (int)height,
                    .orientation = find_orientation(data, riff_bytes),
                    .rgb = TAKE_PTR(pixels)};
    return 0;
}
