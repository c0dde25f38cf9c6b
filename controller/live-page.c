/* SPDX-License-Identifier: Apache-2.0 */
/* live-page.c - see live-page.h. A Drawn is a page as it was last drawn; a Viewer follows one Drawn. */
#include "controller/live-page.h"

#include "base/clock.h"
#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

enum {
    DRAWN_MAX = HTTP_VIEWERS_MAX + 16,
    BEAT_MSEC = 1000,
    SLOW_SEC = 10,     /* time between two drawings of the curves */
    KEEP_SEC = 10,     /* a page without viewers is forgotten after this */
    DRAWINGS_MAX = 40, /* the largest number of drawings per second, of all pages together */
};

static const char policy[] =
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/* Bytes that several viewers share. */
typedef struct Bytes {
    int users;
    size_t n;
    char text[];
} Bytes;

typedef struct Drawn {
    bool used;
    char job[RECORD_JOB_MAX + 1]; /* empty: the cluster's page */
    Page page;
    uint64_t number; /* number of the drawing; grows when a part has changed */
    Bytes *change;   /* the changed parts, as an event; NULL in the first drawing */
    Bytes *whole;    /* all parts, as an event; NULL: not needed yet */
    uint64_t drawn_usec, slow_usec, asked_usec;
    int n_viewers;
    /* the page cannot be drawn any more: its viewers are notified, and their streams end */
    bool gone;
} Drawn;

typedef struct Viewer {
    LivePages *pages;
    Drawn *drawn;
    uint64_t number; /* number of the drawing that the viewer has; 0: none */
    Bytes *given;    /* the bytes that the server borrows */
    bool told_end;
} Viewer;

struct LivePages {
    sd_event_source *beat;
    HttpServer *server;
    LiveLook (*look)(void *userdata);
    void *userdata;
    /* start time of this process, sent with each drawing's number, because other processes use the same numbers */
    uint64_t epoch;
    uint64_t second_usec;
    int n_drawings; /* drawings since second_usec */
    Drawn drawn[DRAWN_MAX];
};

/* ---- bytes ---- */

static Bytes *bytes_drop(Bytes *b)
{
    if (b && --b->users == 0)
        free(b);
    return NULL;
}

static Bytes *bytes_share(Bytes *b)
{
    b->users++;
    return b;
}

static Bytes *event_new(const char *kind, uint64_t epoch, uint64_t number, const char *data)
{
    char head[120];
    const int n_head = snprintf(head, sizeof(head),
                                "%s%sid: %" PRIu64 "-%" PRIu64 "\ndata: ", *kind ? "event: " : "",
                                kind, epoch, number);
    const size_t n_data = strlen(data);
    Bytes *b = memory_zeroed(1, sizeof(*b) + (size_t)n_head + n_data + 3);
    b->users = 1;
    b->n = (size_t)snprintf(b->text, (size_t)n_head + n_data + 3, "%s%s\n\n", head, data);
    return b;
}

/* ---- drawing ---- */

static void drawn_clear(Drawn *d)
{
    page_clear(&d->page);
    d->change = bytes_drop(d->change);
    d->whole = bytes_drop(d->whole);
    *d = (Drawn){0};
}

/* Draws the page again. Returns false if the job is gone. */
static bool draw(LivePages *p, Drawn *d, const LiveLook *look, uint64_t now_usec)
{
    Page page;
    if (!d->job[0])
        page_model_cluster(&look->source, &page);
    else if (!page_model_job(&look->source, d->job, &page))
        return false;
    const bool slow = now_usec >= d->slow_usec + SLOW_SEC * USEC_PER_SEC ||
                      page_part_differs(&d->page, &page, "state");
    _cleanup_free_ char *changes = d->number > 0 ? page_changes(&d->page, &page, slow) : NULL;
    d->drawn_usec = now_usec;
    if (slow)
        d->slow_usec = now_usec;
    page_clear(&d->page);
    d->page = page;
    if (d->number > 0 && !changes)
        return true;
    d->number++;
    d->whole = bytes_drop(d->whole);
    d->change = bytes_drop(d->change);
    if (changes)
        d->change = event_new("", p->epoch, d->number, changes);
    return true;
}

/* Counts a drawing. Returns false once there have been DRAWINGS_MAX within a second, however many viewers there are. */
static bool may_draw(LivePages *p, uint64_t now_usec)
{
    if (now_usec >= p->second_usec + USEC_PER_SEC) {
        p->second_usec = now_usec;
        p->n_drawings = 0;
    }
    return p->n_drawings++ < DRAWINGS_MAX;
}

/* Finds the page's entry, or makes a new one in place of an entry without viewers. Returns NULL if there are too
 * many pages. */
static Drawn *find_drawn(LivePages *p, const char *job)
{
    Drawn *place = NULL;
    for (size_t i = 0; i < ELEMENTSOF(p->drawn); i++) {
        Drawn *d = &p->drawn[i];
        if (d->used && !d->gone && strcmp(d->job, job) == 0)
            return d;
        if (d->used && d->n_viewers > 0)
            continue;
        if (!place || !d->used || (place->used && d->asked_usec < place->asked_usec))
            place = d;
    }
    if (!place)
        return NULL;
    drawn_clear(place);
    place->used = true;
    (void)snprintf(place->job, sizeof(place->job), "%s", job);
    return place;
}

/* ---- streams ---- */

static const Bytes *next_bytes(Viewer *v)
{
    Drawn *d = v->drawn;
    if (!d->gone && v->number == d->number)
        return NULL;
    v->given = bytes_drop(v->given);
    if (d->gone) {
        v->told_end = true;
        v->given = event_new("gone\n", v->pages->epoch, 0,
                             "\"not live: the job is gone, or this controller leads no more\"");
    } else if (v->number > 0 && v->number + 1 == d->number && d->change) {
        v->given = bytes_share(d->change);
    } else {
        if (!d->whole) {
            _cleanup_free_ char *all = page_changes(NULL, &d->page, true);
            d->whole = event_new("", v->pages->epoch, d->number, all ? all : "{}");
        }
        v->given = bytes_share(d->whole);
    }
    v->number = d->number;
    return v->given;
}

static ssize_t give_next(void *userdata, const char **ret)
{
    Viewer *v = userdata;
    if (v->told_end)
        return -EPIPE;
    const Bytes *b = next_bytes(v);
    *ret = b ? b->text : "";
    return b ? (ssize_t)b->n : 0;
}

static void leave(void *userdata)
{
    Viewer *v = userdata;
    v->given = bytes_drop(v->given);
    v->drawn->n_viewers--;
    free(v);
}

/* ---- answers ---- */

static void write_message(HttpAnswer *ret, int status, const char *title, const char *words,
                          const char *link)
{
    Page page;
    report_words(title, words, link, &page);
    ret->status = status;
    ret->type = "text/html; charset=utf-8";
    ret->policy = policy;
    ret->text = TAKE_PTR(page.text);
    ret->n_text = page.n_bytes;
    page_clear(&page);
}

static void write_leader(HttpAnswer *ret, const LiveLook *look)
{
    char words[400], link[200] = "";
    if (look->leading[0])
        (void)
            snprintf(words, sizeof(words),
                     "This controller follows. %s leads, and has the page if metrics are on there.",
                     look->leading);
    else
        (void)snprintf(words, sizeof(words),
                       "This controller does not lead, and does not know who does. sdctl cluster "
                       "status asks etcd.");
    if (look->leading[0] && look->leading_page[0])
        (void)snprintf(link, sizeof(link), "http://%s/", look->leading_page);
    write_message(ret, 503, "Not the leader", words, link);
}

/* Returns the drawing of the requested page; NULL: *ret explains why there is none. */
static Drawn *answer_with(LivePages *p, const char *job, HttpAnswer *ret)
{
    const uint64_t now_usec = clock_boottime_usec();
    const LiveLook look = p->look(p->userdata);
    if (!look.leads) {
        write_leader(ret, &look);
        return NULL;
    }
    if (*job && !page_model_has_job(look.source.cluster, job)) {
        write_message(ret, 404, "No such job",
                      "There is no job of that name: it was deleted, or never started.", "/");
        return NULL;
    }
    Drawn *d = find_drawn(p, job);
    const bool old = d && now_usec >= d->drawn_usec + USEC_PER_SEC;
    if (d && old && may_draw(p, now_usec))
        (void)draw(p, d, &look, now_usec); /* cannot fail: the job exists */
    if (!d || d->number == 0) {
        write_message(ret, 503, "Too many pages",
                      "More pages are looked at than this controller draws. Try again in a minute.",
                      "");
        return NULL;
    }
    d->asked_usec = now_usec;
    return d;
}

static int make_page(const char *job, HttpAnswer *ret, LivePages *p)
{
    const Drawn *d = answer_with(p, job, ret);
    if (!d)
        return 0;
    ret->type = "text/html; charset=utf-8";
    ret->policy = policy;
    ret->text = memory_bytes(d->page.text, d->page.n_bytes);
    ret->n_text = d->page.n_bytes;
    return 0;
}

static int make_cluster(_unused_ const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    return make_page("", ret, userdata);
}

static int make_job(const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    if (*request->rest)
        return make_page(request->rest, ret, userdata);
    write_message(ret, 404, "No job is named",
                  "The address of a job's page is /jobs/ and its name.", "/");
    return 0;
}

static int make_stream(const char *job, const HttpRequest *request, HttpAnswer *ret, LivePages *p)
{
    if (request->n_viewers >= HTTP_VIEWERS_MAX) {
        char words[120];
        (void)snprintf(words, sizeof(words),
                       "%d viewers look already, and more are not served. Try again later.",
                       request->n_viewers);
        write_message(ret, 503, "Too many viewers", words, "");
        return 0;
    }
    Drawn *d = answer_with(p, job, ret);
    if (!d)
        return 0;
    Viewer *v = memory_new(Viewer);
    *v = (Viewer){.pages = p, .drawn = d};
    uint64_t epoch = 0, number = 0;
    if (request->last_id &&
        sscanf(request->last_id, "%20" SCNu64 "-%20" SCNu64, &epoch, &number) == 2 &&
        epoch == p->epoch && number <= d->number)
        v->number = number;
    d->n_viewers++;
    *ret = (HttpAnswer){.status = 200,
                        .type = "text/event-stream; charset=utf-8",
                        .policy = policy,
                        .next = give_next,
                        .leave = leave,
                        .viewer = v};
    return 0;
}

static int make_cluster_stream(const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    return make_stream("", request, ret, userdata);
}

static int make_job_stream(const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    return make_stream(*request->rest ? request->rest : "-", request, ret, userdata);
}

static int make_style(_unused_ const HttpRequest *request, HttpAnswer *ret, _unused_ void *userdata)
{
    *ret = (HttpAnswer){.status = 200,
                        .type = "text/css; charset=utf-8",
                        .text = report_page_css,
                        .n_text = strlen(report_page_css),
                        .keep = true};
    return 0;
}

static int make_script(_unused_ const HttpRequest *request, HttpAnswer *ret,
                       _unused_ void *userdata)
{
    *ret = (HttpAnswer){.status = 200,
                        .type = "text/javascript; charset=utf-8",
                        .text = report_page_js,
                        .n_text = strlen(report_page_js),
                        .keep = true};
    return 0;
}

void live_pages_paths(LivePages *p, HttpPage ret[LIVE_PATHS])
{
    const HttpPage all[LIVE_PATHS] = {
        {.path = "/", .make = make_cluster, .userdata = p},
        {.path = "/jobs/", .make = make_job, .userdata = p},
        {.path = "/events", .make = make_cluster_stream, .userdata = p},
        {.path = "/events/jobs/", .make = make_job_stream, .userdata = p},
        {.path = "/page.css", .make = make_style, .userdata = p},
        {.path = "/page.js", .make = make_script, .userdata = p}};
    memcpy(ret, all, sizeof(all));
}

void live_pages_serve(LivePages *p, HttpServer *server) { p->server = server; }

/* ---- the beat ---- */

static void forget_old(LivePages *p, uint64_t now_usec)
{
    for (size_t i = 0; i < ELEMENTSOF(p->drawn); i++) {
        Drawn *d = &p->drawn[i];
        if (d->used && d->n_viewers == 0 && now_usec > d->asked_usec + KEEP_SEC * USEC_PER_SEC)
            drawn_clear(d);
    }
}

/* Draws the pages that have viewers. Returns true if there are viewers. */
static bool draw_looked_at(LivePages *p, uint64_t now_usec)
{
    bool news = false;
    const LiveLook look = p->look(p->userdata);
    for (size_t i = 0; i < ELEMENTSOF(p->drawn); i++) {
        Drawn *d = &p->drawn[i];
        if (!d->used || d->n_viewers == 0)
            continue;
        news = true;
        if (d->gone || now_usec < d->drawn_usec + BEAT_MSEC * USEC_PER_MSEC / 2)
            continue; /* the page was drawn just now for a new viewer */
        if (!look.leads || (may_draw(p, now_usec) && !draw(p, d, &look, now_usec)))
            d->gone = true;
    }
    return news;
}

static int on_beat(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    LivePages *p = userdata;
    const uint64_t now_usec = clock_boottime_usec();
    if (p->server && draw_looked_at(p, now_usec))
        http_server_wake(p->server);
    forget_old(p, now_usec);
    int r = sd_event_source_set_time(source, now_usec + BEAT_MSEC * USEC_PER_MSEC);
    return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* ---- made and ended ---- */

int live_pages_new(sd_event *event, LiveLook (*look)(void *userdata), void *userdata,
                   LivePages **ret, Error *err)
{
    _cleanup_(live_pages_freep) LivePages *p = memory_new(LivePages);
    p->look = look;
    p->userdata = userdata;
    p->epoch = clock_realtime_usec();
    int r = sd_event_add_time_relative(event, &p->beat, CLOCK_BOOTTIME, BEAT_MSEC * USEC_PER_MSEC,
                                       1000, on_beat, p);
    if (r >= 0) /* viewers may wait: decisions come first */
        r = sd_event_source_set_priority(p->beat, SD_EVENT_PRIORITY_NORMAL + 20);
    if (r < 0)
        return error_errno(err, r, "cannot set a timer");
    *ret = TAKE_PTR(p);
    return 0;
}

LivePages *live_pages_free(LivePages *p)
{
    if (!p)
        return NULL;
    p->beat = sd_event_source_disable_unref(p->beat);
    for (size_t i = 0; i < ELEMENTSOF(p->drawn); i++) {
        assert(p->drawn[i].n_viewers == 0);
        drawn_clear(&p->drawn[i]);
    }
    free(p);
    return NULL;
}
