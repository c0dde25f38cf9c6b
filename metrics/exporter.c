/* SPDX-License-Identifier: Apache-2.0 */
/* exporter.c - see exporter.h. */
#include "metrics/exporter.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

enum { BEAT_MSEC = 1000 };

enum {
    BUILD_INFO,
    CPU_SECONDS,
    RESIDENT_BYTES,
    OPEN_FDS,
    MAX_FDS,
    START_TIME,
    LOOP_LATENESS,
    ETCD_REQUESTS,
    ETCD_SECONDS,
    SERIES_DROPPED,
    OWN_FAMILIES,
};

const double exporter_latency_bounds[15] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                            0.5,   1,      2.5,   5,    10,    30,   60};

static const MetricFamily own_families[OWN_FAMILIES] = {
    [BUILD_INFO] = {"sdtrain_build_info", METRIC_GAUGE, "Which program this is; always 1.",
                    .labels = {"program", "version"}},
    [CPU_SECONDS] = {"process_cpu_seconds_total", METRIC_COUNTER,
                     "User and system CPU time of this process.", .labels = {NULL}},
    [RESIDENT_BYTES] = {"process_resident_memory_bytes", METRIC_GAUGE,
                        "Resident memory of this process.", .labels = {NULL}},
    [OPEN_FDS] = {"process_open_fds", METRIC_GAUGE, "Open file descriptors.", .labels = {NULL}},
    [MAX_FDS] = {"process_max_fds", METRIC_GAUGE, "Limit of open file descriptors.",
                 .labels = {NULL}},
    [START_TIME] = {"process_start_time_seconds", METRIC_GAUGE,
                    "When this process started, in seconds since 1970.", .labels = {NULL}},
    [LOOP_LATENESS] = {"sdtrain_event_loop_lateness_seconds", METRIC_HISTOGRAM,
                       "How late the event loop served a timer that is due each second.",
                       .bounds = exporter_latency_bounds,
                       .n_bounds = ELEMENTSOF(exporter_latency_bounds)},
    [ETCD_REQUESTS] = {"sdtrain_etcd_requests_total", METRIC_COUNTER,
                       "Requests to etcd that ended, by gRPC method and outcome.",
                       .labels = {"method", "outcome"}},
    [ETCD_SECONDS] = {"sdtrain_etcd_request_seconds", METRIC_HISTOGRAM,
                      "From a request to etcd to its end, tries on other members included.",
                      .labels = {"method"}, .bounds = exporter_latency_bounds,
                      .n_bounds = ELEMENTSOF(exporter_latency_bounds)},
    [SERIES_DROPPED] = {"sdtrain_metrics_dropped_total", METRIC_COUNTER,
                        "Values that were not counted because there were too many series.",
                        .labels = {NULL}},
};

const MetricFamily *exporter_families(size_t *ret_n)
{
    *ret_n = OWN_FAMILIES;
    return own_families;
}

struct Exporter {
    sd_event_source *beat;
    uint64_t beat_usec; /* when the timer is due */
    ExporterProgram program;
    Metrics *own, *metrics;
    HttpServer *server;
    HttpPage *pages;
    double started_sec;
};

/* ---- the process ---- */

/* Returns field number `field` of /proc/self/stat, or 0 when it cannot be read. */
static uint64_t read_stat(int field)
{
    char text[1024];
    _cleanup_fd_ int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *p = strrchr(text, ')'); /* the end of field 2, which may contain blanks */
    for (int i = 2; i < field && p; i++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p, NULL, 10) : 0;
}

static double now_sec(void) { return (double)clock_realtime_usec() * 1e-6; }

static double start_time_sec(void)
{
    double age =
        (double)clock_boottime_usec() * 1e-6 - (double)read_stat(22) / (double)sysconf(_SC_CLK_TCK);
    return now_sec() - age;
}

static double count_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    while (folder && readdir(folder))
        n++;
    if (folder)
        (void)closedir(folder); /* nothing was written, so no data can be lost */
    return MAX(n - 3, 0);       /* without ".", ".." and the folder's own descriptor */
}

static void collect_process(Exporter *e)
{
    struct rusage usage = {0};
    struct rlimit limit = {0};
    (void)getrusage(RUSAGE_SELF, &usage); /* cannot fail with these arguments */
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    metrics_set(e->own, BUILD_INFO, LABELS(e->program.name, e->program.version), 1);
    metrics_set(e->own, CPU_SECONDS, NO_LABELS,
                (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
    metrics_set(e->own, RESIDENT_BYTES, NO_LABELS,
                (double)read_stat(24) * (double)sysconf(_SC_PAGESIZE));
    metrics_set(e->own, OPEN_FDS, NO_LABELS, count_fds());
    metrics_set(e->own, MAX_FDS, NO_LABELS, (double)limit.rlim_cur);
    metrics_set(e->own, START_TIME, NO_LABELS, e->started_sec);
    metrics_set(e->own, SERIES_DROPPED, NO_LABELS,
                (double)(metrics_dropped(e->own) + metrics_dropped(e->metrics)));
}

/* ---- pages ---- */

static int make_metrics(_unused_ const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    Exporter *e = userdata;
    char *text = NULL;
    FILE *to = memory_given(open_memstream(&text, &ret->n_text));
    metrics_forget_gauges(e->own);
    metrics_forget_gauges(e->metrics);
    unsigned groups = e->program.collect(e->metrics, e->program.userdata);
    collect_process(e);
    metrics_write(e->own, groups, to);
    metrics_write(e->metrics, groups, to);
    ret->type = "text/plain; version=0.0.4; charset=utf-8";
    bool failed = ferror(to);
    failed = fclose(to) != 0 || failed;
    ret->text = text;
    if (!failed)
        return 0;
    free(text);
    return -ENOMEM;
}

static int make_health(_unused_ const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    Exporter *e = userdata;
    char *text = memory_zeroed(1, EXPORTER_HEALTH_BYTES);
    ret->text = text;
    ret->status = e->program.is_healthy(text, e->program.userdata) ? 200 : 503;
    ret->n_text = strlen(ret->text);
    return 0;
}

static HttpPage *all_pages(const ExporterProgram *program)
{
    HttpPage *pages = memory_zeroed(program->n_pages + 2, sizeof(*pages));
    pages[0] = (HttpPage){.path = "/metrics", .make = make_metrics, .reserved = true};
    pages[1] = (HttpPage){.path = "/healthz", .make = make_health, .reserved = true};
    for (size_t i = 0; i < program->n_pages; i++)
        pages[2 + i] = program->pages[i];
    return pages;
}

/* ---- the loop ---- */

static int on_beat(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Exporter *e = userdata;
    uint64_t now_usec = clock_boottime_usec();
    metrics_observe(e->own, LOOP_LATENESS, NO_LABELS,
                    (double)(now_usec - MIN(e->beat_usec, now_usec)) * 1e-6);
    e->beat_usec = now_usec + BEAT_MSEC * USEC_PER_MSEC;
    int r = sd_event_source_set_time(source, e->beat_usec);
    return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

void exporter_note_request(const char *method, int r, uint64_t took_usec, void *exporter)
{
    Exporter *e = exporter;
    if (!e)
        return;
    const char *outcome = r == 0               ? "ok"
                          : r == -ETIMEDOUT    ? "timeout"
                          : r == -ECONNREFUSED ? "unreachable"
                          : r == -EACCES       ? "denied"
                                               : "error";
    metrics_add(e->own, ETCD_REQUESTS, LABELS(method, outcome), 1);
    metrics_observe(e->own, ETCD_SECONDS, LABELS(method), (double)took_usec * 1e-6);
}

/* ---- creation and end ---- */

int exporter_new(sd_event *event, const char *address, const ExporterProgram *program,
                 Exporter **ret, Error *err)
{
    *ret = NULL;
    if (!*address)
        return 0;
    _cleanup_(exporter_freep) Exporter *e = memory_new(Exporter);
    e->own = metrics_new(own_families, OWN_FAMILIES);
    e->metrics = metrics_new(program->families, program->n_families);
    e->program = *program;
    e->started_sec = start_time_sec();
    e->pages = all_pages(program);
    int r = http_server_new(event, address, e->pages, program->n_pages + 2, e, &e->server, err);
    if (r < 0)
        return error_prefix(err, r, "metrics");
    e->beat_usec = clock_boottime_usec() + BEAT_MSEC * USEC_PER_MSEC;
    r = sd_event_add_time(event, &e->beat, CLOCK_BOOTTIME, e->beat_usec, 1000, on_beat, e);
    if (r < 0)
        return error_errno(err, r, "cannot set a timer");
    log_info("metrics at http://%s/metrics", http_server_address(e->server));
    *ret = TAKE_PTR(e);
    return 0;
}

Exporter *exporter_free(Exporter *e)
{
    if (!e)
        return NULL;
    e->server = http_server_free(e->server);
    e->beat = sd_event_source_disable_unref(e->beat);
    e->own = metrics_free(e->own);
    e->metrics = metrics_free(e->metrics);
    free(e->pages);
    free(e);
    return NULL;
}

HttpServer *exporter_server(Exporter *e) { return e ? e->server : NULL; }
Metrics *exporter_metrics(Exporter *e) { return e ? e->metrics : NULL; }
