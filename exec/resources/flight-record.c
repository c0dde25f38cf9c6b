/* SPDX-License-Identifier: Apache-2.0 */
/* flight-record.c - see flight-record.h. */
#include "exec/resources/flight-record.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEPT = 32,        /* records on a node: of eight ranks four times */
    FOUND_MAX = 1024, /* more files in the folder are left for the next time */
    PATIENCE_MSEC =
        2000, /* less than RANK_EXPLAIN_MSEC of sdtraind; the pipe is looked at each second */
    QUIET_MSEC = 100, /* the record is written when it has not grown for so long */
    LOOK_MSEC = 50,
};

/* ---- the folder of records ---- */

typedef struct Found {
    char name[NAME_MAX + 1];
    struct timespec at;
} Found;

/* The newest first. */
static int compare(const void *a, const void *b)
{
    const Found *x = a, *y = b;
    if (x->at.tv_sec != y->at.tv_sec)
        return x->at.tv_sec < y->at.tv_sec ? 1 : -1;
    return x->at.tv_nsec < y->at.tv_nsec ? 1 : x->at.tv_nsec > y->at.tv_nsec ? -1 : 0;
}

/* Ranks of one node may do this at the same time: what another has removed is gone all the same. */
static void remove_old(DIR *folder)
{
    _cleanup_free_ Found *found = memory_zeroed(FOUND_MAX, sizeof(*found));
    size_t n = 0;
    for (const struct dirent *one; n < FOUND_MAX && (one = readdir(folder));) {
        struct stat st;
        if (fstatat(dirfd(folder), one->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        (void)snprintf(found[n].name, sizeof(found[n].name), "%s", one->d_name);
        found[n++].at = st.st_mtim;
    }
    qsort(found, n, sizeof(*found), compare);
    for (size_t i = KEPT; i < n; i++)
        (void)unlinkat(dirfd(folder), found[i].name, 0);
}

int flight_records_prepare(const char *base, Error *err)
{
    _cleanup_free_ char *path = memory_format("%s/flights", base);
    int r = folder_make(path, err);
    if (r < 0)
        return r;
    DIR *folder = opendir(path);
    if (!folder)
        return error_errno(err, -errno, "%s", path);
    remove_old(folder);
    (void)closedir(folder);
    return 0;
}

/* ---- the record of one program ---- */

void flight_record_find(FlightRecord *record, const char *pipe, const char *file, int rank)
{
    *record = (FlightRecord){0};
    if (!pipe || !*pipe || !file ||
        snprintf(record->file, sizeof(record->file), "%s%d", file, rank) >= PATH_MAX ||
        snprintf(record->pipe, sizeof(record->pipe), "%s%d.pipe", pipe, rank) >= PATH_MAX)
        *record = (FlightRecord){0};
}

static void look(const FlightRecord *record, struct stat *ret)
{
    if (stat(record->file, ret) < 0)
        *ret = (struct stat){0};
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           memcmp(&a->st_mtim, &b->st_mtim, sizeof(a->st_mtim)) == 0;
}

bool flight_record_request(FlightRecord *record, uint64_t now_usec)
{
    struct stat st;
    if (!*record->pipe)
        return false;
    look(record, &record->was);
    /* without a reader this fails with ENXIO */
    _cleanup_fd_ int fd = open(record->pipe, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode) || write(fd, "1\n", 2) != 2)
        return false;
    record->asked_usec = now_usec;
    return true;
}

uint64_t flight_record_watch(FlightRecord *record, uint64_t now_usec)
{
    struct stat st;
    if (record->asked_usec == 0 || record->is_written)
        return 0;
    look(record, &st);
    if (!is_same(&st, &record->was)) {
        record->was = st;
        record->changed_usec = now_usec;
    }
    record->is_written = record->changed_usec > 0 && st.st_size > 0 &&
                         now_usec >= record->changed_usec + QUIET_MSEC * USEC_PER_MSEC;
    if (record->is_written || now_usec >= record->asked_usec + PATIENCE_MSEC * USEC_PER_MSEC)
        return 0;
    return now_usec + LOOK_MSEC * USEC_PER_MSEC;
}
