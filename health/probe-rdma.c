/* SPDX-License-Identifier: Apache-2.0 */
/* probe-rdma.c - checks EFA and other RDMA devices as sysfs shows them: their number, ports, rates and counters.
 *
 * State: {"usec", "absent": rounds in a row that lacked devices, "devices": {name: {counters}}, "buckets":
 *        {"<device>/<counter>": tokens}}. The limits of counters are token buckets: a burst that may come at once,
 *        refilled by one token a second. */
#include "health/probe.h"

#include "base/clock.h"
#include "health/sysfs.h"

#include <limits.h>
#include <string.h>

typedef struct CounterRule {
    const char *name;
    double burst;
} CounterRule;

/* The bursts at which EKS raises an alert. */
static const CounterRule rules[] = {
    {"rx_drops", 100},
    {"rdma_write_wr_err", 100},
    {"rdma_read_wr_err", 100},
    {"unresponsive_remote_events", 100},
    {"impaired_remote_conn_events", 100},
    {"retrans_timeout_events", 100},
    {"retrans_pkts", 1000},
    {"retrans_bytes", 1000000},
};
static const char commands_lost[] = "no_completion_cmds", keep_alive[] = "keep_alive_rcvd";

enum { ABSENT_ROUNDS = 2 /* devices may appear late after a boot */, PORT = 1, DEVICES_MAX = 64 };

typedef struct RdmaLook {
    const ProbeContext *context;
    ProbeResult *result;
    char folder[PATH_MAX]; /* folder of all devices */
    const char *device;
    double elapsed_sec; /* time since the last run; 0: unknown */
    json_t *counters;   /* counters of `device` for the next run */
    const json_t *before;
} RdmaLook;

/* Returns true, with *ret_delta, if the counter exists and was known before. A counter that has gone down was reset,
 * and counts from 0. */
static bool count(RdmaLook *l, const char *name, double *ret_delta)
{
    uint64_t value;
    double before;
    if (sysfs_read_number(&value, "%s/%s/ports/%d/hw_counters/%s", l->folder, l->device, PORT,
                          name) < 0)
        return false;
    (void)json_object_set_new(l->counters, name, json_real((double)value));
    if (!probe_recall(l->before, name, &before) || (double)value < before)
        return false;
    *ret_delta = (double)value - before;
    return true;
}

static void look_at_counters(RdmaLook *l)
{
    const json_t *old = json_object_get(l->context->state, "buckets");
    json_t *buckets = json_object_get(l->result->state, "buckets");
    for (size_t i = 0; i < ELEMENTSOF(rules); i++) {
        char key[SYSFS_NAME_MAX + 48];
        double delta = 0, tokens = rules[i].burst;
        (void)snprintf(key, sizeof(key), "%s/%s", l->device, rules[i].name);
        (void)probe_recall(old, key, &tokens);
        bool known = count(l, rules[i].name, &delta);
        tokens = MIN(rules[i].burst, tokens + l->elapsed_sec) - delta;
        (void)json_object_set_new(buckets, key, json_real(MAX(tokens, 0)));
        if (known && tokens < 0)
            probe_find_fault(l->result, FAULT_RDMA_COUNTER, -1, "%s: %s rose by %.0f in %.0f s",
                             l->device, rules[i].name, delta, l->elapsed_sec);
    }
    double lost, alive;
    bool loses = count(l, commands_lost, &lost);
    if (count(l, keep_alive, &alive) && loses && lost > 0 && alive == 0)
        probe_find_fault(l->result, FAULT_RDMA_HUNG, -1,
                         "%s hangs: %.0f commands without an answer and no keep-alive in %.0f s",
                         l->device, lost, l->elapsed_sec);
}

/* Returns whether a line such as "4: ACTIVE" names the wanted state. */
static bool is_state(const char *line, const char *wanted)
{
    const char *word = strchr(line, ':');
    return word && strcmp(word + 1 + strspn(word + 1, " "), wanted) == 0;
}

/* Checks the port. Returns its rate in Gb/s; 0: unknown. */
static uint64_t look_at_port(RdmaLook *l)
{
    char state[SYSFS_LINE_MAX], phys[SYSFS_LINE_MAX], rate[SYSFS_LINE_MAX];
    uint64_t gbps = 0;
    if (sysfs_read_line(state, "%s/%s/ports/%d/state", l->folder, l->device, PORT) < 0)
        (void)snprintf(state, sizeof(state), "?: unreadable");
    if (!is_state(state, "ACTIVE"))
        probe_find_fault(l->result, FAULT_RDMA_PORT, -1, "%s port %d is %.40s, not ACTIVE",
                         l->device, PORT, state);
    else if (sysfs_read_line(phys, "%s/%s/ports/%d/phys_state", l->folder, l->device, PORT) == 0 &&
             !is_state(phys, "LinkUp"))
        probe_find_fault(l->result, FAULT_RDMA_PORT, -1, "%s port %d is %.40s, not LinkUp",
                         l->device, PORT, phys);
    if (sysfs_read_line(rate, "%s/%s/ports/%d/rate", l->folder, l->device, PORT) < 0 ||
        sysfs_parse_number(rate, &gbps) < 0)
        return 0;
    return gbps;
}

static void compare_rates(RdmaLook *l, const SysfsName *names, const uint64_t *gbps, size_t n)
{
    uint64_t best = 0;
    for (size_t i = 0; i < n; i++)
        best = MAX(best, gbps[i]);
    for (size_t i = 0; i < n; i++)
        if (gbps[i] > 0 && gbps[i] < best)
            probe_find_fault(l->result, FAULT_RDMA_RATE, -1,
                             "%s runs at %llu Gb/s, others here at %llu", names[i],
                             (unsigned long long)gbps[i], (unsigned long long)best);
}

static void compare_count(RdmaLook *l, size_t n)
{
    double absent = 0;
    if ((int64_t)n >= l->context->rdma_devices)
        return;
    (void)probe_recall(l->context->state, "absent", &absent);
    (void)json_object_set_new(l->result->state, "absent", json_real(++absent));
    probe_find_fault(l->result, absent >= ABSENT_ROUNDS ? FAULT_RDMA_COUNT : FAULT_RDMA_COUNT_SEEN,
                     -1, "%zu of %lld RDMA devices", n, (long long)l->context->rdma_devices);
}

static int run_rdma_probe(const ProbeContext *context, ProbeResult *ret, _unused_ Error *err)
{
    static SysfsName names[DEVICES_MAX];
    uint64_t gbps[DEVICES_MAX];
    double now_usec = (double)clock_boottime_usec(), before_usec;
    RdmaLook l = {.context = context, .result = ret};
    ret->state = json_pack("{ss,sf,s{},s{}}", "boot_id", context->boot_id, "usec", now_usec,
                           "devices", "buckets");
    const char *boot_id = json_string_value(json_object_get(context->state, "boot_id"));
    ProbeContext fresh = *context;
    if (!boot_id || strcmp(boot_id, context->boot_id) != 0) {
        fresh.state = NULL; /* counters begin at 0 at each boot */
        l.context = &fresh;
    }
    if (probe_recall(l.context->state, "usec", &before_usec) && now_usec > before_usec)
        l.elapsed_sec = (now_usec - before_usec) / 1e6;

    (void)snprintf(l.folder, sizeof(l.folder), "%s/class/infiniband", context->sysfs);
    size_t n = sysfs_list(l.folder, names, DEVICES_MAX);
    for (size_t i = 0; i < n; i++) {
        l.device = names[i];
        l.counters = json_object();
        l.before = json_object_get(json_object_get(l.context->state, "devices"), names[i]);
        gbps[i] = look_at_port(&l);
        look_at_counters(&l);
        (void)json_object_set_new(json_object_get(ret->state, "devices"), names[i], l.counters);
    }
    compare_rates(&l, names, gbps, n);
    compare_count(&l, n);
    (void)snprintf(ret->note, sizeof(ret->note), "%zu RDMA device%s", n, n == 1 ? "" : "s");
    return 0;
}

const Probe probe_rdma = {.name = "rdma", .timeout_usec = 20 * USEC_PER_SEC, .run = run_rdma_probe};
