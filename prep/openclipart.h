/* SPDX-License-Identifier: Apache-2.0 */
/* openclipart.h - makes the demo's training data from Debian's openclipart-png and openclipart-svg.
 *
 * Every PNG whose sides are both at least 64 pixels, in the order of their paths, becomes a sample: latents (float16
 * 4,16,16: the picture on white in 128 x 128, by codec.h, which stands in for a VAE), text (float16 77,dim: the caption
 * by hashed-text.h, which stands in for a text encoder) and caption (the title and keywords of the SVG of the same
 * name). Beside the shards are empty.npy, the embedding of the empty caption, and the compact index. The same packages
 * give the same bytes.
 *
 * openclipart_make_raw() instead writes the unchanged picture files and their captions into tars.
 *
 * Ownership: none. Units: bytes, samples.
 * Errors:    -ENOENT the packages are not installed; -EEXIST out holds a dataset; the store's errors.
 * Threads:   one; decodes on as many threads as there are CPUs, at most 16.
 */
#pragma once

#include "base/error.h"

typedef struct OpenclipartOptions {
    const char *source; /* usually /usr/share/openclipart */
    const char *out;    /* a store's URI, for openclipart_make() */
    const char *raw;    /* a store's URI, for openclipart_make_raw() */
    int64_t n_samples;  /* number of pictures to take, evenly spread over source; 0: all pictures */
    int text_dim;
    uint64_t size_limit;     /* largest size of a shard in bytes */
    const char *compression; /* see MdsWriterOptions.compression */
} OpenclipartOptions;

int openclipart_make(const OpenclipartOptions *options, Error *err);
/* Writes tars of at most 256 samples, KEY.png and KEY.txt; fewer if the pictures are large. -EEXIST: raw holds tars. */
int openclipart_make_raw(const OpenclipartOptions *options, Error *err);

/* Returns "title, keyword, keyword" from an SVG's metadata element, an empty string if it has none; the caller frees
 * it. */
int openclipart_caption(const char *svg, size_t n_bytes, char **ret);
