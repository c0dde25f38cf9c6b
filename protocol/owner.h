/* SPDX-License-Identifier: Apache-2.0 */
/* owner.h - the owner of a checkpoint folder: the objects owner/<n> below its URI.
 *
 * A writer claims the folder by putting the next number, if absent. The highest number owns it. The rules stand in
 * trainer/checkpoint/owner.h.
 *
 * Ownership: owner_format() gives the caller the text.
 * Units:     claimed_usec is CLOCK_REALTIME, for people.
 * Errors:    -EBADMSG naming the key; -EPROTONOSUPPORT: a newer version wrote it; -ENOMEM.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

enum {
    OWNER_VERSION = 1,
    OWNER_NUMBER_MAX = 999999,
    OWNER_KEY_MAX = 16,
    OWNER_CLOSED_KEY_MAX = 24,
    OWNER_OBJECT_MAX = 4096, /* bytes */
    OWNER_TERMS_MAX = 3072,
    OWNERS_LISTED_MAX = 1 << 16,
};

#define OWNER_PREFIX "owner/"
/* Not a claim: the file that `sdtrainer run` locks while it writes to file://. */
#define OWNER_LOCK OWNER_PREFIX "lock"

/* Not a claim: owner/closed-<n> says that the `sdtrainer run` which is owner n has ended and writes no more. Its text
 * is that owner's claim. */
#define OWNER_CLOSED OWNER_PREFIX "closed-"

typedef struct OwnerRecord {
    int64_t number;
    char submission[33]; /* of the cluster's job; each `sdtrainer run` draws its own */
    char claim[33];      /* random, so that two writers who put the same number can be told apart */
    bool alone;          /* the owner is a `sdtrainer run` */
    char job[64], host[65];
    int64_t pid;
    int64_t generation; /* the one that claimed the folder */
    Hash job_identity, dataset_digest;
    int64_t claimed_usec;
    /* Texts that the two hashes are of (job-terms.h). Empty: an older version wrote it, or the object has no room. */
    char job_terms[OWNER_TERMS_MAX], dataset_terms[OWNER_TERMS_MAX];
} OwnerRecord;

void owner_key_format(int64_t number, char key[OWNER_KEY_MAX]);
/* -EINVAL unless key is exactly what owner_key_format() writes for a number in 1..OWNER_NUMBER_MAX. */
int owner_key_parse(const char *key, int64_t *ret);
/* Terms that would make the object longer than OWNER_OBJECT_MAX, which every version reads, are left out. */
int owner_format(const OwnerRecord *record, char **ret);
/* Leaves ret->number 0: the key says it. */
int owner_parse(const char *source, const char *text, size_t n_bytes, OwnerRecord *ret, Error *err);
/* "job first of submission 00112233 (on n1, process 77, since 2026-11-22 15:04:05 UTC)" */
void owner_describe(const OwnerRecord *record, char *ret, size_t size);
