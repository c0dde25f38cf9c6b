/* SPDX-License-Identifier: Apache-2.0 */
/* test-peers.c - a peer sends messages that a correct peer never sends: the error names the rank, and no memory is read
 * or written out of bounds, which the sanitizers check. */
#include "base/test/testing.h"
#include "trainer/checkpoint/put.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/comm/test/testing-peers.h"
#include "trainer/state/update.h"

#include <string.h>

enum { STEP = 5, OTHER_MAX = 64 };

/* The messages of the collectives of a save, as in save.c. */
typedef struct PlanMessage {
    Error error;
    PutPlan plan;
} PlanMessage;

typedef struct OutcomeMessage {
    Error error;
    Hash hash, digest;
} OutcomeMessage;

static char folder[] = "/tmp/test-peers-XXXXXX";
static Fixture fixture;

typedef struct Peer Peer;
struct Peer {
    CheckpointWriter *writer;
    int rank; /* the peer's rank */
    void (*lie_in_plan)(PlanMessage *plan);
    void (*lie_in_report)(WriterReport *report, size_t n_bytes);
    void (*lie_in_outcome)(OutcomeMessage *outcome);
};

/* Fills in the report of a peer that wrote all of its part. */
static void report_honestly(const Peer *peer, WriterReport *report)
{
    const ObjectTable *table = writer_table(peer->writer);
    report->step = STEP;
    for (size_t i = 0; i < table->n_records; i++) {
        const ObjectRecord *o = &table->records[i];
        if (object_owner(table, o, 2) != peer->rank)
            continue;
        uint64_t n_bytes = (uint64_t)o->count * sizeof(float);
        n_bytes = o->kind == OBJECT_MOMENTS ? 2 * n_bytes : n_bytes + 100;
        report->objects[report->n_objects++] =
            (ObjectReport){.index = i, .n_bytes = n_bytes, .hash = {7, i}, .chunk = {8, i}};
    }
}

static int play_save(void *arg, PlayedCall call, void *data, size_t n_bytes, size_t own_bytes)
{
    const Peer *peer = arg;
    if (call == PLAYED_ALL_GATHER && own_bytes == peer->writer->report_bytes) {
        WriterReport *report = (WriterReport *)((char *)data + (size_t)peer->rank * own_bytes);
        memset(report, 0, own_bytes);
        report_honestly(peer, report);
        if (peer->lie_in_report)
            peer->lie_in_report(report, own_bytes);
    }
    if (call == PLAYED_BROADCAST && n_bytes == sizeof(PlanMessage)) {
        PlanMessage *plan = data;
        *plan = (PlanMessage){.plan.name = {.step = STEP, .generation = 1, .attempt = 77}};
        if (peer->lie_in_plan)
            peer->lie_in_plan(plan);
    }
    if (call == PLAYED_BROADCAST && n_bytes == sizeof(OutcomeMessage)) {
        OutcomeMessage *outcome = data;
        *outcome = (OutcomeMessage){.hash = {1, 2}, .digest = {3, 4}};
        if (peer->lie_in_outcome)
            peer->lie_in_outcome(outcome);
    }
    return 0;
}

/* Saves as the rank that is not peer.rank, in a world of two ranks; the messages of peer.rank are played. */
static CheckpointResult save_beside(Peer peer)
{
    Error err = ERROR_INIT;
    Play play = {play_save, &peer};
    char uri[128];
    (void)snprintf(uri, sizeof(uri), "%s/store", folder);
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(comm_freep) Comm *comm = NULL;
    assert_int_equal(store_open(uri, &store, &err), 0);
    assert_int_equal(comm_open_played(1 - peer.rank, 2, &play, &comm, &err), 0);
    _cleanup_(train_state_freep) TrainState *state =
        testing_state(&fixture, STEP, 1 - peer.rank, 2, 1, false);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, 1, 0);
    peer.writer = writer;
    CheckpointResult result = testing_save(writer, state, 1, 1);
    if (writer->written)
        checkpoint_settle(writer, false);
    char command[256];
    (void)snprintf(command, sizeof(command), "rm -rf %s/store", folder);
    assert_int_equal(system(command), 0);
    return result;
}

static void assert_refused(CheckpointResult result, int code, const char *what)
{
    assert_int_equal(result.phase, CHECKPOINT_FAILED);
    assert_true(memchr(result.error.text, '\0', sizeof(result.error.text)) != NULL);
    if (result.error.code != code || !strstr(result.error.text, what))
        fail_msg("%d, %s: wanted %d, %s", result.error.code, result.error.text, code, what);
}

static void more_objects(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->n_objects = 1 << 20;
}
static void endless_objects(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->n_objects = INT64_MAX;
}
static void negative_objects(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->n_objects = -1;
}
static void far_index(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->objects[0].index = UINT64_C(1) << 60;
}
static void anothers_object(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->objects[0].index = 0; /* the config is rank 0's */
}
static void twice(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->objects[report->n_objects++] = report->objects[0];
}
static void no_bytes(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->objects[0].n_bytes = 0;
}
static void wrong_bytes(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->objects[report->n_objects - 1].n_bytes++;
}
static void endless_text(WriterReport *report, size_t n_bytes)
{
    memset(report, 'x', n_bytes);
    report->error.code = -EIO;
}
static void control_text(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->error = (Error){.code = -EIO, .text = "a\033[2Jb"};
}
static void positive_code(WriterReport *report, size_t n_bytes)
{
    (void)n_bytes;
    report->error.code = 5;
}

static void a_peers_report_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(save_beside((Peer){.rank = 1}).phase, CHECKPOINT_WRITTEN);
    static const struct {
        void (*lie)(WriterReport *report, size_t n_bytes);
        int code;
        const char *what;
    } lies[] = {
        {more_objects, -EPROTO, "rank 1 reports 1048576 objects"},
        {endless_objects, -EPROTO, "rank 1 reports 9223372036854775807 objects"},
        {negative_objects, -EPROTO, "rank 1 reports -1 objects"},
        {far_index, -EPROTO, "rank 1 reports object 1152921504606846976"},
        {anothers_object, -EPROTO, "rank 1 reports object 0"},
        {twice, -EPROTO, "rank 1 reports"},
        {no_bytes, -EPROTO, "with 0 bytes"},
        {wrong_bytes, -EPROTO, "rank 1 reports object"},
        {endless_text, -EIO, "rank 1: xxx"},
        {control_text, -EIO, "rank 1: a?[2Jb"},
        {positive_code, -EPROTO, "rank 1: "},
    };
    for (size_t i = 0; i < ELEMENTSOF(lies); i++)
        assert_refused(save_beside((Peer){.rank = 1, .lie_in_report = lies[i].lie}), lies[i].code,
                       lies[i].what);
}

static void other_step(PlanMessage *m) { m->plan.name.step = STEP + 1; }
static void other_generation(PlanMessage *m) { m->plan.name.generation = -1; }
static void outside(PlanMessage *m)
{
    (void)snprintf(m->plan.committed[0], sizeof(m->plan.committed[0]), "../../etc");
}
static void endless_name(PlanMessage *m)
{
    memset(m->plan.committed, 's', sizeof(m->plan.committed));
}
static void endless_plan_text(PlanMessage *m)
{
    memset(m, 'x', sizeof(*m));
    m->error.code = -ENOSPC;
}
static void endless_outcome_text(OutcomeMessage *m)
{
    memset(m, 'x', sizeof(*m));
    m->error.code = -ENOSPC;
}

static void rank_0s_plan_and_outcome_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(save_beside((Peer){.rank = 0}).phase, CHECKPOINT_WRITTEN);
    static const struct {
        void (*in_plan)(PlanMessage *plan);
        void (*in_outcome)(OutcomeMessage *outcome);
        int code;
        const char *what;
    } lies[] = {
        {other_step, NULL, -EPROTO, "rank 0 saves step 6"},
        {other_generation, NULL, -EPROTO, "rank 0 saves step 5 of generation -1"},
        {outside, NULL, -EPROTO, "no checkpoint's name"},
        {endless_name, NULL, -EPROTO, "no checkpoint's name"},
        {endless_plan_text, NULL, -ENOSPC, "xxx"},
        {NULL, endless_outcome_text, -ENOSPC, "xxx"},
    };
    for (size_t i = 0; i < ELEMENTSOF(lies); i++) {
        CheckpointResult result = save_beside((
            Peer){.rank = 0, .lie_in_plan = lies[i].in_plan, .lie_in_outcome = lies[i].in_outcome});
        /* A correct rank 0 would receive this rank's error and report it; this rank 0 reports success. */
        if (lies[i].in_plan && result.phase == CHECKPOINT_WRITTEN)
            fail_msg("case %zu: a save that this rank refused counts as written", i);
        assert_refused(result, lies[i].code, lies[i].what);
    }
}

/* ---- the verdict on a step ---- */

typedef struct GrainMessage { /* as in update.c */
    double loss;
    int64_t bad;
} GrainMessage;

typedef struct Verdict {
    int64_t bad;
    uint32_t maximum;
} Verdict;

static int play_update(void *arg, PlayedCall call, void *data, size_t n_bytes, size_t own_bytes)
{
    const Verdict *peer = arg;
    (void)n_bytes;
    if (call == PLAYED_ALL_REDUCE && peer->maximum)
        *(uint32_t *)data = peer->maximum;
    if (call == PLAYED_ALL_GATHER)
        *(GrainMessage *)((char *)data + own_bytes) = (GrainMessage){0.5, peer->bad};
    return 0;
}

static int decide_beside(Verdict peer, UpdateVerdict *ret, Error *err)
{
    Job job = {.train = {.n_grains = 2, .grain = 1, .global_batch = 2, .steps = 10}};
    Play play = {play_update, &peer};
    _cleanup_(comm_freep) Comm *comm = NULL;
    assert_int_equal(comm_open_played(0, 2, &play, &comm, err), 0);
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, STEP, 0, 2, 1, false);
    /* the update borrows the state, so the update is freed before the state */
    _cleanup_(update_freep) Update *update = NULL;
    state->scalars.n_maxima = state->scalars.n_accepted = 0;
    assert_int_equal(update_new(state, comm, NULL, &job, &update, err), 0);
    UpdateResult result;
    update_begin(update);
    /* the grain's gradients and loss are 0 */
    assert_int_equal(update_add_grain(update, 0, true, err), 0);
    assert_int_equal(update_collect(update, err), 0);
    return update_decide(update, ret, &result, err);
}

static void a_peers_verdict_is_bounded(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    UpdateVerdict verdict;
    assert_int_equal(decide_beside((Verdict){.bad = -1}, &verdict, &err), 0);
    assert_int_equal(decide_beside((Verdict){.bad = 1}, &verdict, &err), 0);
    assert_int_equal(verdict, UPDATE_NON_FINITE);
    static const int64_t beyond[] = {INT64_C(1) << 40, INT64_MAX, -3, INT64_MIN, 4};
    for (size_t i = 0; i < ELEMENTSOF(beyond); i++) {
        assert_int_equal(decide_beside((Verdict){.bad = beyond[i]}, &verdict, &err), -EPROTO);
        assert_non_null(strstr(err.text, "rank 1 says that tensor"));
    }
    assert_int_equal(decide_beside((Verdict){.bad = -1, .maximum = UINT32_MAX}, &verdict, &err),
                     -EPROTO);
    assert_int_equal(decide_beside((Verdict){.bad = -1, .maximum = 0x7f800000}, &verdict, &err),
                     -EPROTO);
}

static int setup(void **unused)
{
    (void)unused;
    assert_non_null(mkdtemp(folder));
    fixture_open(FIXTURE_SMALL, &fixture);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    fixture_close(&fixture);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peers_report_is_bounded),
        cmocka_unit_test(rank_0s_plan_and_outcome_are_bounded),
        cmocka_unit_test(a_peers_verdict_is_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
