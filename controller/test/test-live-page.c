/* SPDX-License-Identifier: Apache-2.0 */
/* test-live-page.c - the leader's pages over a core that the test feeds: what a viewer receives, also after it
 * reconnects, what viewers receive when a job or the leadership ends, and the steps that a controller has seen.
 *
 *     test-live-page SECONDS     CPU time and bytes per viewer of 1,000 nodes, 20 jobs and 5 viewers */
#include "base/clock.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "controller/live-page.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum {
    PATIENCE_SEC = 60,
    ANSWER_BYTES = 1 << 20,
    NODES_MAX = 1000,
    JOBS_MAX = 70,
    JOBS_MEASURED = 20
};

typedef struct Lab {
    sd_event *event;
    void *memory;
    Cluster *cluster;
    Seen *seen;
    LivePages *pages;
    HttpServer *server;
    int64_t revision;
    bool leads;
    char answer[ANSWER_BYTES];
} Lab;

static LiveLook look(void *userdata)
{
    Lab *lab = userdata;
    return (LiveLook){.leads = lab->leads,
                      .source = {.cluster_name = "prod",
                                 .leader = "ctl1",
                                 .cluster = lab->cluster,
                                 .term = 7,
                                 .seen = lab->seen,
                                 .now_usec = clock_realtime_usec()},
                      .leading = lab->leads ? "ctl1" : "ctl2",
                      .leading_page = "10.0.0.2:9464"};
}

/* ---- events for the core ---- */

static void feed(Lab *lab, EventKind kind, const char *name, const void *record)
{
    static Actions actions;
    Event event = {.kind = kind,
                   .created = 1,
                   .revision = ++lab->revision,
                   .record = record,
                   .now_usec = clock_boottime_usec(),
                   .real_usec = clock_realtime_usec(),
                   .more = true};
    (void)snprintf(event.name, sizeof(event.name), "%s", name);
    curves_note(lab->seen, &event);
    cluster_step(lab->cluster, &event, &actions);
}

static void feed_node(Lab *lab, const char *name)
{
    NodeRecord node = {.n_slots = 8, .incarnation = 1, .state = NODE_UP};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    feed(lab, EVENT_NODE, name, &node);
}

static void feed_job(Lab *lab, const char *name)
{
    JobFacts facts = {
        .n_grains = 4, .steps = 1000, .max_failures = 3, .min = 1, .max = 1, .arrival = 1};
    DesiredRecord desired = {.min = 1, .max = 1};
    WorldRun run = {.node = "n0", .incarnation = 1, .slots = 1};
    WorldRecord world = {.generation = 1, .size = 1, .runs = &run, .n_runs = 1};
    PhaseRecord phase = {.phase = PHASE_RUNNING,
                         .generation = 1,
                         .reason = "runs <well>",
                         .go = true,
                         .since_usec = clock_realtime_usec(),
                         .started_usec = clock_realtime_usec() - 60 * USEC_PER_SEC,
                         .n_worlds = 1,
                         .worlds = {{.generation = 1, .size = 1, .reason = "starts"}}};
    (void)snprintf(facts.submission, sizeof(facts.submission), "s");
    (void)snprintf(phase.submission, sizeof(phase.submission), "s");
    (void)snprintf(world.submission, sizeof(world.submission), "s");
    phase.worlds[0].decided_usec = phase.started_usec;
    feed(lab, EVENT_SPEC, name, &facts);
    feed(lab, EVENT_DESIRED, name, &desired);
    feed(lab, EVENT_WORLD, name, &world);
    feed(lab, EVENT_PHASE, name, &phase);
}

static void feed_step(Lab *lab, const char *name, int64_t step, double loss)
{
    ProgressRecord progress = {.generation = 1,
                               .step = step,
                               .steps = 1000,
                               .loss = loss,
                               .grad_norm = 1.25,
                               .lr = 0.001,
                               .samples_per_sec = 16 + (double)(step % 7),
                               .step_sec = 0.25,
                               .samples_seen = 4 * step,
                               .at_usec = clock_realtime_usec()};
    feed(lab, EVENT_PROGRESS, name, &progress);
}

static int lab_begin(void **state)
{
    const ClusterLimits limits = {
        .nodes = NODES_MAX, .jobs = JOBS_MAX + 1, .reports = 64, .incidents = 200, .requests = 4};
    static HttpPage paths[LIVE_PATHS];
    Error err = ERROR_INIT;
    Lab *lab = memory_new(Lab);
    assert_true(sd_event_new(&lab->event) >= 0);
    lab->memory = memory_zeroed(1, cluster_bytes(&limits));
    lab->cluster = cluster_init(lab->memory, &limits, &cluster_config_default);
    lab->seen = curves_new(limits.jobs);
    lab->leads = true;
    assert_int_equal(live_pages_new(lab->event, look, lab, &lab->pages, &err), 0);
    live_pages_paths(lab->pages, paths);
    assert_int_equal(http_server_new(lab->event, "127.0.0.1:0", paths, LIVE_PATHS, lab,
                                     &lab->server, &err),
                     0);
    live_pages_serve(lab->pages, lab->server);
    feed_node(lab, "n0");
    feed_job(lab, "first");
    feed_step(lab, "first", 3, 0.5);
    *state = lab;
    return 0;
}

static int lab_end(void **state)
{
    Lab *lab = *state;
    lab->server = http_server_free(lab->server);
    lab->pages = live_pages_free(lab->pages);
    lab->seen = curves_free(lab->seen);
    lab->event = sd_event_unref(lab->event);
    free(lab->memory);
    free(lab);
    return 0;
}

/* ---- a viewer ---- */

static int ask(Lab *lab, const char *path, const char *header)
{
    char request[300];
    const int port = atoi(strchr(http_server_address(lab->server), ':') + 1);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    const int n =
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, header);
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

/* Returns all bytes received so far, once they contain this text, or (NULL) once the stream has ended. */
static const char *read_until(Lab *lab, int fd, const char *wanted)
{
    const uint64_t end_usec = clock_boottime_usec() + PATIENCE_SEC * USEC_PER_SEC;
    size_t n = 0;
    for (;;) {
        assert_true(clock_boottime_usec() < end_usec);
        assert_true(sd_event_run(lab->event, 10000) >= 0);
        ssize_t got = recv(fd, lab->answer + n, sizeof(lab->answer) - 1 - n, MSG_DONTWAIT);
        n += got > 0 ? (size_t)got : 0;
        lab->answer[n] = '\0';
        if (wanted ? strstr(lab->answer, wanted) != NULL : got == 0)
            return lab->answer;
    }
}

static const char *get(Lab *lab, const char *path)
{
    _cleanup_fd_ int fd = ask(lab, path, "");
    return read_until(lab, fd, NULL);
}

static void pages_are_served(void **state)
{
    Lab *lab = *state;
    assert_non_null(strstr(get(lab, "/"), " 200 "));
    assert_non_null(strstr(lab->answer, "href=\"/jobs/first\""));
    assert_non_null(strstr(lab->answer, "runs &lt;well&gt;"));
    assert_non_null(
        strstr(lab->answer, "Content-Security-Policy: default-src 'none'; style-src 'self';"));
    assert_non_null(strstr(get(lab, "/jobs/first"), " 200 "));
    assert_non_null(strstr(lab->answer, "0.5000"));
    assert_non_null(strstr(get(lab, "/page.css"), "prefers-color-scheme"));
    assert_non_null(strstr(get(lab, "/page.js"), "EventSource"));
    assert_non_null(strstr(get(lab, "/jobs/no<b>"), " 404 "));
    assert_non_null(strstr(lab->answer, "There is no job of that name"));
    assert_non_null(strstr(get(lab, "/jobs/"), " 404 "));
    assert_non_null(strstr(get(lab, "/events/jobs/"), " 404 "));
}

/* Each request would show another loss if each of them drew the page. */
static void a_page_is_drawn_once_a_second(void **state)
{
    Lab *lab = *state;
    const uint64_t begun_usec = clock_boottime_usec();
    int n_other = 0;
    size_t n_before = 0;
    _cleanup_free_ char *before = memory_text("");
    for (int i = 0; i < 60; i++) {
        feed_step(lab, "first", 10 + i, 1.0 / (i + 2));
        const char *now = strstr(get(lab, "/jobs/first"), "id=\"loss\"");
        assert_non_null(now);
        n_other += strncmp(now, before, MIN(n_before, (size_t)24)) != 0 || n_before == 0;
        free(before);
        before = memory_text(now);
        n_before = strlen(before);
    }
    assert_true(n_other <= 2 + (int)((clock_boottime_usec() - begun_usec) / USEC_PER_SEC));
}

static void a_viewer_gets_what_is_new(void **state)
{
    Lab *lab = *state;
    _cleanup_fd_ int fd = ask(lab, "/events/jobs/first", "");
    assert_non_null(strstr(read_until(lab, fd, "\n\n"), "\"page\":")); /* the whole page first */
    feed_step(lab, "first", 4, 0.25);
    const char *answer = read_until(lab, fd, "\"loss\":\"0.2500\"");
    assert_non_null(strstr(answer, "\"step\":\"4\""));
    assert_null(strstr(answer, "\"page\":"));
    assert_null(strstr(answer, "\"curves\":")); /* curves are not sent each second */

    /* A client that reconnects with the newest drawing gets the changes; one with an older drawing, or with a
     * drawing of another process, gets the whole page. */
    uint64_t epoch, number;
    char header[120];
    assert_int_equal(sscanf(strstr(answer, "id: "), "id: %" SCNu64 "-%" SCNu64, &epoch, &number),
                     2);
    (void)snprintf(header, sizeof(header), "Last-Event-ID: %" PRIu64 "-%" PRIu64 "\r\n", epoch,
                   number);
    _cleanup_fd_ int again = ask(lab, "/events/jobs/first", header);
    assert_null(strstr(read_until(lab, again, "\"stamp\":"), "\"page\":"));
    (void)snprintf(header, sizeof(header), "Last-Event-ID: %" PRIu64 "-%" PRIu64 "\r\n", epoch + 1,
                   number);
    _cleanup_fd_ int other = ask(lab, "/events/jobs/first", header);
    assert_non_null(strstr(read_until(lab, other, "\"stamp\":"), "\"page\":"));
    (void)snprintf(header, sizeof(header), "\nid: %" PRIu64 "-%" PRIu64 "\n", epoch, number + 2);
    (void)read_until(lab, fd, header);
    (void)snprintf(header, sizeof(header), "Last-Event-ID: %" PRIu64 "-%" PRIu64 "\r\n", epoch,
                   number);
    _cleanup_fd_ int late = ask(lab, "/events/jobs/first", header);
    assert_non_null(strstr(read_until(lab, late, "\"stamp\":"), "\"page\":"));
}

/* A page with a viewer stays, however many other pages are requested. */
static void a_page_that_is_looked_at_stays(void **state)
{
    Lab *lab = *state;
    char path[40];
    _cleanup_fd_ int fd = ask(lab, "/events/jobs/first", "");
    (void)read_until(lab, fd, "\"page\":");
    const uint64_t end_usec = clock_boottime_usec() + PATIENCE_SEC * USEC_PER_SEC;
    for (int i = 0; i < JOBS_MAX;) {
        assert_true(clock_boottime_usec() < end_usec);
        (void)snprintf(path, sizeof(path), "job%d", i);
        feed_job(lab, path);
        (void)snprintf(path, sizeof(path), "/jobs/job%d", i);
        const bool is_refused = strstr(get(lab, path), "More pages are looked at") != NULL;
        i += !is_refused; /* only a bounded number of pages is drawn per second */
    }
    feed_step(lab, "first", 9, 0.125);
    (void)read_until(lab, fd, "\"loss\":\"0.1250\"");
}

static void a_job_that_goes(void **state)
{
    Lab *lab = *state;
    _cleanup_fd_ int fd = ask(lab, "/events/jobs/first", "");
    (void)read_until(lab, fd, "\"page\":");
    feed(lab, EVENT_PHASE, "first", NULL);
    feed(lab, EVENT_WORLD, "first", NULL);
    feed(lab, EVENT_DESIRED, "first", NULL);
    feed(lab, EVENT_PROGRESS, "first", NULL);
    feed(lab, EVENT_SPEC, "first", NULL);
    assert_non_null(strstr(read_until(lab, fd, NULL), "event: gone\n"));
    assert_non_null(strstr(get(lab, "/jobs/first"), " 404 "));
    size_t n;
    assert_null(curves_points(lab->seen, "first", &n));
}

static void a_leadership_that_goes(void **state)
{
    Lab *lab = *state;
    _cleanup_fd_ int fd = ask(lab, "/events", "");
    (void)read_until(lab, fd, "\"page\":");
    lab->leads = false;
    assert_non_null(strstr(read_until(lab, fd, NULL), "event: gone\n"));
    assert_non_null(strstr(get(lab, "/"), " 503 "));
    assert_non_null(strstr(lab->answer, "ctl2 leads"));
    assert_non_null(strstr(lab->answer, "href=\"http://10.0.0.2:9464/\""));
    assert_non_null(strstr(get(lab, "/events"), " 503 "));
}

static void more_viewers_than_there_may_be(void **state)
{
    Lab *lab = *state;
    int viewers[HTTP_VIEWERS_MAX];
    for (size_t i = 0; i < ELEMENTSOF(viewers); i++) {
        viewers[i] = ask(lab, "/events", "");
        (void)read_until(lab, viewers[i], "\"page\":");
    }
    for (int i = 0; i < 3; i++) {
        assert_non_null(strstr(get(lab, "/events"), " 503 "));
        assert_non_null(strstr(lab->answer, "32 viewers look already"));
    }
    assert_non_null(strstr(get(lab, "/"), " 200 "));
    for (size_t i = 0; i < ELEMENTSOF(viewers); i++)
        viewers[i] = fd_close(viewers[i]);
}

/* ---- curves ---- */

static void many_steps_become_few_points(void **state)
{
    Lab *lab = *state;
    size_t n;
    for (int64_t step = 4; step < 5000; step++)
        feed_step(lab, "first", step, step == 2500 ? 9 : 1);
    const ReportPoint *points = curves_points(lab->seen, "first", &n);
    assert_true(n > SEEN_POINTS_MAX / 2 - 1 && n <= SEEN_POINTS_MAX);
    double high = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || points[i].step > points[i - 1].step);
        high = fmax(high, points[i].high);
    }
    assert_true(high == 9);                      /* a spike is not lost */
    assert_true(points[n - 1].step > 5000 - 64); /* the points reach the last steps */
    feed_step(lab, "first", 1000, 2); /* after a failure, training resumes from an earlier step */
    points = curves_points(lab->seen, "first", &n);
    assert_int_equal(points[n - 1].step, 1000);
    feed_step(lab, "first", 1000, 3); /* the same step, written again */
    assert_int_equal(curves_points(lab->seen, "first", &n)[n - 1].step, 1000);
    assert_true(points[n - 1].loss == 2);
    feed_step(lab, "first", 1001, NAN);
    assert_int_equal(curves_points(lab->seen, "first", &n)[n - 1].step, 1000);
}

/* ---- evaluations ---- */

/* Puts the record that a node writes; results NULL: removes it. */
static void feed_results(Lab *lab, const char *job, int64_t step, const EvalResults *results)
{
    EvalRecord record = {.step = step, .node = "n0"};
    char rest[40];
    (void)snprintf(rest, sizeof(rest), "%s/%lld", job, (long long)step);
    (void)snprintf(record.submission, sizeof(record.submission), "s");
    if (results)
        record.results = *results;
    _cleanup_free_ char *text = results ? eval_record_encode(&record, NULL) : NULL;
    curves_note_eval(lab->seen, rest, text, text ? strlen(text) : 0);
}

static void feed_loss(Lab *lab, const char *job, int64_t step, double loss)
{
    EvalResults results = {.seconds = 1};
    assert_int_equal(eval_results_add_number(&results, "loss", loss), 0);
    feed_results(lab, job, step, &results);
}

/* of: the submission of the followed job, whose checkpoints it has evaluated. */
static void feed_evaluation(Lab *lab, const char *name, const char *of)
{
    JobFacts facts = {.n_grains = 1,
                      .is_eval = true,
                      .max_failures = 3,
                      .min = 1,
                      .max = 1,
                      .arrival = 2,
                      .of_job = "first",
                      .submission = "s"};
    DesiredRecord desired = {.min = 1, .max = 1};
    PhaseRecord phase = {.phase = PHASE_PENDING,
                         .submission = "s",
                         .eval = {.step = 20,
                                  .n_results = 2,
                                  .results = {{.step = 10, .verdict = EVAL_DONE},
                                              {.step = 20, .verdict = EVAL_DONE}}}};
    (void)snprintf(phase.eval.submission, sizeof(phase.eval.submission), "%s", of);
    feed(lab, EVENT_SPEC, name, &facts);
    feed(lab, EVENT_DESIRED, name, &desired);
    feed(lab, EVENT_PHASE, name, &phase);
}

static void evaluations_are_on_the_pages(void **state)
{
    Lab *lab = *state;
    feed_evaluation(lab, "held", "s");
    feed_evaluation(lab, "old", "before");
    feed_loss(lab, "held", 10, 0.375);
    feed_loss(lab, "held", 20, 0.3125);
    feed_loss(lab, "old", 10, 77);
    curves_note_eval(lab->seen, "held/20", "{", 1); /* it cannot be read */
    curves_note_eval(lab->seen, "held", "{}", 2);   /* no key of a step */
    const char *page = get(lab, "/jobs/first");
    assert_non_null(strstr(page, "<title>loss 0.375 at step 10, by held</title>"));
    assert_null(strstr(page, "0.3125"));
    assert_non_null(strstr(page, "href=\"/jobs/held\""));
    assert_null(
        strstr(page, "by old")); /* it evaluated checkpoints of an earlier job of that name */
    page = get(lab, "/jobs/held");
    assert_non_null(strstr(page, "evaluates the checkpoints of <a href=\"/jobs/first\">first</a>"));
    assert_non_null(strstr(page, "<title>loss 0.375 at step 10, by held</title>"));
    assert_null(strstr(page, "<span>steps</span>"));
    assert_null(strstr(page, "This controller has seen no step"));
    page = get(lab, "/jobs/old");
    assert_non_null(strstr(page, "<title>loss 77 at step 10, by old</title>"));
    page = get(lab, "/");
    assert_non_null(strstr(page, "<span id=\"held-s\">-</span>"));
}

static void a_viewer_gets_new_results(void **state)
{
    Lab *lab = *state;
    feed_evaluation(lab, "held", "s");
    _cleanup_fd_ int fd = ask(lab, "/events/jobs/first", "");
    (void)read_until(lab, fd, "\"page\":");
    feed_loss(lab, "held", 20, 0.28125);
    const char *answer = read_until(lab, fd, "0.28125");
    assert_non_null(strstr(answer, "\"evals\":"));
}

static int64_t last_eval(const Lab *lab, size_t *ret_n)
{
    const SeenEval *e, *last = NULL;
    for (*ret_n = 0; (e = curves_eval(lab->seen, "held", *ret_n)); (*ret_n)++) {
        assert_true(!last || last->step < e->step);
        last = e;
    }
    return last ? last->step : -1;
}

static void results_are_bounded_and_go(void **state)
{
    Lab *lab = *state;
    size_t n;
    for (int64_t step = 200; step > 0; step--) /* the latest come first */
        feed_loss(lab, "held", step, 1);
    assert_int_equal(last_eval(lab, &n), 200);
    assert_int_equal(n, SEEN_EVALS_MAX);
    for (int64_t step = 201; step <= 300; step++)
        feed_loss(lab, "held", step, 1);
    assert_int_equal(last_eval(lab, &n), 300);
    assert_int_equal(n, SEEN_EVALS_MAX);
    assert_int_equal(curves_eval(lab->seen, "held", 0)->step, 300 - SEEN_EVALS_MAX + 1);
    feed_loss(lab, "held", 300, 2); /* again: it replaces the one before */
    feed_results(lab, "held", 299, NULL);
    feed_results(lab, "held", 1, NULL); /* it is not there */
    feed_results(lab, "unknown", 1, NULL);
    assert_int_equal(last_eval(lab, &n), 300);
    assert_int_equal(n, SEEN_EVALS_MAX - 1);
    assert_null(curves_eval(lab->seen, "unknown", 0));
    feed_evaluation(lab, "held", "s");
    feed(lab, EVENT_SPEC, "held", NULL);
    assert_null(curves_eval(lab->seen, "held", 0));
}

/* ---- figures ---- */

static double processor_sec(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void measure(int seconds)
{
    enum { VIEWERS = 5 };
    void *state = NULL;
    char name[16];
    (void)lab_begin(&state);
    Lab *lab = state;
    for (int i = 1; i < NODES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "node%04d", i);
        feed_node(lab, name);
    }
    for (int i = 1; i < JOBS_MEASURED; i++) {
        (void)snprintf(name, sizeof(name), "job%d", i);
        feed_job(lab, name);
    }
    int viewers[VIEWERS];
    size_t bytes[VIEWERS] = {0};
    for (int i = 0; i < VIEWERS; i++) {
        _cleanup_free_ char *path =
            i == 0 ? memory_text("/events") : memory_format("/events/jobs/job%d", i);
        viewers[i] = ask(lab, path, "");
    }
    const uint64_t begun_usec = clock_boottime_usec();
    const double begun_sec = processor_sec();
    double fed_sec = 0;
    for (int64_t step = 1; clock_boottime_usec() < begun_usec + (uint64_t)seconds * USEC_PER_SEC;
         step++) {
        const double before = processor_sec();
        for (int i = 1; i < JOBS_MEASURED; i++) {
            (void)snprintf(name, sizeof(name), "job%d", i);
            feed_step(lab, name, step, 1.0 / (double)step + 0.01 * (double)(step % 5));
        }
        fed_sec += processor_sec() - before;
        const uint64_t next_usec = begun_usec + (uint64_t)step * USEC_PER_SEC;
        while (clock_boottime_usec() < next_usec) {
            (void)sd_event_run(lab->event, next_usec - MIN(next_usec, clock_boottime_usec()));
            for (int i = 0; i < VIEWERS; i++) {
                ssize_t got = recv(viewers[i], lab->answer, sizeof(lab->answer), MSG_DONTWAIT);
                bytes[i] += got > 0 ? (size_t)got : 0;
            }
        }
    }
    printf("{\"seconds\": %d, \"processor_percent\": %.2f", seconds,
           100 * (processor_sec() - begun_sec - fed_sec) / seconds);
    for (int i = 0; i < VIEWERS; i++)
        printf(", \"%s_bytes_a_minute\": %.0f", i == 0 ? "cluster" : "job",
               (double)bytes[i] * 60 / seconds);
    printf("}\n");
    for (int i = 0; i < VIEWERS; i++)
        (void)fd_close(viewers[i]);
    (void)lab_end(&state);
}

int main(int argc, char *argv[])
{
    if (argc > 1) {
        measure(atoi(argv[1]));
        return 0;
    }
#define T(name) cmocka_unit_test_setup_teardown(name, lab_begin, lab_end)
    const struct CMUnitTest tests[] = {T(pages_are_served),
                                       T(a_page_is_drawn_once_a_second),
                                       T(a_viewer_gets_what_is_new),
                                       T(a_page_that_is_looked_at_stays),
                                       T(a_job_that_goes),
                                       T(a_leadership_that_goes),
                                       T(more_viewers_than_there_may_be),
                                       T(many_steps_become_few_points),
                                       T(evaluations_are_on_the_pages),
                                       T(a_viewer_gets_new_results),
                                       T(results_are_bounded_and_go)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
