/* SPDX-License-Identifier: Apache-2.0 */
/* etcd.c - the checks of etcd in `sdctl doctor`: its members, this user's rights, its speed, the compaction of old
 * revisions. */
#include "base/clock.h"
#include "ctl/doctor/checks.h"

#include <string.h>

enum {
    OLDEST_MINOR = 4, /* oldest minor version of etcd 3 that is supported */
    READS = 9,
    /* Limit for the median time of a call: above it commits and leases are delayed. */
    SLOW_MSEC = 100,
    VERY_SLOW_MSEC = 1000,   /* limit for every call: above it a lease of 2 s would expire */
    REVISIONS_KEPT = 500000, /* an etcd that keeps more revisions than this does not compact */
};

/* Above this size, 1.5 GiB, a warning is due: etcd refuses writes at its quota, which is 2 GiB by default and cannot be
 * queried. */
static const int64_t db_bytes_large = INT64_C(3) << 29;

static const char etcd_check[] = "etcd", size_check[] = "etcd size", speed_check[] = "etcd speed",
                  rights_check[] = "etcd rights";

/* ---- members ---- */

static void check_version(const Member *one, Findings *f)
{
    int major = 0, minor = 0;
    const char *version = one->status.version;
    if (sscanf(version, "%d.%d", &major, &minor) != 2 || major > 3 ||
        (major == 3 && minor >= OLDEST_MINOR))
        findings_add(f, FINDING_OK, etcd_check, one->endpoint, NULL, "answers, version %s",
                     version);
    else
        findings_add(f, FINDING_WRONG, etcd_check, one->endpoint, "upgrade it: 3.4 is the oldest",
                     "version %s", version);
}

static void check_size(const Member *one, Findings *f)
{
    const EtcdStatus *s = &one->status;
    if (s->db_bytes > db_bytes_large)
        findings_add(
            f, FINDING_WRONG, size_check, one->endpoint,
            "at its quota (2 GiB by default) it takes no writes: switch auto-compaction on, "
            "then etcdctl defrag",
            "%.1f MiB, of which %.1f are used", (double)s->db_bytes / (1 << 20),
            (double)s->db_used_bytes / (1 << 20));
    else
        findings_add(f, FINDING_OK, size_check, one->endpoint, NULL,
                     "below 1.5 GiB; no alarm"); /* an alarm is reported by check_member() */
}

static void check_member(const Member *one, Findings *f)
{
    const EtcdStatus *s = &one->status;
    if (one->r < 0) {
        findings_add(f, FINDING_WRONG, etcd_check, one->endpoint,
                     "start it, or open its port for this machine", "does not answer: %s",
                     one->error.text);
        return;
    }
    check_version(one, f);
    if (strstr(s->errors, "NOSPACE"))
        findings_add(
            f, FINDING_WRONG, size_check, one->endpoint,
            "compact, etcdctl defrag, then etcdctl alarm disarm; auto-compaction prevents it",
            "out of space: it takes no writes");
    else if (*s->errors && s->leader != 0)
        findings_add(f, FINDING_WRONG, etcd_check, one->endpoint,
                     "with a CORRUPT alarm replace the member", "%s", s->errors);
    else
        check_size(one, f);
}

void check_members(const Members *m, Findings *f)
{
    uint64_t leader = 0;
    bool agree = true;
    for (size_t i = 0; i < m->n; i++) {
        const Member *one = &m->members[i];
        check_member(one, f);
        if (one->r < 0)
            continue;
        agree = agree && (leader == 0 || one->status.leader == leader);
        leader = one->status.leader ? one->status.leader : leader;
    }
    if (m->n_answered == 0)
        return;
    if (!m->has_leader)
        findings_add(f, FINDING_WRONG, etcd_check, NULL,
                     "start the others: until then nothing is decided and no checkpoint counts",
                     "no leader, so no quorum");
    else if (!agree)
        findings_add(
            f, FINDING_WRONG, etcd_check, NULL,
            "an election may be under way: look again; do all endpoints belong to one etcd?",
            "the members see different leaders");
    else if (m->n == 1)
        findings_add(f, FINDING_OK, etcd_check, NULL, NULL,
                     "one endpoint is named, and it sees a leader");
    else
        findings_add(f, FINDING_OK, etcd_check, NULL, NULL, "all see one leader%s%s",
                     *members_leader(m) ? ", " : "", members_leader(m));
}

/* ---- rights and speed ---- */

typedef struct Times {
    uint64_t of[KEY_KINDS + READS];
    size_t n;
} Times;

static int by_time(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void judge_times(Times *t, const char *what, Findings *f)
{
    if (t->n == 0)
        return;
    qsort(t->of, t->n, sizeof(t->of[0]), by_time);
    const double median = (double)t->of[t->n / 2] / 1e3, most = (double)t->of[t->n - 1] / 1e3;
    const bool slow = median > SLOW_MSEC || most > VERY_SLOW_MSEC;
    findings_add(f, slow ? FINDING_WRONG : FINDING_OK, speed_check, NULL,
                 slow ? "its disk must sync fast, and it must be near: leases run out otherwise"
                      : NULL,
                 "a %s takes %.1f ms (median), %.1f ms at most", what, median, most);
}

/* The kinds of records that an operator may write, as set up by /usr/share/sdtrain/etcd-roles. */
static const KeyKind written[] = {KEY_SPECS, KEY_DESIRED, KEY_CORDONS, KEY_REQUESTS, KEY_HEALTH};

/* Tests the right to write a key, and measures the time. The transaction's comparison is always false, so nothing is
 * written. But etcd answers only after a quorum has stored the transaction on disk. */
static int query_once(CtlClient *client, const char *key, Times *times, Error *err)
{
    const uint64_t began = clock_boottime_usec();
    int r = etcd_request_rights_wait(client->etcd, key, err);
    if (r == 0)
        times->of[times->n++] = clock_boottime_usec() - began;
    return r;
}

static void check_rights(CtlClient *client, Times *times, Findings *f)
{
    char key[KEY_MAX];
    size_t n_denied = 0;
    Error err = ERROR_INIT;
    for (size_t i = 0; i < ELEMENTSOF(written); i++) {
        const char *kind = key_kind_name(written[i]);
        int r =
            query_once(client, key_of(client->cluster, written[i], ".rights", key), times, &err);
        n_denied += r < 0;
        if (r < 0)
            findings_add(f, FINDING_WRONG, rights_check, kind,
                         r == -EACCES
                             ? "/usr/share/sdtrain/etcd-roles gives an operator these rights"
                             : NULL,
                         r == -EACCES ? "this user may not write them" : "%s", err.text);
    }
    if (n_denied > 0)
        return;
    if (query_once(client, "/sdtrain-doctor/.rights", times, &err) == 0)
        findings_add(
            f, FINDING_NOTE, rights_check, NULL,
            "/usr/share/sdtrain/etcd-roles --enable makes roles and switches authentication on",
            "this user may write everything in etcd: authentication is off, or it is root");
    else
        findings_add(f, FINDING_OK, rights_check, NULL, NULL,
                     "authentication is on, and this user may do what an operator does");
}

static int time_reads(CtlClient *client, Times *times, int64_t *ret_revision, Error *err)
{
    char key[KEY_MAX];
    (void)key_of(client->cluster, KEY_REQUESTS, ".rights", key);
    for (int i = 0; i < READS; i++) {
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        const uint64_t began = clock_boottime_usec();
        int r = etcd_get_wait(client->etcd, key, false, &answer, err);
        if (r < 0)
            return r;
        times->of[times->n++] = clock_boottime_usec() - began;
        *ret_revision = answer->revision;
    }
    return 0;
}

void check_etcd(CtlClient *client, Findings *f)
{
    Times reads = {0}, writes = {0};
    char key[KEY_MAX];
    int64_t revision = 0;
    Error err = ERROR_INIT;
    int r = time_reads(client, &reads, &revision, &err);
    if (r < 0) {
        findings_add(f, FINDING_WRONG, r == -EACCES ? rights_check : speed_check, NULL, NULL,
                     "cannot read: %s", err.text);
        return;
    }
    check_rights(client, &writes, f);
    judge_times(&reads, "read", f);
    judge_times(&writes, "write", f);
    check_compaction(client->etcd, key_of(client->cluster, KEY_REQUESTS, ".rights", key), revision,
                     REVISIONS_KEPT, f);
}
