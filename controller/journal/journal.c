/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - see journal.h.
 *
 * `present` holds for each key that exists (and under "" for leadership) the place of its last line in the present
 * part, in the order of time. A new part begins with these lines, so every part contains all of them. Lines that could
 * not be written are kept in memory. */
#include "controller/journal/journal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message-id.h"
#include "base/text/printable.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum {
    QUIESCENT_SEC = 60, /* for this long after a key has vanished, a part is not quiescent */
    RETRY_SEC = 60,     /* pause after a failed write */
    SNAPSHOTS_MIN = 3,
    PLACE_BITS = 24, /* a line is shorter than 16 MiB, as replay.c requires */
};

struct Journal {
    char path[PATH_MAX], old_path[PATH_MAX + 8], new_path[PATH_MAX + 8];
    int fd;
    bool broken; /* nothing is written until a new part has begun, which is tried at retry_usec */
    uint64_t retry_usec;
    JournalHead head;
    json_t *present;
    uint64_t soft_bytes, hard_bytes, max_bytes, n_bytes;
    /* These fields show whether anything is under way. */
    int in_flight;
    /* ids of decisions: the newest, and the newest of an earlier term */
    int64_t newest_id, forgotten_id;
    int64_t written_revision, seen_revision;
    uint64_t vanished_usec;
};

/* Where a line is in the part: its offset, and its length with the newline. */
typedef struct Place {
    uint64_t offset, n_bytes;
} Place;

static json_t *place_json(Place place)
{
    return json_integer((json_int_t)(place.offset << PLACE_BITS | place.n_bytes));
}

static Place place_read(const json_t *json)
{
    uint64_t both = (uint64_t)json_integer_value(json);
    return (Place){both >> PLACE_BITS, both & ((UINT64_C(1) << PLACE_BITS) - 1)};
}

/* Appends the line to the part, which is n_bytes long. */
static int write_text(Journal *journal, int fd, json_t *line, Place *ret)
{
    _cleanup_free_ char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (!text)
        return -EINVAL; /* a text is not UTF-8 */
    size_t n = strlen(text);
    if (n + 1 >= UINT64_C(1) << PLACE_BITS) /* with its newline */
        return -EFBIG;
    text[n] = '\n'; /* replaces the NUL */
    *ret = (Place){journal->n_bytes, n + 1};
    journal->n_bytes += n + 1;
    return fd_write_all(fd, text, n + 1);
}

/* ---- parts ---- */

static int write_head(Journal *journal, int fd, size_t n_snapshot, bool quiescent)
{
    journal->head.n_snapshot = (int64_t)n_snapshot;
    journal->head.quiescent = quiescent;
    _cleanup_json_ json_t *head = journal_head_json(&journal->head);
    Place ignored;
    return write_text(journal, fd, head, &ignored);
}

static int copy_line(Journal *journal, int fd, Place from, Place *ret)
{
    _cleanup_free_ char *text = memory_zeroed(from.n_bytes, 1);
    int r = fd_read_all(journal->fd, text, from.n_bytes, from.offset);
    if (r < 0)
        return r;
    *ret = (Place){journal->n_bytes, from.n_bytes};
    journal->n_bytes += from.n_bytes;
    return fd_write_all(fd, text, from.n_bytes);
}

/* Writes the present lines into the new part; ret gets their new places by key. */
static int write_snapshot(Journal *journal, int fd, json_t *ret)
{
    const char *key;
    json_t *line;
    json_object_foreach (journal->present, key, line) {
        Place place;
        int r = json_is_integer(line) ? copy_line(journal, fd, place_read(line), &place)
                                      : write_text(journal, fd, line, &place);
        if (r < 0)
            return r;
        (void)json_object_set_new(ret, key, place_json(place)); /* cannot fail: the key is valid */
    }
    return 0;
}

static bool is_quiescent(const Journal *journal, uint64_t now_usec)
{
    return journal->in_flight == 0 && journal->written_revision <= journal->seen_revision &&
           now_usec >= journal->vanished_usec + QUIESCENT_SEC * USEC_PER_SEC;
}

/* Sets the bounds of a part, larger than requested if there are many records: a large cluster must not write
 * snapshots all the time. */
static void set_bounds(Journal *journal, uint64_t snapshot_bytes)
{
    journal->soft_bytes = MAX(journal->max_bytes / 4, SNAPSHOTS_MIN * snapshot_bytes);
    journal->hard_bytes = MAX(journal->max_bytes / 2, SNAPSHOTS_MIN * snapshot_bytes);
}

static int write_part(Journal *journal, bool quiescent)
{
    _cleanup_fd_ int fd =
        open(journal->new_path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
    _cleanup_json_ json_t *places = json_object();
    if (fd < 0)
        return -errno;
    const uint64_t n_bytes = journal->n_bytes;
    journal->n_bytes = 0;
    int r = write_head(journal, fd, json_object_size(journal->present), quiescent);
    r = r < 0 ? r : write_snapshot(journal, fd, places);
    if (r == 0 && rename(journal->path, journal->old_path) < 0 && errno != ENOENT)
        r = -errno;
    if (r == 0 && rename(journal->new_path, journal->path) < 0) {
        r = -errno;
        (void)rename(journal->old_path,
                     journal->path); /* the next part replaces the file at old_path */
    }
    if (r < 0) {
        journal->n_bytes = n_bytes;
        (void)unlink(journal->new_path); /* if this fails, the next try truncates the file */
        return r;
    }
    (void)fd_close(journal->fd);
    journal->fd = TAKE_FD(fd);
    json_decref(journal->present);
    journal->present = TAKE_PTR(places);
    journal->broken = false;
    journal->head.lost_events = journal->head.lost_decisions = 0; /* the new head has both */
    set_bounds(journal, journal->n_bytes);
    return 0;
}

static bool is_full(int r) { return r == -ENOSPC || r == -EDQUOT; }

/* The part before the present one is removed when another part begins. On a full disk no part can begin, so that the
 * old part would stay for ever: in that case the old part is removed first. */
static int begin_part(Journal *journal, bool quiescent)
{
    int r = write_part(journal, quiescent);
    if (!is_full(r))
        return r;
    struct stat st;
    if (stat(journal->old_path, &st) < 0 || unlink(journal->old_path) < 0)
        return r;
    log_warning("record: the disk is full: %s and its %lld bytes made way", journal->old_path,
                (long long)st.st_size);
    return write_part(journal, quiescent);
}

/* Stops writing until retry_usec. The file stays open: a new part needs the lines in it. */
static void give_up(Journal *journal, uint64_t now_usec, int r)
{
    if (!journal->broken)
        log_warning("record: cannot write %s: %s; events are not recorded meanwhile", journal->path,
                    strerror(-r));
    journal->broken = true;
    journal->retry_usec = now_usec + RETRY_SEC * USEC_PER_SEC;
}

/* Ensures, before an event is written, that there is a part and that it is not too large. */
static void make_ready(Journal *journal, uint64_t now_usec)
{
    bool quiescent = is_quiescent(journal, now_usec), was_broken = journal->broken;
    const int64_t events = journal->head.lost_events, decisions = journal->head.lost_decisions;
    if (was_broken ? now_usec < journal->retry_usec
                   : journal->n_bytes < (quiescent ? journal->soft_bytes : journal->hard_bytes))
        return;
    int r = begin_part(journal, quiescent);
    if (r < 0)
        give_up(journal, now_usec, r);
    else if (was_broken)
        log_info("record: %s is written again, without %lld event%s and %lld decision%s",
                 journal->path, (long long)events, events == 1 ? "" : "s", (long long)decisions,
                 decisions == 1 ? "" : "s");
}

/* ---- lines ---- */

/* Returns false if the line could not be written; the line then counts as lost. */
static bool write_line(Journal *journal, const Event *event, json_t *line, int64_t *lost,
                       Place *ret)
{
    int r = journal->broken ? -EIO : write_text(journal, journal->fd, line, ret);
    if (r < 0 && !journal->broken)
        give_up(journal, event->now_usec, r);
    *lost += r < 0;
    return r == 0;
}

static json_t *stamped(json_t *line, const Event *event)
{
    int r = line ? 0 : -1;
    if (r == 0)
        r = json_object_set_new(line, "now", json_integer((int64_t)event->now_usec));
    if (r == 0)
        r = json_object_set_new(line, "real", json_integer((int64_t)event->real_usec));
    if (r == 0 && event->stalled)
        r = json_object_set_new(line, "stalled", json_true());
    if (r == 0)
        return line;
    json_decref(line);
    return NULL;
}

/* Writes the line of an existing key, which is part of the state from now on. */
static void write_state(Journal *journal, const Event *event, const char *key, json_t *line)
{
    Place place;
    bool written = write_line(journal, event, line, &journal->head.lost_events, &place);
    (void)json_object_del(journal->present, key); /* moves the key to the end; fails if it is new */
    int r = written ? json_object_set_new(journal->present, key, place_json(place))
                    : json_object_set(journal->present, key, line);
    if (r < 0)
        log_warning("record: out of memory for %s; the next part lacks it", key);
}

/* Writes a line that leaves no state, such as that of a key that is gone. */
static void write_end(Journal *journal, const Event *event, const char *key, json_t *line)
{
    Place ignored;
    (void)write_line(journal, event, line, &journal->head.lost_events,
                     &ignored);                   /* write_line() counts a lost line */
    (void)json_object_del(journal->present, key); /* fails if the key was never there */
}

/* A value with a zero byte, or with bytes that are not UTF-8, fits in no line of JSON, and is not a record either.
 * The text that is written in its place ends with a character that keeps it unreadable. */
static json_t *value_json(const char *value, size_t n_value)
{
    json_t *whole = memchr(value, 0, n_value) ? NULL : json_stringn(value, n_value);
    if (whole)
        return whole;
    static const char end[] = "\xef\xbf\xbd";
    const size_t n = strnlen(value, n_value);
    _cleanup_free_ char *text = memory_zeroed(n + sizeof(end), 1);
    memcpy(text, value, n);
    printable_repair(text);
    memcpy(text + strlen(text), end, sizeof(end));
    return json_string(text);
}

void journal_record_key(Journal *journal, const Event *event, const char *key, const char *value,
                        size_t n_value)
{
    if (!journal)
        return;
    make_ready(journal, event->now_usec);
    _cleanup_json_ json_t *line =
        value ? json_pack("{s:s, s:o, s:I}", "key", key, "value", value_json(value, n_value),
                          "revision", (json_int_t)event->revision)
              : json_pack("{s:s, s:I}", "key", key, "revision", (json_int_t)event->revision);
    /* The queue is ordered by the create revisions of the specs. */
    if (line && event->kind == EVENT_SPEC && event->created)
        json_object_set_new(line, "created", json_integer(event->created));
    /* The lease is that of the writer: the node, or another client. */
    if (line && event->lease && (event->kind == EVENT_NODE || event->kind == EVENT_RANKS))
        json_object_set_new(line, "lease", json_integer(event->lease));
    line = stamped(line, event);
    journal->seen_revision = MAX(journal->seen_revision, event->revision);
    if (value) {
        write_state(journal, event, key, line);
    } else {
        journal->vanished_usec = event->now_usec;
        write_end(journal, event, key, line);
    }
}

static json_t *event_json(const Event *event)
{
    static const char *const outcomes[] = {"done", "refused", "unknown"};
    switch (event->kind) {
    case EVENT_OUTCOME:
        return json_pack("{s:s, s:I, s:I}", "outcome", outcomes[event->outcome], "id",
                         (json_int_t)event->id, "revision", (json_int_t)event->revision);
    case EVENT_LEADING:
        return json_pack("{s:I}", "leading", (json_int_t)event->term);
    case EVENT_DEPOSED:
        return json_pack("{s:b}", "deposed", 1);
    default:
        return json_pack("{s:b}", "tick", 1);
    }
}

void journal_record_event(Journal *journal, const Event *event)
{
    if (!journal)
        return;
    make_ready(journal, event->now_usec);
    _cleanup_json_ json_t *line = stamped(event_json(event), event);
    if (event->kind == EVENT_OUTCOME) {
        journal->in_flight -= event->id > journal->forgotten_id && journal->in_flight > 0;
        journal->written_revision = MAX(journal->written_revision, event->revision);
    } else if (event->kind == EVENT_LEADING || event->kind == EVENT_DEPOSED) {
        /* The core forgets the decisions of an earlier term, too, whatever their outcome will be. */
        journal->in_flight = 0;
        journal->forgotten_id = journal->newest_id;
    }
    if (event->kind == EVENT_LEADING)
        write_state(journal, event, "", line);
    else
        write_end(journal, event, event->kind == EVENT_DEPOSED ? "" : "tick", line);
}

void journal_record_decision(Journal *journal, const Event *event, const Decision *decision)
{
    if (!journal)
        return;
    Place ignored;
    journal->in_flight++;
    journal->newest_id = decision->id;
    _cleanup_json_ json_t *line = json_pack("{s:I, s:s, s:o}", "decision", (json_int_t)decision->id,
                                            "job", decision->job, "does", journal_words(decision));
    line = stamped(line, event);
    /* The result is ignored: write_line() counts a lost line. */
    (void)write_line(journal, event, line, &journal->head.lost_decisions, &ignored);
}

void journal_record_config(Journal *journal, const Event *event, const ClusterConfig *config)
{
    if (!journal)
        return;
    Place ignored;
    journal->head.config = *config;
    _cleanup_json_ json_t *line = json_pack("{s:o}", "config", journal_config_json(config));
    line = stamped(line, event);
    /* The result is ignored: write_line() counts a lost line. */
    (void)write_line(journal, event, line, &journal->head.lost_events, &ignored);
}

/* ---- open ---- */

/* Ends a line that was cut when the last writer died, so that the head is on a line of its own. */
static int end_cut_line(Journal *journal)
{
    char last = '\n';
    int r = journal->n_bytes ? fd_read_all(journal->fd, &last, 1, journal->n_bytes - 1) : 0;
    if (r < 0 || last == '\n')
        return r;
    journal->n_bytes++;
    return fd_write_all(journal->fd, "\n", 1);
}

/* Opens the file and writes a head. A full disk does not prevent the controller's start; a wrong path does. */
static int open_part(Journal *journal)
{
    struct stat st;
    journal->fd = open(journal->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (journal->fd < 0 && is_full(-errno)) {
        give_up(journal, clock_boottime_usec(), -errno);
        return 0;
    }
    if (journal->fd < 0 || fstat(journal->fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    journal->n_bytes = (uint64_t)st.st_size;
    int r = 0;
    if (journal->n_bytes >= journal->soft_bytes) {
        r = begin_part(journal, true);
    } else {
        r = end_cut_line(journal);
        r = r < 0 ? r : write_head(journal, journal->fd, 0, true);
    }
    if (r < 0)
        give_up(journal, clock_boottime_usec(), r);
    return 0;
}

int journal_new(const char *path, uint64_t max_bytes, const JournalHead *head, Journal **ret,
                Error *err)
{
    _cleanup_(journal_freep) Journal *journal = memory_new(Journal);
    journal->present = json_object();
    journal->fd = -EBADF;
    journal->head = *head;
    journal->max_bytes = max_bytes;
    set_bounds(journal, 0);
    if (snprintf(journal->path, PATH_MAX, "%s", path) >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "record: %s is too long a path", path);
    (void)snprintf(journal->old_path, sizeof(journal->old_path), "%s.1", path);
    (void)snprintf(journal->new_path, sizeof(journal->new_path), "%s.new", path);
    int r = open_part(journal);
    if (r < 0)
        return error_errno(err, r, "record: cannot write %s", path);
    *ret = TAKE_PTR(journal);
    return 0;
}

Journal *journal_free(Journal *journal)
{
    if (!journal)
        return NULL;
    const int64_t events = journal->head.lost_events, decisions = journal->head.lost_decisions;
    if (events > 0 || decisions > 0)
        log_warning("record: %lld event%s and %lld decision%s are not in %s", (long long)events,
                    events == 1 ? "" : "s", (long long)decisions, decisions == 1 ? "" : "s",
                    journal->path);
    journal->fd = fd_close(journal->fd);
    json_decref(journal->present);
    free(journal);
    return NULL;
}
