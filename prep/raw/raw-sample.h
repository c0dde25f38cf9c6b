/* SPDX-License-Identifier: Apache-2.0 */
/* raw-sample.h - one picture with its caption, as read from a tar or an MDS shard, or the reason why it was rejected.
 *
 * Units: bytes. Errors: -ENOMEM.
 * Ownership: a RawSample owns what it points to; raw_sample_clear() frees that and zeroes the RawSample.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <jansson.h>

typedef enum RawReason {
    RAW_FINE,
    RAW_NO_IMAGE,
    RAW_NO_CAPTION, /* missing, null or not a text; an empty text is a caption */
    RAW_NOT_UTF8,
    RAW_TRUNCATED,     /* the tar ends, or is damaged, inside the sample */
    RAW_TOO_LARGE,     /* a member exceeds RAW_PICTURE_MAX, RAW_TEXT_MAX, or 4 MiB of .json */
    RAW_TWO_IMAGES,    /* it is unknown which picture the caption describes */
    RAW_DUPLICATE_KEY, /* an earlier sample has this key, or a member occurs twice */
    RAW_SPARSE,
    RAW_BAD_JSON,
    RAW_APART, /* other members with the sample's key lie elsewhere in the tar */
    RAW_N_REASONS
} RawReason;

enum { RAW_PICTURE_MAX = 1 << 26, RAW_TEXT_MAX = 1 << 24, RAW_WHY_MAX = 200 };

typedef struct RawSample {
    int64_t index; /* number of the sample in its unit; rejected samples are counted, too */
    char *key;     /* UTF-8; invalid bytes are replaced by U+FFFD */
    RawReason reason;
    char why[RAW_WHY_MAX]; /* the reason in words, for people */
    char *picture;
    size_t n_picture;
    char *caption; /* NULL: none. Valid UTF-8 if the reason is RAW_FINE */
    size_t n_caption;
    json_t *fields; /* contents of the .json, or of the other columns; NULL: none */
} RawSample;

void raw_sample_clear(RawSample *sample);
/* Returns the name of a reason, such as "no-image". */
const char *raw_reason_name(RawReason reason);
/* Sets reason and why, unless the sample was rejected before. */
void raw_sample_reject(RawSample *sample, RawReason reason, const char *format, ...) _printf_(3, 4);
/* Parses the text of a .json into the sample's fields. If the sample has no caption yet, the value of caption_key
 * becomes its caption; caption_key may be NULL. */
int raw_sample_take_json(RawSample *sample, const char *text, size_t n_bytes,
                         const char *caption_key);
/* Rejects a sample that has no picture, no caption, or a caption that is not UTF-8. keep_missing: a sample without a
 * caption is accepted. */
void raw_sample_check(RawSample *sample, bool keep_missing);
