/* SPDX-License-Identifier: Apache-2.0 */
/* log-tail.c - see log-tail.h. */
#include "daemon/process/log-tail.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text/printable.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { OLD, PRESENT, HALVES };

typedef struct Half {
    int fd;
    int64_t file, size;
} Half;

/* Returns a number that identifies the file, also after a rename. Inode numbers are used again after a deletion, so
 * the time of birth is mixed in. */
static int64_t number_of(int fd, const struct stat *st)
{
    struct statx x;
    uint64_t number = st->st_ino;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) == 0 && x.stx_mask & STATX_BTIME)
        number ^= (uint64_t)x.stx_btime.tv_sec * 1000000007 + x.stx_btime.tv_nsec * UINT64_C(4099);
    number &= INT64_MAX;
    return number ? (int64_t)number : 1;
}

/* Opens one half of a log. The rank's user could put another file in its place, which must not make the daemon
 * block, or read a file elsewhere. */
static void open_half(const LogTail *tail, int rank, const char *suffix, Half *ret)
{
    char path[800];
    struct stat st;
    *ret = (Half){.fd = -EBADF};
    (void)snprintf(path, sizeof(path), "%s/%s/g%lld/rank%d.log%s", tail->log_dir, tail->job,
                   (long long)tail->generation, rank, suffix);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    *ret = (Half){.file = number_of(fd, &st), .size = st.st_size};
    ret->fd = TAKE_FD(fd);
}

/* Moves the place to where the last `bytes` bytes of the two halves begin. If that is inside a line, moves the place on
 * to the next line. Returns the number of bytes before the place. */
static int64_t go_to_tail(const Half *halves, int64_t bytes, LogPlace *place)
{
    const Half *half = &halves[PRESENT];
    int64_t before = halves[OLD].size;
    if (half->fd < 0 || (half->size < bytes && halves[OLD].fd >= 0)) {
        bytes = MAX(bytes - half->size, 0);
        half = &halves[OLD];
        before = 0;
    }
    place->file = half->file;
    place->offset = MAX(half->size - bytes, 0);
    char text[LOG_TAIL_LINE_MAX];
    ssize_t n = place->offset > 0 ? pread(half->fd, text, sizeof(text), place->offset - 1) : 0;
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    if (end)
        place->offset += end - text;
    return before + place->offset;
}

static int64_t left_of(const Half *halves, size_t at, int64_t offset)
{
    return halves[at].size - offset + (at == OLD ? halves[PRESENT].size : 0);
}

/* Finds the half of the log that the place is in. Returns the number of bytes that are skipped on the way. */
static int64_t find_place(const LogTail *tail, const Half *halves, LogPlace *place, size_t *ret)
{
    int64_t skipped = 0;
    size_t at = PRESENT;
    while (at < HALVES && (halves[at].fd < 0 || halves[at].file != place->file))
        at = at == PRESENT ? OLD : HALVES;
    if (at == HALVES) {
        const bool lost = place->file != 0; /* the log has turned over twice since the last read */
        skipped = MAX(go_to_tail(halves, tail->tail_bytes, place), (int64_t)lost);
    } else if (halves[at].size < place->offset) { /* a later job of that name emptied the file */
        place->offset = 0;
    } else if (left_of(halves, at, place->offset) > LOG_TAIL_BEHIND_MAX + tail->tail_bytes) {
        const int64_t left = left_of(halves, at, place->offset);
        (void)go_to_tail(halves, tail->tail_bytes, place); /* skipped is computed below */
        at = place->file == halves[PRESENT].file ? PRESENT : OLD;
        skipped = left - left_of(halves, at, place->offset);
    }
    *ret = halves[PRESENT].fd >= 0 && place->file == halves[PRESENT].file ? PRESENT : OLD;
    assert(halves[*ret].fd >= 0 && place->file == halves[*ret].file);
    return skipped;
}

/* Returns how many of the n bytes are handed out: all whole lines. Without a whole line: all bytes, but none if the
 * line waits for its end and has less than LOG_TAIL_LINE_MAX bytes. */
static size_t whole_lines(const char *text, size_t n, bool waits)
{
    const char *last = memrchr(text, '\n', n);
    if (last)
        return (size_t)(last - text) + 1;
    return waits && n < LOG_TAIL_LINE_MAX ? 0 : n;
}

/* Makes each line printable UTF-8, since a record must be UTF-8 as a whole. The valid parts of a bad line are kept. */
static void make_harmless(char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        printable_make_bytes(text + at, length);
        printable_repair_bytes(text + at, length);
        at += length + 1;
    }
}

static int read_half(const LogTail *tail, const Half *halves, size_t at, LogPlace *place,
                     char *buffer, size_t size, LogTailPiece *piece)
{
    ssize_t n = pread(halves[at].fd, buffer, size, place->offset);
    if (n < 0)
        return -errno;
    /* At the end of the old half all bytes are handed out: its last line may go on in the present half. */
    const bool is_end = place->offset + n >= halves[at].size;
    const bool waits = at == PRESENT && tail->follow;
    size_t whole = (size_t)n;
    if (!is_end || waits)
        whole = whole_lines(buffer, (size_t)n, waits);
    place->offset += (int64_t)whole;
    assert(whole <= size);
    piece->n += whole;
    piece->more = !is_end;
    return 0;
}

int log_tail_read(const LogTail *tail, LogPlace *place, char *buffer, size_t size,
                  LogTailPiece *ret)
{
    Half halves[HALVES];
    LogTailPiece piece = {0};
    size_t at;
    int r = 0;
    assert(size >= LOG_TAIL_LINE_MAX);
    /* Opens the old half last: if the log turns over between the two calls, one file is opened twice, and none is
     * missed. */
    open_half(tail, place->rank, "", &halves[PRESENT]);
    open_half(tail, place->rank, ".1", &halves[OLD]);
    if (halves[OLD].file == halves[PRESENT].file)
        halves[PRESENT] = (Half){.fd = fd_close(halves[PRESENT].fd)};
    if (halves[OLD].fd < 0 && halves[PRESENT].fd < 0)
        return -ENOENT;

    piece.skipped = find_place(tail, halves, place, &at);
    r = read_half(tail, halves, at, place, buffer, size, &piece);
    if (r == 0 && at == OLD && !piece.more && halves[PRESENT].fd >= 0) {
        place->file = halves[PRESENT].file;
        place->offset = 0;
        piece.more = halves[PRESENT].size > 0;
    }
    (void)fd_close(halves[OLD].fd);
    (void)fd_close(halves[PRESENT].fd);
    if (r < 0)
        return r;
    make_harmless(buffer, piece.n);
    *ret = piece;
    return 0;
}

static int rank_in(const char *name)
{
    int rank, end = 0;
    const bool good = sscanf(name, "rank%5d.log%n", &rank, &end) == 1 && end > 0 && rank >= 0 &&
                      rank < RECORD_RANKS_MAX && (!name[end] || strcmp(name + end, ".1") == 0);
    return good ? rank : -1;
}

size_t log_tail_ranks(const LogTail *tail, int *ranks, size_t most)
{
    char path[800];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "%s/%s/g%lld", tail->log_dir, tail->job,
                   (long long)tail->generation);
    _cleanup_dir_ DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int rank = rank_in(entry->d_name);
        size_t at = 0;
        while (at < n && ranks[at] < rank)
            at++;
        if (rank < 0 || at == most || (at < n && ranks[at] == rank))
            continue;
        n = MIN(n + 1, most);
        memmove(&ranks[at + 1], &ranks[at], (n - at - 1) * sizeof(ranks[0]));
        ranks[at] = rank;
    }
    return n;
}
