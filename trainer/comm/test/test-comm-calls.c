/* SPDX-License-Identifier: Apache-2.0 */
/* test-comm-calls.c - what all comms have in common: the arguments of each call, a failure that
 * stays, and abort. The test's backend records its arguments. It also tests the comm of one rank,
 * and the arithmetic of sums. */

#include "base/test/testing.h"
#include "trainer/comm/combine.h"
#include "trainer/comm/comm-backend.h"

#include <string.h>

/* ---- a backend that records its calls ---- */

enum { ALL_REDUCE = 1, REDUCE_SCATTER, ALL_GATHER, BROADCAST };

typedef struct Noted {
    int call, root, aborts, frees;
    CommType type;
    CommOp op;
    void *data, *out;
    size_t n, piece;
} Noted;

static Noted noted;
static int answer; /* returned by the backend's next call */
static Comm *aborted_meanwhile;

static int conclude(Noted now, Error *err)
{
    now.aborts = noted.aborts;
    noted = now;
    if (aborted_meanwhile)
        comm_abort(aborted_meanwhile);
    return answer < 0 ? error_set(err, answer, "the reason") : 0;
}

static int all_reduce(_unused_ Comm *comm, CommType type, CommOp op, void *data, size_t n,
                      Error *err)
{
    return conclude((Noted){.call = ALL_REDUCE, .type = type, .op = op, .data = data, .n = n}, err);
}

static int reduce_scatter(_unused_ Comm *comm, CommType type, void *data, size_t n, size_t piece,
                          void *out, Error *err)
{
    return conclude((Noted){.call = REDUCE_SCATTER,
                            .type = type,
                            .data = data,
                            .n = n,
                            .piece = piece,
                            .out = out},
                    err);
}

static int all_gather(_unused_ Comm *comm, void *data, size_t n_bytes, size_t piece_bytes,
                      Error *err)
{
    return conclude((Noted){.call = ALL_GATHER, .data = data, .n = n_bytes, .piece = piece_bytes},
                    err);
}

static int broadcast(_unused_ Comm *comm, int root, void *data, size_t n_bytes, Error *err)
{
    return conclude((Noted){.call = BROADCAST, .root = root, .data = data, .n = n_bytes}, err);
}

static void note_abort(_unused_ Comm *comm) { noted.aborts++; }

static Comm *note_free(_unused_ Comm *comm)
{
    noted.frees++;
    return NULL;
}

static const CommBackend backend = {.all_reduce = all_reduce,
                                    .reduce_scatter_dealt = reduce_scatter,
                                    .all_gather_dealt = all_gather,
                                    .broadcast = broadcast,
                                    .abort = note_abort,
                                    .free = note_free};

static Comm fresh(void)
{
    noted = (Noted){0};
    answer = 0;
    aborted_meanwhile = NULL;
    return (Comm){.backend = &backend, .rank = 2, .size = 5};
}

static char data[64], out[5 * 8];

/* call() makes the i-th call of a comm; n is 0 or the call's size. */
enum { CALLS = 5 };
static int call(Comm *comm, int i, size_t n, Error *err)
{
    switch (i) {
    case 0:
        return comm_all_reduce(comm, COMM_U32, COMM_MAX, data, n, err);
    case 1:
        return comm_reduce_scatter_dealt(comm, COMM_I64, data, n, 3, out, err);
    case 2:
        return comm_all_gather_dealt(comm, data, n, 4, err);
    case 3:
        return comm_all_gather(comm, data, out, n, err);
    default:
        return comm_broadcast(comm, 4, data, n, err);
    }
}

static const char *const call_names[CALLS] = {"all-reduce", "reduce-scatter", "all-gather",
                                              "all-gather", "broadcast"};

static void a_call_reaches_its_backend(void **state)
{
    (void)state;
    Comm comm = fresh();
    Error err = ERROR_INIT;
    assert_true(comm_rank(&comm) == 2 && comm_size(&comm) == 5);
    assert_int_equal(call(&comm, 0, 7, &err), 0);
    assert_true(noted.call == ALL_REDUCE && noted.type == COMM_U32 && noted.op == COMM_MAX);
    assert_true(noted.data == data && noted.n == 7);
    assert_int_equal(comm_all_reduce(&comm, COMM_F32, COMM_SUM, data, 1, &err), 0);
    assert_true(noted.type == COMM_F32 && noted.op == COMM_SUM && noted.n == 1);
    assert_int_equal(call(&comm, 1, 7, &err), 0);
    assert_true(noted.call == REDUCE_SCATTER && noted.type == COMM_I64 && noted.n == 7);
    assert_true(noted.data == data && noted.piece == 3 && noted.out == out);
    assert_int_equal(call(&comm, 2, 7, &err), 0);
    assert_true(noted.call == ALL_GATHER && noted.data == data && noted.n == 7 && noted.piece == 4);
    assert_int_equal(call(&comm, 4, 7, &err), 0);
    assert_true(noted.call == BROADCAST && noted.root == 4 && noted.data == data && noted.n == 7);
}

static void what_a_rank_brings_to_a_gather_lies_in_its_place(void **state)
{
    (void)state;
    Comm comm = fresh();
    Error err = ERROR_INIT;
    memset(out, '.', sizeof(out));
    memcpy(data, "abcdefgh", 8);
    assert_int_equal(call(&comm, 3, 8, &err), 0);
    assert_true(noted.call == ALL_GATHER && noted.data == out && noted.n == 40 && noted.piece == 8);
    assert_memory_equal(out, "................abcdefgh................", 40);
    /* the input is already at its place in `out` */
    assert_int_equal(comm_all_gather(&comm, out + 2 * 8, out, 8, &err), 0);
    assert_memory_equal(out, "................abcdefgh................", 40);
}

static void nothing_to_do_is_done(void **state)
{
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        Comm comm = fresh();
        Error err = ERROR_INIT;
        answer = -EIO;
        assert_int_equal(call(&comm, i, 0, &err), 0);
        assert_int_equal(noted.call, 0);
        comm_abort(&comm); /* an empty call fails, too, after an abort */
        assert_int_equal(call(&comm, i, 0, &err), -ECANCELED);
    }
}

static void a_failure_stays(void **state)
{
    (void)state;
    for (int i = 0; i < CALLS; i++) {
        Comm comm = fresh();
        Error err = ERROR_INIT;
        char text[96];
        answer = -ETIMEDOUT;
        assert_int_equal(call(&comm, i, 2, &err), -ETIMEDOUT);
        (void)snprintf(text, sizeof(text), "%s: rank 2 of 5: the reason", call_names[i]);
        assert_string_equal(err.text, text);
        answer = 0;
        for (int k = 0; k < CALLS; k++) {
            noted.call = 0;
            assert_int_equal(call(&comm, k, 2 * (k % 2), &err), -ETIMEDOUT);
            assert_int_equal(noted.call, 0);
            (void)snprintf(text, sizeof(text), "%s: the comm failed before: the reason",
                           call_names[k]);
            assert_string_equal(err.text, text);
        }
    }
}

static void an_abort_is_told_apart(void **state)
{
    (void)state;
    Comm comm = fresh();
    Error err = ERROR_INIT;
    comm_abort(&comm);
    assert_int_equal(noted.aborts, 1);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(call(&comm, i, 2, &err), -ECANCELED);
        assert_non_null(strstr(err.text, "the comm was aborted"));
        assert_non_null(strstr(err.text, call_names[i]));
    }
    assert_int_equal(noted.call, 0);
    /* an abort during the call: the call's failure is reported as -ECANCELED */
    for (int i = 0; i < CALLS; i++) {
        Comm other = fresh();
        answer = -ECONNRESET;
        aborted_meanwhile = &other;
        assert_int_equal(call(&other, i, 2, &err), -ECANCELED);
        assert_int_equal(noted.aborts, 1);
    }
    Comm done = fresh(); /* an abort does not change the result of a call that has succeeded */
    aborted_meanwhile = &done;
    assert_int_equal(call(&done, 0, 2, &err), 0);
    assert_int_equal(call(&done, 0, 2, &err), -ECANCELED);
}

static void a_comm_is_freed_by_its_backend(void **state)
{
    (void)state;
    Comm comm = fresh();
    assert_null(comm_free(NULL));
    assert_int_equal(noted.frees, 0);
    assert_null(comm_free(&comm));
    assert_int_equal(noted.frees, 1);
}

/* ---- one rank ---- */

static void one_rank_has_everything(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    Comm *comm = NULL;
    int64_t a[3] = {1, -2, 3}, b[3] = {0};
    assert_int_equal(comm_open_self(&comm, &err), 0);
    assert_true(comm_rank(comm) == 0 && comm_size(comm) == 1);
    assert_int_equal(comm_all_reduce(comm, COMM_I64, COMM_SUM, a, 3, &err), 0);
    assert_int_equal(comm_all_gather_dealt(comm, a, sizeof(a), 8, &err), 0);
    assert_int_equal(comm_broadcast(comm, 0, a, sizeof(a), &err), 0);
    assert_int_equal(comm_reduce_scatter_dealt(comm, COMM_I64, a, 3, 1, NULL, &err), 0);
    assert_true(a[0] == 1 && a[1] == -2 && a[2] == 3);
    assert_int_equal(comm_reduce_scatter_dealt(comm, COMM_I64, a, 3, 2, b, &err), 0);
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(comm_all_gather(comm, a, b, sizeof(a), &err), 0);
    assert_memory_equal(a, b, sizeof(a));
    comm_abort(comm);
    assert_int_equal(comm_broadcast(comm, 0, a, sizeof(a), &err), -ECANCELED);
    assert_null(comm_free(comm));
}

/* ---- sums ---- */

/* Combines ranges of every length from 0 to 80 elements, at every alignment within a vector
 * register. The memory before and after a range stays unchanged. */
static void each_element_is_combined_and_no_other(void **state)
{
    (void)state;
    enum { N = 80, PAD = 17 };
    static const struct {
        CommType type;
        CommOp op;
    } kinds[] = {{COMM_I32, COMM_SUM},
                 {COMM_U32, COMM_SUM},
                 {COMM_U32, COMM_MAX},
                 {COMM_I64, COMM_SUM},
                 {COMM_F32, COMM_SUM}};
    for (size_t k = 0; k < ELEMENTSOF(kinds); k++) {
        const size_t bytes = comm_type_bytes(kinds[k].type);
        assert_int_equal(bytes, kinds[k].type == COMM_I64 ? sizeof(int64_t) : sizeof(int32_t));
        for (size_t n = 0; n <= N; n++) {
            union {
                uint32_t u32[N + 2 * PAD];
                uint64_t u64[N + 2 * PAD];
                float f32[N + 2 * PAD];
                char bytes[8 * (N + 2 * PAD)];
            } into, from, before;
            for (size_t i = 0; i < ELEMENTSOF(into.u64); i++) {
                into.u64[i] = (i * 2 + 1) * UINT64_C(0x9e3779b97f4a7c15);
                from.u64[i] = (i * 2 + 9) * UINT64_C(0xbf58476d1ce4e5b9);
            }
            for (size_t i = 0; kinds[k].type == COMM_F32 && i < ELEMENTSOF(into.f32); i++) {
                into.f32[i] = (float)i / 3;
                from.f32[i] = -1 / (float)(i + 1);
            }
            before = into;
            const size_t at = n % PAD;
            combine(kinds[k].type, kinds[k].op, into.bytes + at * bytes, from.bytes + at * bytes,
                    n);
            for (size_t i = 0; i < N + 2 * PAD; i++) {
                const bool changes = i >= at && i < at + n;
                if (!changes)
                    assert_memory_equal(into.bytes + i * bytes, before.bytes + i * bytes, bytes);
                else if (kinds[k].op == COMM_MAX)
                    assert_int_equal(into.u32[i], MAX(before.u32[i], from.u32[i]));
                else if (kinds[k].type == COMM_F32)
                    assert_true(into.f32[i] == before.f32[i] + from.f32[i]);
                else if (bytes == 8)
                    assert_true(into.u64[i] == before.u64[i] + from.u64[i]);
                else
                    assert_int_equal(into.u32[i], before.u32[i] + from.u32[i]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_reaches_its_backend),
        cmocka_unit_test(what_a_rank_brings_to_a_gather_lies_in_its_place),
        cmocka_unit_test(nothing_to_do_is_done),
        cmocka_unit_test(a_failure_stays),
        cmocka_unit_test(an_abort_is_told_apart),
        cmocka_unit_test(a_comm_is_freed_by_its_backend),
        cmocka_unit_test(one_rank_has_everything),
        cmocka_unit_test(each_element_is_combined_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
