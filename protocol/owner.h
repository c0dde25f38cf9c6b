/* SPDX-License-Identifier: Apache-2.0 */
/* owner.h - the owner of a checkpoint folder: the objects owner/<n> below its URI.
 *
 * A writer claims the folder by putting the object with the next number, if it is absent. The writer of the highest
 * number owns the folder. trainer/checkpoint/owner.h has the rules.
 *
 * Ownership: owner_format() gives the caller the text.
 * Units:     claimed_usec is CLOCK_REALTIME, for people.
 * Errors:    -EBADMSG with the key in the text; -EPROTONOSUPPORT: a newer version wrote the object; -ENOMEM.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

enum {
    OWNER_VERSION = 1,
    OWNER_NUMBER_MAX = 999999,
    OWNER_KEY_MAX = 16,
    OWNER_CLOSED_KEY_MAX = 24,
    OWNER_OBJECT_MAX = 4096, /* limit for an object's text in bytes */
    OWNER_TERMS_MAX = 3072,
    OWNERS_LISTED_MAX = 1 << 16,
};

#define OWNER_PREFIX "owner/"
/* This key is not a claim: it is the file that `sdtrainer run` locks while it writes to file://. */
#define OWNER_LOCK OWNER_PREFIX "lock"

/* This key is not a claim: owner/closed-<n> means that the `sdtrainer run` that was owner n has ended and writes no
 * more. Its text is the claim of that owner. */
#define OWNER_CLOSED OWNER_PREFIX "closed-"

typedef struct OwnerRecord {
    int64_t number;
    char submission[33]; /* submission of the cluster's job; of `sdtrainer run`: random each time */
    char claim[33];      /* random, to distinguish two writers that put the same number */
    bool alone;          /* the owner is a `sdtrainer run` */
    char job[64], host[65];
    int64_t pid;
    int64_t generation; /* the generation that claimed the folder */
    Hash job_identity, dataset_digest;
    int64_t claimed_usec;
    /* The texts behind the two hashes (job-terms.h). Empty: an older version wrote the object, or the text did not
     * fit. */
    char job_terms[OWNER_TERMS_MAX], dataset_terms[OWNER_TERMS_MAX];
} OwnerRecord;

void owner_key_format(int64_t number, char key[OWNER_KEY_MAX]);
/* Parses a key of owner_key_format() for a number in 1..OWNER_NUMBER_MAX. Returns -EINVAL for any other key. */
int owner_key_parse(const char *key, int64_t *ret);
/* Makes the object's text. Terms are omitted if they would make it longer than OWNER_OBJECT_MAX, the limit in every
 * version. */
int owner_format(const OwnerRecord *record, char **ret);
/* Parses an object's text. ret->number is 0 afterwards, because the number is only in the key. */
int owner_parse(const char *source, const char *text, size_t n_bytes, OwnerRecord *ret, Error *err);
/* Writes a text such as "job first of submission 00112233 (on n1, process 77, generation 3, since 2026-11-22 15:04:05
 * UTC)". */
void owner_describe(const OwnerRecord *record, char *ret, size_t size);
