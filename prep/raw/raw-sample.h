/* SPDX-License-Identifier: Apache-2.0 */
/* raw-sample.h - one picture with its caption, as it lies in a tar or an MDS shard, or the reason why there is none.
 *
 * Ownership: a RawSample owns what it points to; raw_sample_clear() frees it and leaves zeros.
 * Units:     bytes.
 * Errors:    -ENOMEM.
 * Threads:   one.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <jansson.h>

typedef enum RawReason {
    RAW_FINE,
    RAW_NO_IMAGE,
    RAW_NO_CAPTION, /* missing, null, or no text; an empty one is a caption */
    RAW_NOT_UTF8,
    RAW_TRUNCATED,  /* the tar ends, or is damaged, inside the sample */
    RAW_TOO_LARGE,  /* a member beyond RAW_PICTURE_MAX or RAW_TEXT_MAX */
    RAW_TWO_IMAGES, /* nobody says which one the caption is about */
    RAW_DUPLICATE_KEY, /* the first sample of a key counts; a sample whose member comes twice does not */
    RAW_SPARSE,
    RAW_BAD_JSON,
    RAW_APART, /* members of its key lie elsewhere in the tar */
    RAW_N_REASONS
} RawReason;

enum { RAW_PICTURE_MAX = 1 << 26, RAW_TEXT_MAX = 1 << 24, RAW_WHY_MAX = 200 };

typedef struct RawSample {
    int64_t index; /* in its unit, rejected ones counted */
    char *key;     /* UTF-8: what was none is U+FFFD */
    RawReason reason;
    char why[RAW_WHY_MAX]; /* for people */
    char *picture;
    size_t n_picture;
    char *caption; /* NULL: there is none. Valid UTF-8 if the reason is RAW_FINE */
    size_t n_caption;
    json_t *fields; /* what a .json, or the other columns, say; NULL: nothing */
} RawSample;

void raw_sample_clear(RawSample *sample);
/* "no-image", ... */
const char *raw_reason_name(RawReason reason);
/* Sets reason and why, unless there is one already. */
void raw_sample_reject(RawSample *sample, RawReason reason, const char *format, ...) _printf_(3, 4);
/* Reads a .json's text: its fields, and, if the sample has no caption yet, the one of that key; NULL: it holds none. */
int raw_sample_take_json(RawSample *sample, const char *text, size_t n_bytes,
                         const char *caption_key);
/* Rejects a sample unless it has a picture and a caption that is UTF-8. keep_missing: a sample without a caption is
 * fine. */
void raw_sample_check(RawSample *sample, bool keep_missing);
