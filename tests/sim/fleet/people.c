/* SPDX-License-Identifier: Apache-2.0 */
/* people.c - see fleet.h: what people do. */
#include "tests/sim/fleet/fleet-internal.h"

#include "base/memory.h"
#include "cluster/cordon.h"
#include "cluster/keys.h"
#include "tests/sim/fleet/copies.h"
#include "tests/sim/fleet/manifests.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRESS_SEC = 30, SAVE_STEPS = 10, WRITES_MAX = 4, STRANGER_SEC = 20 };

static sd_event *loop;
static Etcd *admin;
static int n_under_way;     /* transactions without an answer */
static EtcdLease *stranger; /* the stranger's lease; NULL: there was no stranger */

/* The records show whether the transaction was written, so its result is ignored. */
static void on_written(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, _unused_ void *userdata)
{
    n_under_way--;
}

bool fleet_people_wait(void) { return n_under_way > 0; }

/* Writes all operations in one transaction. by: BOOKS_BY_PERSON or BOOKS_BY_HAND of books.h. */
static void write_all(const char *by, const EtcdCompare *guards, size_t n_guards, const EtcdOp *its,
                      size_t n)
{
    EtcdOp ops[WRITES_MAX];
    sd_event *previous = loop_enter(loop);
    assert(n < WRITES_MAX);
    memcpy(ops, its, n * sizeof(*its));
    ops[n] = (EtcdOp){.kind = ETCD_PUT, .key = by, .value = "1"};
    int r = etcd_txn(admin, guards, n_guards, ops, n + 1, on_written, NULL, NULL);
    assert(r == 0);
    n_under_way++;
    (void)loop_enter(previous);
}

static char *desired_text(const FleetJob *job, DesiredState state, int target)
{
    const DesiredRecord desired = {.state = state,
                                   .min = job->min,
                                   .max = job->max,
                                   .priority = job->priority,
                                   .target = target};
    return desired_record_encode(&desired, NULL);
}

static char *program_file(const FleetJob *job)
{
    if (job->plan.measures_loss)
        return memory_format(
            "{\"name\":\"%s\",\"kind\":\"eval\",\"of\":{\"job\":\"%s\",\"every_steps\":%lld},"
            "\"world\":{\"min\":1,\"max\":1,\"per_node\":1},"
            "\"loss\":{\"streams\":[{\"uri\":\"file:///d\"}],\"device\":\"%s\"},"
            "\"recovery\":{\"max_failures_at_same_step\":%d,\"store_patience_s\":%d},"
            "\"checkpoint\":{\"uri\":\"file:///c\"}}",
            job->name, job->plan.of, (long long)job->plan.every_steps,
            job->plan.needs_gpu ? "cuda" : "cpu", job->max_failures, job->store_patience_sec);
    if (job->plan.of)
        return memory_format(
            "{\"name\":\"%s\",\"kind\":\"eval\",\"of\":{\"job\":\"%s\",\"every_steps\":%lld},"
            "\"world\":{\"min\":%d,\"max\":%d,\"per_node\":%d},"
            "\"exec\":{\"command\":[\"evaluate\"],\"dir\":\"/d\",\"device\":\"%s\"},"
            "\"recovery\":{\"max_failures_at_same_step\":%d,\"store_patience_s\":%d},"
            "\"checkpoint\":{\"uri\":\"file:///c\"}}",
            job->name, job->plan.of, (long long)job->plan.every_steps, job->min, job->max,
            job->plan.per_node, job->plan.needs_gpu ? "cuda" : "cpu", job->max_failures,
            job->store_patience_sec);
    return memory_format(
        "{\"name\":\"%s\",\"kind\":\"exec\",\"world\":{\"min\":%d,\"max\":%d,\"per_node\":%d},"
        "\"exec\":{\"command\":[\"train\"],\"dir\":\"/d\",\"device\":\"%s\"},"
        "\"recovery\":{\"max_failures_at_same_step\":%d,\"grow_interval_s\":%d,"
        "\"store_patience_s\":%d,\"progress_s\":%d},"
        "\"checkpoint\":{\"uri\":\"file:///c\",\"keep_last\":3}}",
        job->name, job->min, job->max, job->plan.per_node, job->plan.needs_gpu ? "cuda" : "cpu",
        job->max_failures, job->grow_interval_sec, job->store_patience_sec, PROGRESS_SEC);
}

static char *program_text(const FleetJob *job, const char *submission)
{
    _cleanup_free_ char *file = program_file(job);
    ProgramRecord program = {.file = file};
    (void)snprintf(program.submission, sizeof(program.submission), "%s", submission);
    return program_record_encode(&program, NULL);
}

static char *train_file(const FleetJob *job)
{
    return memory_format(
        "{\"name\":\"%s\",\"kind\":\"train\",\"world\":{\"min\":%d,\"max\":%d},"
        "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
        "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/e.npy\"},"
        "\"train\":{\"global_batch\":%d,\"grain\":1,\"steps\":%lld%s},"
        "\"recovery\":{\"max_failures_at_same_step\":%d,\"grow_interval_s\":%d,"
        "\"store_patience_s\":%d},"
        "\"checkpoint\":{\"uri\":\"file:///c/\"}}",
        job->name, job->min, job->max, job->max, (long long)job->plan.steps,
        job->plan.needs_gpu ? ",\"device\":\"cuda\"" : "", job->max_failures,
        job->grow_interval_sec, job->store_patience_sec);
}

/* Returns whether the job has a record programs/<job>. */
static bool has_program(const FleetJob *job)
{
    return job->plan.program && !job->plan.measures_loss;
}

static char *spec_text(const FleetJob *job, const char *submission)
{
    SpecRecord spec = {.submitted_usec = 1};
    _cleanup_free_ char *file = job->plan.program ? program_file(job) : train_file(job);
    if (has_program(job))
        spec.program = hash_bytes(file, strlen(file));
    spec.spec = file;
    (void)snprintf(spec.submission, sizeof(spec.submission), "%s", submission);
    return spec_record_encode(&spec, NULL);
}

void fleet_submit_job(const FleetJob *job)
{
    char key[5][KEY_MAX], submission[SUBMISSION_BYTES];
    const JobBooks *books = books_job(job->name);
    (void)snprintf(submission, sizeof(submission), "%016llx%016llx",
                   (unsigned long long)network_draw(UINT64_MAX),
                   (unsigned long long)network_draw(UINT64_MAX));
    /* A job whose spec was lost keeps its old submission, which would be found in the real job's
     * checkpoint folder. */
    const char *its = books->spec_by_hand ? books->submission : submission;
    _cleanup_free_ char *text = spec_text(job, its), *program = program_text(job, its);
    _cleanup_free_ char *wish = desired_text(job, DESIRED_RUNNING, 0);
    const EtcdOp ops[] = {
        {.kind = ETCD_PUT, .key = key_of(CLUSTER, KEY_SPECS, job->name, key[0]), .value = text},
        {.kind = ETCD_PUT, .key = key_of(CLUSTER, KEY_DESIRED, job->name, key[1]), .value = wish},
        {.kind = ETCD_PUT,
         .key = key_of(CLUSTER, KEY_PROGRAMS, job->name, key[4]),
         .value = program}};
    const EtcdCompare guards[] = {
        /* the job's name is not in use */
        {ops[0].key, ETCD_MOD_REVISION, 0},
        {ops[1].key, ETCD_MOD_REVISION, 0},
        {key_of(CLUSTER, KEY_WORLDS, job->name, key[2]), ETCD_MOD_REVISION, 0},
        {key_of(CLUSTER, KEY_PHASES, job->name, key[3]), ETCD_MOD_REVISION, 0}};
    fleet_say("user: submits %s", job->name);
    trainers_plan(job->name, &job->plan);
    write_all(BOOKS_BY_PERSON, guards, ELEMENTSOF(guards), ops, job->plan.program ? 3 : 2);
}

void fleet_put_spec(const FleetJob *job, const char *submission, int64_t revision)
{
    char key[KEY_MAX];
    _cleanup_free_ char *text = spec_text(job, submission);
    char program_key[KEY_MAX];
    _cleanup_free_ char *program = program_text(job, submission);
    const EtcdCompare guard = {key_of(CLUSTER, KEY_SPECS, job->name, key), ETCD_MOD_REVISION,
                               revision};
    const EtcdOp ops[] = {{.kind = ETCD_PUT, .key = key, .value = text},
                          {.kind = ETCD_PUT,
                           .key = key_of(CLUSTER, KEY_PROGRAMS, job->name, program_key),
                           .value = program}};
    fleet_say("user: gives the file of %s back", job->name);
    write_all(BOOKS_BY_PERSON, &guard, 1, ops, has_program(job) ? 2 : 1);
}

void fleet_put_by_hand(KeyKind kind, const char *name, int64_t revision, const char *value)
{
    char key[KEY_MAX];
    const EtcdCompare guard = {key_of(CLUSTER, kind, name, key), ETCD_MOD_REVISION, revision};
    const EtcdOp op = {.kind = value ? ETCD_PUT : ETCD_DELETE, .key = key, .value = value};
    fleet_say("somebody: %s is %s %.60s", key, value ? "written over:" : "removed",
              value ? value : "");
    write_all(BOOKS_BY_HAND, &guard, 1, &op, 1);
}

/* ---- a stranger with the right to write nodes' records ---- */

static void on_stranger(_unused_ EtcdLeaseState state, _unused_ int64_t lease,
                        _unused_ void *userdata)
{
    /* nothing to do: each later write uses the present lease */
}

void fleet_let_stranger_in(void)
{
    char key[KEY_MAX];
    sd_event *previous = loop_enter(loop);
    assert(!stranger);
    int r = etcd_lease_new(admin, STRANGER_SEC, key_of(CLUSTER, KEY_NODES, "n0", key), on_stranger,
                           NULL, &stranger);
    assert(r == 0);
    (void)loop_enter(previous);
}

void fleet_send_stranger_away(void)
{
    if (!stranger)
        return;
    sd_event *previous = loop_enter(loop);
    (void)etcd_lease_revoke(stranger, NULL, NULL, NULL); /* on failure the lease expires */
    stranger = etcd_lease_free(stranger);
    (void)loop_enter(previous);
}

void fleet_forge_node(int node)
{
    char key[KEY_MAX];
    NodeRecord record;
    const char *name = fleet_node_name(node);
    const Copy *copy = copies_now(KEY_NODES, name);
    const int64_t lease = stranger ? etcd_lease_id(stranger) : 0;
    if (!copy || lease == 0 || node_record_decode("copy", copy->value, copy->n, &record, NULL) < 0)
        return;
    record.incarnation++;
    record.verdict = NODE_ISOLATE;
    record.stranger_lease = record.stranger_revision = 0;
    (void)snprintf(record.evidence, sizeof(record.evidence), "a stranger says so");
    _cleanup_free_ char *text = node_record_encode(&record, NULL);
    const EtcdOp op = {.kind = ETCD_PUT,
                       .key = key_of(CLUSTER, KEY_NODES, name, key),
                       .value = text,
                       .lease = lease};
    fleet_say("stranger: writes the record of %s", name);
    write_all(BOOKS_BY_HAND, NULL, 0, &op, 1);
}

/* ---- jobs ---- */

void fleet_submit(const char *job, int min, int max, int64_t steps)
{
    fleet_submit_job(&(FleetJob){.name = job,
                                 .min = min,
                                 .max = max,
                                 .max_failures = 3,
                                 .grow_interval_sec = 600,
                                 .store_patience_sec = 600,
                                 .plan = {.steps = steps,
                                          .save_steps = SAVE_STEPS,
                                          .step_usec = 100 * USEC_PER_MSEC,
                                          .save_usec = 20 * USEC_PER_MSEC,
                                          .restore_usec = 200 * USEC_PER_MSEC}});
}

void fleet_want(const FleetJob *job, DesiredState state, int target)
{
    static const char *const words[] = {"runs", "stops", "is deleted"};
    char key[2][KEY_MAX];
    _cleanup_free_ char *wish = desired_text(job, state, target);
    const EtcdCompare guard = {key_of(CLUSTER, KEY_SPECS, job->name, key[0]), ETCD_CREATE_REVISION,
                               /* the guard holds only if the job still exists */
                               books_job(job->name)->spec_created};
    const EtcdOp op = {.kind = ETCD_PUT,
                       .key = key_of(CLUSTER, KEY_DESIRED, job->name, key[1]),
                       .value = wish};
    fleet_say("user: %s %s, target %d", job->name, words[state], target);
    write_all(BOOKS_BY_PERSON, &guard, 1, &op, 1);
}

void fleet_cordon(int node, CordonMode mode)
{
    char key[KEY_MAX];
    const char *name = fleet_node_name(node);
    CordonRecord record = books_node(name)->cordon;
    (void)snprintf(record.node, sizeof(record.node), "%s", name);
    if (mode == CORDON_NONE)
        record.n_causes = 0;
    else
        (void)cordon_set(&record, &(CordonCause){.owner = CORDON_OPERATOR,
                                                 .mode = mode,
                                                 .since_usec = loops_now_usec()});
    _cleanup_free_ char *text = cordon_record_encode(&record, NULL);
    const EtcdOp op = {.kind = record.n_causes ? ETCD_PUT : ETCD_DELETE,
                       .key = key_of(CLUSTER, KEY_CORDONS, name, key),
                       .value = text};
    fleet_say("user: %s is %s", name, mode == CORDON_NONE ? "uncordoned" : "cordoned");
    write_all(BOOKS_BY_PERSON, NULL, 0, &op, 1);
}

void fleet_name_checkpoint(const char *evaluation, int number)
{
    char key[KEY_MAX];
    const Manifest *manifest = manifests_get(number);
    RequestRecord request = {.kind = "evaluate",
                             .at_usec = loops_now_usec(),
                             .commit = {.step = manifest->last,
                                        .generation = manifest->generation}};
    (void)snprintf(request.id, sizeof(request.id), "name-%llu",
                   (unsigned long long)(loops_now_usec() / USEC_PER_MSEC));
    (void)snprintf(request.target, sizeof(request.target), "%s", evaluation);
    (void)manifest_uri(number, request.commit.uri);
    _cleanup_free_ char *text = request_record_encode(&request, NULL);
    const EtcdOp op = {.kind = ETCD_PUT,
                       .key = key_of(CLUSTER, KEY_REQUESTS, request.id, key),
                       .value = text};
    fleet_say("user: names step %lld for %s", (long long)manifest->last, evaluation);
    write_all(BOOKS_BY_PERSON, NULL, 0, &op, 1);
}

enum { READ_SEC = 60 }; /* the limit for all attempts of a read together */

typedef struct Reading {
    char *value;
    bool is_heard;
    int r;
} Reading;

static void on_read(int r, _unused_ const Error *err, const EtcdRange *range, void *userdata)
{
    Reading *reading = userdata;
    reading->is_heard = true;
    reading->r = r;
    if (r == 0 && range->n_kvs > 0)
        reading->value = memory_bytes(range->kvs[0].value, range->kvs[0].n_value);
}

char *fleet_read(KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    Reading reading = {.r = -EAGAIN};
    const uint64_t until_usec = loops_now_usec() + READ_SEC * USEC_PER_SEC;
    while (reading.r < 0 && !books_broken()) { /* the member may have no leader for a moment */
        assert(loops_now_usec() < until_usec);
        reading.is_heard = false;
        sd_event *previous = loop_enter(loop);
        int r = etcd_get(admin, key_of(CLUSTER, kind, name, key), false, on_read, &reading, NULL);
        assert(r == 0);
        (void)loop_enter(previous);
        while (!reading.is_heard && !books_broken())
            fleet_run(loops_now_usec() + 10 * USEC_PER_MSEC);
    }
    return reading.value;
}

/* ---- open and close ---- */

void people_open(void)
{
    loop = fleet_open_process(0, 0, &admin);
    n_under_way = 0;
}

void people_close(void)
{
    stranger = etcd_lease_free(stranger);
    admin = etcd_free(admin);
    loop = sd_event_unref(loop);
}
