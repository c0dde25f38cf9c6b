/* SPDX-License-Identifier: Apache-2.0 */
/* owner.h - whose a checkpoint folder is: the objects owner/<n> below its URI.
 *
 * Each who takes the folder over puts the next number, if absent; the highest owns it. See
 * trainer/checkpoint/owner.h for the rules.
 *
 * Ownership: owner_format() gives the caller the text.
 * Units:     claimed_usec is CLOCK_REALTIME, for people.
 * Errors:    -EBADMSG, naming the key; -EPROTONOSUPPORT a newer version; -ENOMEM.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "base/hash.h"

enum {
    OWNER_VERSION = 1,
    OWNER_NUMBER_MAX = 999999,
    OWNER_KEY_MAX = 16,
    OWNER_CLOSED_KEY_MAX = 24,
    OWNER_OBJECT_MAX = 4096, /* bytes */
    OWNERS_LISTED_MAX = 1 << 16,
};

#define OWNER_PREFIX "owner/"
#define OWNER_LOCK OWNER_PREFIX "lock" /* not a number: held by `sdtrainer run` on file:// */

/* owner/closed-<n>, not a number either: the `sdtrainer run` that is owner <n> has ended and writes no more. Its
 * text is that owner's claim. */
#define OWNER_CLOSED OWNER_PREFIX "closed-"

typedef struct OwnerRecord {
    int64_t number;
    char submission[33]; /* of a cluster's job; of `sdtrainer run`: drawn by each */
    char claim[33];      /* drawn by who put it: two who pass each other differ */
    bool alone;          /* it is a `sdtrainer run` */
    char job[64], host[65];
    int64_t pid;
    int64_t generation; /* that claimed it */
    Hash job_identity, dataset_digest;
    int64_t claimed_usec;
} OwnerRecord;

void owner_key_format(int64_t number, char key[OWNER_KEY_MAX]);
/* -EINVAL unless it is exactly what owner_key_format() writes for 1 to OWNER_NUMBER_MAX. */
int owner_key_parse(const char *key, int64_t *ret);
int owner_format(const OwnerRecord *record, char **ret);
/* Does not fill number, which the key says. */
int owner_parse(const char *source, const char *text, size_t n_bytes, OwnerRecord *ret, Error *err);
/* "job first of submission 00112233 (on n1, process 77, since 2026-11-22 15:04:05 UTC)" */
void owner_describe(const OwnerRecord *record, char *ret, size_t size);
