/* SPDX-License-Identifier: Apache-2.0 */
/* testing-daemon.c - see testing-daemon.h. */
#include "daemon/test/testing-daemon.h"

#include "base/clock.h"
#include "base/file.h"
#include "daemon/process/orphans.h"
#include "etcd/etcd-wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ENTRIES_MAX = 256 };

#define CLUSTER "lab"

typedef struct Entry {
    char key[KEY_MAX];
    char *value;
    int64_t lease, revision;
} Entry;

struct Lab {
    char *folder;
    TestingEtcd *server;
    sd_event *event;
    Etcd *etcd;
    EtcdWatch *watch;
    bool followed;
    Entry entries[ENTRIES_MAX];
    size_t n_entries;
    LabNode nodes[LAB_NODES_MAX];
    RanksRecord ranks; /* the record decoded last, to be cleared */
    char submission[SUBMISSION_BYTES];
};

/* ---- failures ---- */

static void show_logs(const Lab *lab)
{
    for (size_t i = 0; i < ELEMENTSOF(lab->nodes); i++) {
        char path[400];
        _cleanup_free_ char *text = NULL;
        if (!*lab->nodes[i].name)
            continue;
        (void)snprintf(path, sizeof(path), "%s/log", lab->nodes[i].folder);
        if (file_read(path, 1 << 20, &text, NULL, NULL) == 0)
            (void)fprintf(stderr, "---- %s ----\n%s", lab->nodes[i].name, text);
    }
    for (size_t i = 0; i < lab->n_entries; i++)
        (void)fprintf(stderr, "%s = %s\n", lab->entries[i].key,
                      lab->entries[i].value ? lab->entries[i].value : "(deleted)");
}

#define check(lab, condition, ...)                                                                 \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            show_logs(lab);                                                                        \
            fail_msg(__VA_ARGS__);                                                                 \
        }                                                                                          \
    } while (0)

/* ---- following etcd ---- */

static Entry *find(Lab *lab, const char *key)
{
    for (size_t i = 0; i < lab->n_entries; i++)
        if (strcmp(lab->entries[i].key, key) == 0)
            return &lab->entries[i];
    return NULL;
}

static void on_events(const EtcdEvent *events, size_t n_events, _unused_ int64_t revision,
                      bool initial, void *userdata)
{
    Lab *lab = userdata;
    lab->followed = lab->followed || initial;
    for (size_t i = 0; i < n_events; i++) {
        Entry *entry = find(lab, events[i].kv.key);
        if (!entry) {
            assert_true(lab->n_entries < ENTRIES_MAX);
            entry = &lab->entries[lab->n_entries++];
            (void)snprintf(entry->key, sizeof(entry->key), "%s", events[i].kv.key);
        }
        free(entry->value);
        bool put = events[i].kind == ETCD_EVENT_PUT;
        entry->value = put ? strdup(events[i].kv.value) : NULL;
        entry->lease = put ? events[i].kv.lease : 0;
        entry->revision = events[i].kv.mod_revision;
    }
}

void lab_wait_for(Lab *lab, LabCondition condition, const void *userdata, const char *what,
                  int msec)
{
    uint64_t end_usec = clock_boottime_usec() + (uint64_t)msec * USEC_PER_MSEC;
    while (!condition(lab, userdata)) {
        uint64_t now_usec = clock_boottime_usec();
        check(lab, now_usec < end_usec, "waited %d ms for %s", msec, what);
        assert_true(sd_event_run(lab->event, MIN(end_usec - now_usec, 100 * USEC_PER_MSEC)) >= 0);
    }
}

static bool has_followed(Lab *lab, _unused_ const void *userdata) { return lab->followed; }

Lab *lab_start(void)
{
    Lab *lab = calloc(1, sizeof(*lab));
    assert_non_null(lab);
    lab->folder = strdup("/tmp/sdtrain-lab-XXXXXX");
    assert_non_null(lab->folder);
    assert_non_null(mkdtemp(lab->folder));
    lab->server = testing_etcd_start(1, 0);
    assert_true(sd_event_new(&lab->event) >= 0);
    EtcdOptions options = testing_etcd_options(lab->server);
    Error err = ERROR_INIT;
    assert_int_equal(etcd_new(lab->event, &options, &lab->etcd, &err), 0);
    char prefix[KEY_MAX];
    assert_int_equal(etcd_watch_prefix(lab->etcd, key_prefix(CLUSTER, -1, prefix), on_events, lab,
                                       &lab->watch),
                     0);
    lab_wait(lab, has_followed, NULL);
    return lab;
}

Lab *lab_stop(Lab *lab)
{
    if (!lab)
        return NULL;
    for (size_t i = 0; i < ELEMENTSOF(lab->nodes); i++) {
        LabNode *node = &lab->nodes[i];
        if (node->pid > 0) {
            (void)kill(node->pid, SIGKILL); /* the pid is valid: our child is not yet reaped */
            (void)waitpid(node->pid, NULL, 0);
            node->pidfd = fd_close(node->pidfd);
        }
        if (*node->name) { /* the keeper holds the lock until all ranks have ended */
            Error err = ERROR_INIT;
            _cleanup_fd_ int lock = -EBADF;
            if (orphans_lock(node->run_dir, &lock, &err) < 0)
                (void)fprintf(stderr, "%s\n", err.text);
            if (lab_log_has(node, "keeper: ")) /* invariant I12: no process may outlive its owner */
                show_logs(lab);
            assert_false(lab_log_has(node, "keeper: "));
        }
    }
    lab->watch = etcd_watch_free(lab->watch);
    lab->etcd = etcd_free(lab->etcd);
    lab->event = sd_event_unref(lab->event);
    (void)testing_etcd_stop(lab->server); /* always returns NULL */
    for (size_t i = 0; i < lab->n_entries; i++)
        free(lab->entries[i].value);
    ranks_record_clear(&lab->ranks);
    (void)folder_remove(lab->folder, NULL); /* a failed test does not get here: its folder stays */
    free(lab->folder);
    free(lab);
    return NULL;
}

TestingEtcd *lab_etcd(Lab *lab) { return lab->server; }
const char *lab_folder(const Lab *lab) { return lab->folder; }

/* ---- daemons ---- */

LabNode *lab_spawn_node(Lab *lab, int i, const char *settings, const char *fault)
{
    LabNode *node = &lab->nodes[i];
    const char *bin = getenv("SDTRAIN_BIN");
    char config[400], log[400], trainer[400], text[4096];
    assert_non_null(bin);
    (void)snprintf(node->name, sizeof(node->name), "node%d", i);
    (void)snprintf(node->folder, sizeof(node->folder), "%s/node%d", lab->folder, i);
    (void)snprintf(node->run_dir, sizeof(node->run_dir), "%s/node%d/run", lab->folder, i);
    (void)snprintf(node->log_dir, sizeof(node->log_dir), "%s/node%d/logs", lab->folder, i);
    (void)snprintf(config, sizeof(config), "%s/config.json", node->folder);
    (void)snprintf(log, sizeof(log), "%s/log", node->folder);
    (void)snprintf(trainer, sizeof(trainer), "%s/testing-trainer", bin);
    bool own = strstr(settings, "\"trainer\":"), leased = strstr(settings, "\"lease_sec\":");
    int n = snprintf(text, sizeof(text),
                     "{\"cluster\": \"" CLUSTER "\", \"node\": \"%s\", \"etcd\": \"%s\", "
                     "\"address\": \"127.0.0.1\", %s\"run_dir\": \"%s\", "
                     "\"log_dir\": \"%s\", %s%s%s\"machine_id\": \"%032d\"%s%s}",
                     node->name, testing_etcd_endpoints(lab->server),
                     leased ? "" : "\"lease_sec\": 10, ", node->run_dir, node->log_dir,
                     own ? "" : "\"trainer\": \"", own ? "" : trainer, own ? "" : "\", ", i + 1,
                     *settings ? ", " : "", settings);
    assert_int_equal(folder_make(node->folder, NULL), 0);
    assert_int_equal(folder_make(node->log_dir, NULL), 0);
    assert_int_equal(file_write(config, text, (size_t)n, 0, NULL), 0);

    char program[400];
    (void)snprintf(program, sizeof(program), "%s/sdtraind", bin);
    node->pid = fork();
    assert_true(node->pid >= 0);
    if (node->pid == 0) { /* only system calls until exec: gRPC's threads may hold locks */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        (void)dup2(fd, STDERR_FILENO);
        if (fault)
            (void)setenv("SDTRAIN_FAULT", fault, 1);
        (void)execl(program, "sdtraind", "--config", config, NULL);
        _exit(126);
    }
    node->pidfd = (int)syscall(SYS_pidfd_open, node->pid, 0);
    assert_true(node->pidfd >= 0);
    return node;
}

static bool is_registered(Lab *lab, const void *userdata)
{
    const LabNode *node = userdata;
    char key[KEY_MAX];
    const char *value = lab_value(lab, key_of(CLUSTER, KEY_NODES, node->name, key));
    return value && strstr(value, "\"up\"") && lab_log_has(node, "registered NODE=");
}

LabNode *lab_start_node(Lab *lab, int i, const char *settings, const char *fault)
{
    LabNode *node = lab_spawn_node(lab, i, settings, fault);
    lab_wait(lab, is_registered, node);
    return node;
}

static bool has_ended(_unused_ Lab *lab, const void *userdata)
{
    const LabNode *node = userdata;
    struct pollfd p = {.fd = node->pidfd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

int lab_wait_end(Lab *lab, LabNode *node)
{
    int status;
    lab_wait(lab, has_ended, node);
    assert_int_equal(waitpid(node->pid, &status, 0), node->pid);
    node->pidfd = fd_close(node->pidfd);
    node->pid = 0;
    node->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return node->status;
}

bool lab_log_has(const LabNode *node, const char *wanted)
{
    char path[400];
    _cleanup_free_ char *text = NULL;
    (void)snprintf(path, sizeof(path), "%s/log", node->folder);
    return file_read(path, 1 << 24, &text, NULL, NULL) == 0 && strstr(text, wanted);
}

/* ---- the leader ---- */

static int64_t put_with(Lab *lab, const char *key, EtcdOp op)
{
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    Error err = ERROR_INIT;
    op.key = key;
    int r = etcd_txn_wait(lab->etcd, NULL, 0, &op, 1, &answer, &err);
    check(lab, r == 0, "%s: %s", key, err.text);
    return answer->revision;
}

int64_t lab_put(Lab *lab, const char *key, const char *value)
{
    return put_with(lab, key, (EtcdOp){.kind = ETCD_PUT, .value = value});
}

int64_t lab_delete(Lab *lab, const char *key)
{
    return put_with(lab, key, (EtcdOp){.kind = ETCD_DELETE});
}

void lab_submit(Lab *lab, const char *submission)
{
    (void)snprintf(lab->submission, sizeof(lab->submission), "%s", submission);
}

void lab_put_spec(Lab *lab, const char *job)
{
    char key[KEY_MAX];
    SpecRecord spec = {.spec = (char[]){"{\"name\": \"a\"}"}, .submitted_usec = 1};
    memcpy(spec.submission, lab->submission, sizeof(spec.submission));
    _cleanup_free_ char *text = NULL;
    text = spec_record_encode(&spec, NULL);
    lab_put(lab, key_of(CLUSTER, KEY_SPECS, job, key), text);
}

int64_t lab_put_world(Lab *lab, const char *job, int64_t generation, const LabRun *runs,
                      size_t n_runs)
{
    char key[KEY_MAX];
    WorldRun world_runs[LAB_NODES_MAX] = {0};
    WorldRecord world = {.generation = generation, .runs = world_runs, .n_runs = n_runs};
    memcpy(world.submission, lab->submission, sizeof(world.submission));
    for (size_t i = 0; i < n_runs; i++) {
        NodeRecord record;
        assert_true(lab_node_record(lab, runs[i].node, &record));
        (void)snprintf(world_runs[i].node, sizeof(world_runs[i].node), "%s", record.name);
        world_runs[i].incarnation = record.incarnation;
        world_runs[i].slots = runs[i].slots;
        world.size += __builtin_popcountll(runs[i].slots);
    }
    _cleanup_free_ char *text = NULL;
    text = world_record_encode(&world, NULL);
    return put_with(lab, key_of(CLUSTER, KEY_WORLDS, job, key),
                    (EtcdOp){.kind = ETCD_PUT, .value = text});
}

void lab_put_phase(Lab *lab, const char *job, int64_t generation, JobPhase phase, bool go,
                   bool leave)
{
    char key[KEY_MAX];
    PhaseRecord record = {.phase = phase, .generation = generation, .go = go, .leave = leave};
    memcpy(record.submission, lab->submission, sizeof(record.submission));
    _cleanup_free_ char *text = NULL;
    text = phase_record_encode(&record, NULL);
    lab_put(lab, key_of(CLUSTER, KEY_PHASES, job, key), text);
}

/* ---- records in etcd ---- */

const char *lab_value(Lab *lab, const char *key)
{
    Entry *entry = find(lab, key);
    return entry ? entry->value : NULL;
}

int64_t lab_revision_of(Lab *lab, const char *key)
{
    Entry *entry = find(lab, key);
    return entry ? entry->revision : 0;
}

int64_t lab_lease_of(Lab *lab, const char *key)
{
    Entry *entry = find(lab, key);
    return entry ? entry->lease : 0;
}

bool lab_node_record(Lab *lab, int node, NodeRecord *ret)
{
    char key[KEY_MAX], name[32];
    (void)snprintf(name, sizeof(name), "node%d", node);
    const char *value = lab_value(lab, key_of(CLUSTER, KEY_NODES, name, key));
    Error err = ERROR_INIT;
    if (!value)
        return false;
    return node_record_decode(key, value, strlen(value), ret, &err) == 0;
}

bool lab_ranks(Lab *lab, const char *job, int64_t generation, int node, RanksRecord *ret)
{
    char key[KEY_MAX], name[32];
    (void)snprintf(name, sizeof(name), "node%d", node);
    const char *value = lab_value(lab, key_ranks(CLUSTER, job, generation, name, key));
    Error err = ERROR_INIT;
    if (!value)
        return false;
    ranks_record_clear(&lab->ranks);
    int r = ranks_record_decode(key, value, strlen(value), &lab->ranks, &err);
    check(lab, r == 0, "%s", err.text);
    *ret = lab->ranks;
    return true;
}

bool lab_checkpoints(Lab *lab, const char *job, CheckpointsRecord *ret)
{
    char key[KEY_MAX];
    const char *value = lab_value(lab, key_of(CLUSTER, KEY_CHECKPOINTS, job, key));
    Error err = ERROR_INIT;
    if (!value)
        return false;
    int r = checkpoints_record_decode(key, value, strlen(value), ret, &err);
    check(lab, r == 0, "%s", err.text);
    return true;
}

/* ---- conditions ---- */

bool lab_all_in_state(Lab *lab, const void *where)
{
    const LabWhere *w = where;
    RanksRecord record;
    if (!lab_ranks(lab, w->job, w->generation, w->node, &record))
        return false;
    for (size_t i = 0; i < record.n_ranks; i++)
        if (record.ranks[i].state != w->state)
            return false;
    return true;
}

bool lab_has_first_step(Lab *lab, const void *where)
{
    const LabWhere *w = where;
    RanksRecord record;
    return lab_ranks(lab, w->job, w->generation, w->node, &record) && record.first_step > 0;
}

bool lab_is_finished(Lab *lab, const void *where)
{
    const LabWhere *w = where;
    RanksRecord record;
    return lab_ranks(lab, w->job, w->generation, w->node, &record) && record.finished;
}

bool lab_has_left(Lab *lab, const void *where)
{
    const LabWhere *w = where;
    RanksRecord record;
    return lab_ranks(lab, w->job, w->generation, w->node, &record) && record.left;
}

bool lab_is_killed(Lab *lab, const void *where)
{
    const LabWhere *w = where;
    RanksRecord record;
    return lab_ranks(lab, w->job, w->generation, w->node, &record) && record.killed_usec > 0;
}

bool lab_has_commits(Lab *lab, const void *commits)
{
    const LabCommits *wanted = commits;
    CheckpointsRecord record;
    return lab_checkpoints(lab, wanted->job, &record) && record.n_commits >= wanted->n;
}

/* ---- processes ---- */

int64_t lab_resident_bytes(const LabNode *node)
{
    char path[64], line[256];
    long long kib = -1;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)node->pid);
    _cleanup_file_ FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %lld kB", &kib) != 1)
            kib = -1;
    assert_true(kib > 0);
    return (int64_t)kib * 1024;
}

size_t lab_marked(const LabNode *node, int *ret_pidfds, size_t max)
{
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    size_t n = 0;
    struct dirent *entry;
    while (n < max && (entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 1 || !orphans_has_owner_tag(pid, node->run_dir, -1))
            continue;
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (fd >= 0)
            ret_pidfds[n++] = fd;
    }
    (void)closedir(proc);
    return n;
}

bool lab_all_end(int *pidfds, size_t n, int msec)
{
    uint64_t end_usec = clock_boottime_usec() + (uint64_t)msec * USEC_PER_MSEC;
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        uint64_t now_usec = clock_boottime_usec();
        struct pollfd p = {.fd = pidfds[i], .events = POLLIN};
        int left = now_usec < end_usec ? (int)((end_usec - now_usec) / USEC_PER_MSEC) : 0;
        all = poll(&p, 1, left) > 0 && all;
        pidfds[i] = fd_close(pidfds[i]);
    }
    return all;
}
