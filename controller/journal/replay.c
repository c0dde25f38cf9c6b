/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - see replay.h.
 *
 * Each event line is fed to the core. The next line, if it is a decision, is the answer of the recorded core. Ids of
 * decisions are translated: a recorded outcome is fed for the decision that the present core made in place of the
 * recorded one. */
#include "controller/journal/replay.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "cluster/keys.h"
#include "controller/feed/feed.h"

#include <string.h>

enum { LINE_BYTES_MAX = 16 << 20 };

typedef struct Pair {
    /* The ids of the recorded and of the present decision. If `then` is 0, the pair is free. */
    int64_t then, now;
} Pair;

typedef struct Replay {
    const char *path;
    size_t line;
    ReplayHandler handler;
    void *userdata;
    /* The present core with its input: the replay makes all of this anew at each head. */
    JournalHead head;
    Feed *feed;
    void *memory;
    Cluster *cluster;
    Pair *pairs;
    size_t n_pairs;
    int64_t n_snapshot; /* lines of the snapshot that are still to come */
    Actions actions;
    /* The present core's answer to the last event, until the next line shows the recorded answer. */
    int64_t now_id;
    json_t *now;
    char now_job[RECORD_JOB_MAX + 1];
    json_t *last_extra; /* the last decision that only the present core made: it is reported once */
    uint64_t now_usec, real_usec;
    size_t cut_line; /* number of a line that cannot be read; 0: none */
    Error cut_error;
} Replay;

static Replay *replay_free(Replay *x)
{
    if (!x)
        return NULL;
    x->feed = feed_free(x->feed);
    free(x->memory);
    free(x->pairs);
    json_decref(x->now);
    json_decref(x->last_extra);
    free(x);
    return NULL;
}
DEFINE_CLEANUP(Replay, replay_free)

static int bad_line(const Replay *x, Error *err, const char *what)
{
    return error_set(err, -EINVAL, "%s:%zu: %s", x->path, x->line, what);
}

static int report(const Replay *x, ReplayReport r)
{
    r.line = r.line ? r.line : x->line;
    r.real_usec = x->real_usec;
    return x->handler(&r, x->userdata);
}

/* Reports the line that could not be read, if there is one, as cut: its writer may have died there. */
static int report_cut(Replay *x)
{
    if (!x->cut_line)
        return 0;
    const size_t line = x->cut_line;
    x->cut_line = 0;
    return report(x, (ReplayReport){.kind = REPLAY_CUT, .line = line, .text = x->cut_error.text});
}

/* ---- decisions ---- */

static Pair *find_pair(const Replay *x, int64_t then)
{
    for (size_t i = 0; i < x->n_pairs; i++)
        if (x->pairs[i].then == then)
            return &x->pairs[i];
    return NULL;
}

static void step(Replay *x, Event *event)
{
    event->now_usec = x->now_usec;
    event->real_usec = x->real_usec;
    cluster_step(x->cluster, event, &x->actions);
    const Decision *d = &x->actions.decision;
    if (event->more || d->id == 0)
        return;
    x->now_id = d->id;
    x->now = journal_words(d);
    (void)snprintf(x->now_job, sizeof(x->now_job), "%s", d->job);
}

static void forget_now(Replay *x)
{
    json_decref(x->now);
    x->now = NULL;
    x->now_id = 0;
}

/* Drops the present core's decision, which the recorded core did not make: the core may decide again later. */
static void release_now(Replay *x)
{
    Event refused = {.kind = EVENT_OUTCOME,
                     .id = x->now_id,
                     .outcome = OUTCOME_REFUSED,
                     .more = true};
    forget_now(x);
    step(x, &refused);
}

/* Handles a decision of the present core when the line after the event is not a decision, or the journal ends. */
static int settle_extra(Replay *x, bool at_end)
{
    if (!x->now_id)
        return 0;
    int r = 0;
    if (!x->last_extra || !json_equal(x->last_extra, x->now)) {
        json_decref(x->last_extra);
        x->last_extra = json_incref(x->now);
        /* At the journal's end there is no difference: the writer may have died before it recorded its decision. */
        r = report(x, (ReplayReport){.kind = REPLAY_DECISION,
                                     .job = x->now_job,
                                     .now = x->now,
                                     .differs = !at_end});
    }
    release_now(x);
    return r;
}

static int take_decision(Replay *x, int64_t id, const char *job, json_t *then)
{
    bool same_job = x->now_id && strcmp(job, x->now_job) == 0;
    ReplayReport r = {.kind = REPLAY_DECISION,
                      .job = job,
                      .then = then,
                      .now = x->now,
                      .differs = !same_job || !json_equal(then, x->now)};
    int result = report(x, r);
    Pair *pair = find_pair(x, 0);
    if (same_job && pair) {
        *pair = (Pair){.then = id, .now = x->now_id};
        forget_now(x);
    } else if (x->now_id) {
        release_now(x);
    }
    return result;
}

/* ---- lines ---- */

static int take_head(Replay *x, json_t *line, const char *source, Error *err)
{
    int r = journal_head_read(source, line, &x->head, err);
    if (r < 0)
        return r;
    x->feed = feed_free(x->feed);
    free(x->memory);
    free(x->pairs);
    json_decref(x->last_extra);
    x->last_extra = NULL;
    /* There is one pair per job, and there may be pairs of earlier terms. The head's limits bound the memory. */
    x->n_pairs = 4 * ((size_t)x->head.limits.jobs + 1);
    x->pairs = memory_zeroed(x->n_pairs, sizeof(*x->pairs));
    x->memory = memory_zeroed(1, cluster_bytes(&x->head.limits));
    x->feed = feed_new(x->head.cluster);
    x->cluster = cluster_init(x->memory, &x->head.limits, &x->head.config);
    x->n_snapshot = x->head.n_snapshot;
    return report(x, (ReplayReport){.kind = REPLAY_HEAD, .head = &x->head});
}

static int take_key(Replay *x, JsonReader *r, Event *event, char *ret_name, size_t size, Error *err)
{
    const char *key = "", *value = NULL;
    int64_t revision = 0, created = 0, lease = 0;
    json_get_int(r, "lease", JSON_OPTIONAL, 0, INT64_MAX, &lease);
    json_get_int(r, "created", JSON_OPTIONAL, 0, INT64_MAX, &created);
    json_get_string(r, "key", JSON_REQUIRED, &key);
    json_get_string(r, "value", JSON_OPTIONAL, &value);
    json_get_int(r, "revision", JSON_REQUIRED, 0, INT64_MAX, &revision);
    if (r->r < 0)
        return r->r;
    char prefix[KEY_MAX];
    size_t n = strlen(key_prefix(x->head.cluster, -1, prefix));
    (void)snprintf(ret_name, size, "%s%s", strncmp(key, prefix, n) == 0 ? key + n : key,
                   value ? "" : " gone");
    int is_event =
        feed_event(x->feed, key, value, value ? strlen(value) : 0, created, revision, event, err);
    if (is_event > 0)
        event->lease = lease;
    return is_event;
}

static void take_outcome(Replay *x, JsonReader *r, const char *outcome, Event *event,
                         char *ret_name, size_t size)
{
    static const char *const outcomes[] = {"done", "refused", "unknown"};
    int64_t id = 0;
    int which = OUTCOME_REFUSED;
    json_get_choice(r, "outcome", JSON_REQUIRED, outcomes, ELEMENTSOF(outcomes), &which);
    json_get_int(r, "id", JSON_REQUIRED, 1, INT64_MAX, &id);
    json_get_int(r, "revision", JSON_REQUIRED, 0, INT64_MAX, &event->revision);
    (void)snprintf(ret_name, size, "decision %lld %s", (long long)id, outcome);
    Pair *pair = find_pair(x, id);
    if (r->r < 0 || !pair)
        return; /* the present core did not make that decision: only time passes */
    event->kind = EVENT_OUTCOME;
    event->outcome = (Outcome)which;
    event->id = pair->now;
    *pair = (Pair){0};
}

/* Returns 1 for an event, 0 for an event that this version does not understand (err says why), or -errno. */
static int read_event(Replay *x, json_t *line, const char *source, Event *event, char *ret_name,
                      size_t size, Error *err)
{
    JsonReader r = json_open(source, line, JSON_ANY_KEYS, err);
    json_get_bool(&r, "stalled", JSON_OPTIONAL, &event->stalled);
    const bool stalled = event->stalled;
    const char *outcome = json_string_value(json_object_get(line, "outcome"));
    int taken = 1;
    if (json_object_get(line, "key")) {
        taken = take_key(x, &r, event, ret_name, size, err);
        event->more = true;
        event->stalled = stalled;
    } else if (outcome) {
        take_outcome(x, &r, outcome, event, ret_name, size);
    } else if (json_object_get(line, "leading")) {
        event->kind = EVENT_LEADING;
        json_get_int(&r, "leading", JSON_REQUIRED, 1, INT64_MAX, &event->term);
        (void)snprintf(ret_name, size, "leading, term %lld", (long long)event->term);
    } else if (json_object_get(line, "deposed")) {
        event->kind = EVENT_DEPOSED;
        (void)snprintf(ret_name, size, "deposed");
    } else if (json_object_get(line, "tick")) {
        (void)snprintf(ret_name, size, "tick");
    } else {
        json_refuse(&r, "line", "neither event nor decision");
    }
    int closed = json_close(&r);
    return closed < 0 ? closed : taken < 0 ? 0 : 1;
}

static int take_event(Replay *x, json_t *line, const char *source, Error *err)
{
    Event event = {.kind = EVENT_TICK};
    char name[KEY_MAX + 32] = "";
    Error why = ERROR_INIT;
    int r = read_event(x, line, source, &event, name, sizeof(name), &why);
    if (r < 0) {
        *err = why;
        return r;
    }
    if (x->n_snapshot > 0) {
        event.more = true;
        x->n_snapshot--;
    }
    if (event.kind == EVENT_LEADING || event.kind == EVENT_DEPOSED)
        memset(x->pairs, 0,
               x->n_pairs * sizeof(*x->pairs)); /* the core forgets its decisions, too */
    int said = report(x, (ReplayReport){.kind = REPLAY_EVENT,
                                        .event = name,
                                        .ignored = r == 0,
                                        .text = why.text});
    if (said != 0)
        return said;
    if (r > 0)
        step(x, &event);
    return 0;
}

static int take_config(Replay *x, json_t *object, const char *source, Error *err)
{
    ClusterConfig config;
    int r = journal_config_read(source, object, &config, err);
    if (r == 0)
        cluster_configure(x->cluster, &config);
    return r;
}

static int take_line(Replay *x, json_t *line, Error *err)
{
    char source[512];
    (void)snprintf(source, sizeof(source), "%s:%zu", x->path, x->line);
    if (json_object_get(line, "journal")) {
        int r = x->feed ? settle_extra(x, true) : 0;
        r = r != 0 ? r : report_cut(x);
        return r != 0 ? r : take_head(x, line, source, err);
    }
    if (!x->feed)
        return bad_line(x, err, "not the journal of a controller: it does not begin with a head");

    int64_t now = 0, real = 0, id = 0;
    const char *job = "";
    json_t *does = NULL;
    bool decides = json_object_get(line, "decision") != NULL;
    JsonReader r = json_open(source, line, JSON_ANY_KEYS, err);
    json_get_int(&r, "now", JSON_REQUIRED, 0, INT64_MAX, &now);
    json_get_int(&r, "real", JSON_REQUIRED, 0, INT64_MAX, &real);
    if (decides) {
        json_get_int(&r, "decision", JSON_REQUIRED, 1, INT64_MAX, &id);
        json_get_string(&r, "job", JSON_REQUIRED, &job);
        json_get_array(&r, "does", JSON_REQUIRED, 256, &does);
    }
    int closed = json_close(&r);
    if (closed < 0)
        return closed;
    if (decides)
        return take_decision(x, id, job, does);
    int settled = settle_extra(x, false);
    if (settled != 0)
        return settled;
    x->real_usec = (uint64_t)real;
    x->now_usec = (uint64_t)now;
    json_t *config = json_object_get(line, "config");
    return config ? take_config(x, config, source, err) : take_event(x, line, source, err);
}

/* Processes a line of the journal. After an unreadable line, the next line shows whether the unreadable line was cut
 * when its writer died. */
static int take_text(Replay *x, const char *text, size_t n, Error *err)
{
    char source[512];
    _cleanup_json_ json_t *line = NULL;
    (void)snprintf(source, sizeof(source), "%s:%zu", x->path, x->line);
    Error why = ERROR_INIT;
    int r = json_parse(source, text, n, &line, &why);
    if (x->cut_line && (r < 0 || !json_object_get(line, "journal"))) {
        *err = x->cut_error;
        return -EINVAL;
    }
    if (r == 0)
        return take_line(x, line, err);
    x->cut_line = x->line;
    x->cut_error = why;
    return 0;
}

int journal_replay(const char *path, ReplayHandler handler, void *userdata, Error *err)
{
    _cleanup_(replay_freep) Replay *x = memory_new(Replay);
    _cleanup_file_ FILE *file = fopen(path, "re");
    _cleanup_free_ char *text = memory_zeroed(LINE_BYTES_MAX, 1);
    if (!file)
        return error_errno(err, -errno, "cannot read %s", path);
    x->path = path;
    x->handler = handler;
    x->userdata = userdata;
    int r = 0;
    while (r == 0 && fgets(text, LINE_BYTES_MAX, file)) {
        size_t n = strlen(text);
        x->line++;
        if (n == LINE_BYTES_MAX - 1 && text[n - 1] != '\n')
            return bad_line(x, err, "the line is longer than 16 MiB");
        r = take_text(x, text, n, err);
    }
    if (r != 0)
        return r;
    if (ferror(file))
        return error_errno(err, -EIO, "cannot read %s", path);
    if (!x->feed)
        return x->cut_line ? error_set(err, -EINVAL, "%s", x->cut_error.text)
                           : error_set(err, -EINVAL, "%s: empty", path);
    r = report_cut(x);
    return r != 0 ? r : settle_extra(x, true);
}
