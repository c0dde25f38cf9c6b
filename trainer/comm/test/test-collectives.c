/* SPDX-License-Identifier: Apache-2.0 */
/* test-collectives.c - gloo.c at the bounds of its tables: worlds of 2 to 16,384 ranks, of which one is real and the
 * others are played (testing-mesh.h).
 *
 * The real rank gets the right data. Each message that it sends equals the message that the receiver expects in
 * the run in which that receiver is the real rank. */

#include "base/clock.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "trainer/comm/test/testing-mesh.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_ALL_REDUCE, KIND_SCATTER, KIND_SCATTER_OUT, KIND_GATHER, KIND_BROADCAST };

/* n and piece count elements; for a gather and a broadcast they count bytes. For a broadcast, piece
 * is the root. */
typedef struct Step {
    int kind;
    CommType type;
    CommOp op;
    size_t n, piece;
} Step;

/* ---- counting allocations, by the linker's --wrap ---- */

static long n_allocated;

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t n_bytes);
void *__real_realloc(void *p, size_t n_bytes);
void *__real_reallocarray(void *p, size_t n, size_t n_bytes);
void __real_free(void *p);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *p, size_t n_bytes);
void *__wrap_reallocarray(void *p, size_t n, size_t n_bytes);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n_bytes)
{
    n_allocated++;
    return __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    n_allocated++;
    return __real_calloc(n, n_bytes);
}

void *__wrap_realloc(void *p, size_t n_bytes)
{
    n_allocated += !p;
    return __real_realloc(p, n_bytes);
}

void *__wrap_reallocarray(void *p, size_t n, size_t n_bytes)
{
    n_allocated += !p;
    return __real_reallocarray(p, n, n_bytes);
}

void __wrap_free(void *p)
{
    n_allocated -= p != NULL;
    __real_free(p);
}

/* ---- the step in progress ---- */

static struct {
    Step step;
    int rank, size;
    size_t bytes;  /* bytes of an element */
    size_t *taken; /* [size] elements that each peer has sent so far for this rank's sums */
    char *data;
} now;

static bool carries_bytes(const Step *step)
{
    return step->kind == KIND_GATHER || step->kind == KIND_BROADCAST;
}

static size_t piece_of(const Step *step, int size)
{
    if (step->kind == KIND_ALL_REDUCE)
        return DIV_ROUND_UP(step->n, (size_t)size);
    return step->kind == KIND_BROADCAST ? 1 : step->piece;
}

/* Returns whether the all-reduce is small: one message from each rank contains all its data. */
static bool is_small(const Step *step, int size)
{
    const size_t n_bytes = step->n * comm_type_bytes(step->type);
    return step->kind == KIND_ALL_REDUCE && n_bytes <= 16384 && n_bytes * (size_t)size <= 4 << 20;
}

static uint32_t word_of(int rank, size_t i)
{
    uint64_t x = ((uint64_t)rank << 40 | i) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)((x ^ x >> 29) * UINT64_C(0x94d049bb133111eb) >> 32);
}

typedef union Value {
    uint8_t byte;
    uint32_t u32;
    uint64_t u64;
    float f32;
    char bytes[8];
} Value;

static Value value_of(const Step *step, int rank, size_t i)
{
    const uint32_t word = word_of(rank, i);
    if (carries_bytes(step))
        return (Value){.byte = (uint8_t)word};
    if (step->type == COMM_I64)
        return (Value){.u64 = (uint64_t)word << 29 | (uint64_t)rank};
    if (step->type == COMM_F32)
        return (Value){.f32 = (float)word / (float)(1 << (word & 15))};
    return (Value){.u32 = word};
}

static Value add(const Step *step, Value a, Value b)
{
    if (step->op == COMM_MAX)
        return (Value){.u32 = MAX(a.u32, b.u32)};
    if (step->type == COMM_I64)
        return (Value){.u64 = a.u64 + b.u64};
    return step->type == COMM_F32 ? (Value){.f32 = a.f32 + b.f32} : (Value){.u32 = a.u32 + b.u32};
}

static int owner_of(const Step *step, int size, size_t i)
{
    return (int)(i / piece_of(step, size) % (size_t)size);
}

/* Returns the expected sum, in the order of addition that gloo.c promises. */
static Value sum_of(const Step *step, int size, size_t i)
{
    const int first = is_small(step, size) ? 0 : owner_of(step, size, i);
    Value sum = value_of(step, first, i);
    for (int k = 1; k < size; k++)
        sum = add(step, sum, value_of(step, (first + k) % size, i));
    return sum;
}

/* Returns the index of the k-th element that a rank owns. */
static size_t own_element(const Step *step, int rank, int size, size_t k)
{
    const size_t piece = piece_of(step, size);
    return (k / piece * (size_t)size + (size_t)rank) * piece + k % piece;
}

static void fill(int peer, char *memory, size_t n_bytes)
{
    const Step *step = &now.step;
    const size_t n = n_bytes / now.bytes;
    const bool in_data = memory >= now.data && memory < now.data + step->n * now.bytes;
    const size_t first = in_data ? (size_t)(memory - now.data) / now.bytes : 0;
    assert_int_equal(n_bytes % now.bytes, 0);
    for (size_t i = 0; i < n; i++) {
        Value v;
        if (step->kind == KIND_BROADCAST) {
            assert_true(in_data && peer == (int)step->piece);
            v = value_of(step, peer, first + i);
        } else if (in_data) {
            assert_true(step->kind == KIND_GATHER || step->kind == KIND_ALL_REDUCE);
            assert_int_equal(owner_of(step, now.size, first + i), peer);
            v = carries_bytes(step) ? value_of(step, peer, first + i)
                                    : sum_of(step, now.size, first + i);
        } else if (is_small(step, now.size)) {
            assert_int_equal(n, step->n);
            v = value_of(step, peer, i);
        } else {
            const size_t own = own_element(step, now.rank, now.size, now.taken[peer]++);
            assert_true(own < step->n);
            v = value_of(step, peer, own);
        }
        memcpy(memory + i * now.bytes, v.bytes, now.bytes);
    }
}

static Value initial(const Step *step, size_t i)
{
    const bool unknown = (step->kind == KIND_GATHER && owner_of(step, now.size, i) != now.rank) ||
                         (step->kind == KIND_BROADCAST && now.rank != (int)step->piece);
    return unknown ? (Value){.u64 = UINT64_C(0xeeeeeeeeeeeeeeee)} : value_of(step, now.rank, i);
}

static void check(const Step *step, const char *data, const char *out)
{
    const bool scatters = step->kind == KIND_SCATTER || step->kind == KIND_SCATTER_OUT;
    size_t n_own = 0;
    for (size_t i = 0; i < step->n; i++) {
        const bool own = owner_of(step, now.size, i) == now.rank;
        if (scatters && !own)
            continue;
        const char *at =
            step->kind == KIND_SCATTER_OUT ? out + n_own * now.bytes : data + i * now.bytes;
        const Value wanted = step->kind == KIND_GATHER
                                 ? value_of(step, owner_of(step, now.size, i), i)
                             : step->kind == KIND_BROADCAST ? value_of(step, (int)step->piece, i)
                                                            : sum_of(step, now.size, i);
        n_own += own;
        if (memcmp(at, wanted.bytes, now.bytes) != 0)
            fail_msg("kind %d, %zu of %zu (%zu), rank %d of %d", step->kind, i, step->n,
                     step->piece, now.rank, now.size);
    }
}

static int call(Comm *comm, const Step *step, char *out, Error *err)
{
    switch (step->kind) {
    case KIND_ALL_REDUCE:
        return comm_all_reduce(comm, step->type, step->op, now.data, step->n, err);
    case KIND_SCATTER:
        return comm_reduce_scatter_dealt(comm, step->type, now.data, step->n, step->piece, NULL,
                                         err);
    case KIND_SCATTER_OUT:
        return comm_reduce_scatter_dealt(comm, step->type, now.data, step->n, step->piece, out,
                                         err);
    case KIND_GATHER:
        return comm_all_gather_dealt(comm, now.data, step->n, step->piece, err);
    default:
        return comm_broadcast(comm, (int)step->piece, now.data, step->n, err);
    }
}

#define CALL_USEC (3 * USEC_PER_SEC)

static int run_step(Comm *comm, const Step *step, Error *err)
{
    now.step = *step;
    now.bytes = carries_bytes(step) ? 1 : comm_type_bytes(step->type);
    now.taken = calloc((size_t)now.size, sizeof(*now.taken));
    const size_t n_out = step->kind == KIND_SCATTER_OUT
                             ? (step->n / step->piece / (size_t)now.size + 1) * step->piece
                             : 1;
    _cleanup_free_ char *data = malloc(step->n * now.bytes), *out = malloc(n_out * now.bytes);
    assert_true(data && out && now.taken);
    for (size_t i = 0; i < step->n; i++)
        memcpy(data + i * now.bytes, initial(step, i).bytes, now.bytes);
    now.data = data;
    mesh.least_deadline = UINT64_MAX;
    mesh.most_deadline = 0;
    const size_t before = mesh.n_messages;
    const uint64_t begun = clock_boottime_usec();
    int r = call(comm, step, out, err);
    if (mesh.most_deadline > 0)
        assert_true(mesh.least_deadline == mesh.most_deadline &&
                    mesh.least_deadline >= begun + CALL_USEC &&
                    mesh.least_deadline <= clock_boottime_usec() + CALL_USEC);
    if (r == 0) {
        check(step, data, out);
        assert_int_equal(mesh.n_waiting, 0);
        assert_true(mesh.n_messages > before || step->kind != KIND_ALL_REDUCE);
    }
    assert_int_equal(mesh.n_buffers, 0);
    free(now.taken);
    return r;
}

static int open_rank(int rank, int size, Comm **ret, Error *err)
{
    mesh_reset();
    mesh.fill = fill;
    now.rank = rank;
    now.size = size;
    for (int peer = 0; peer < rank; peer++) {
        char name[MESH_NAME], address[MESH_NAME];
        (void)snprintf(name, sizeof(name), "g7/test/%d", peer); /* the text fits */
        mesh_address(peer, address);
        mesh_publish(name, address);
    }
    const CommOptions options = {.rank = rank,
                                 .size = size,
                                 .rendezvous = "store:1",
                                 .prefix = "g7/test",
                                 .bind_address = "10.0.0.1",
                                 .key = {.generation = 7},
                                 .connect_usec = CALL_USEC,
                                 .timeout_usec = CALL_USEC};
    return comm_open_gloo(&options, ret, err);
}

/* Sorts the messages with one peer by slot. */
static int compare_slots(const void *a, const void *b)
{
    const MeshMessage *x = a, *y = b;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static MeshMessage *messages_with(int peer, bool sent, size_t *ret_n)
{
    MeshMessage *found = calloc(mesh.n_messages + 1, sizeof(*found));
    assert_non_null(found);
    size_t n = 0;
    for (size_t i = 0; i < mesh.n_messages; i++)
        if (mesh.messages[i].peer == peer && mesh.messages[i].sent == sent)
            found[n++] = mesh.messages[i];
    qsort(found, n, sizeof(*found), compare_slots);
    /* a slot that is used twice could mix up two messages */
    for (size_t i = 1; i < n; i++)
        assert_true(found[i].slot > found[i - 1].slot);
    *ret_n = n;
    return found;
}

/* run_rank() does all steps as one rank. It returns the messages, in both directions, between that
 * rank and each rank of `some`. */
enum { SOME_MAX = 5 };
typedef struct Passed {
    MeshMessage *list[SOME_MAX][2];
    size_t n[SOME_MAX][2];
} Passed;

static void run_rank(int rank, int size, const Step *steps, size_t n_steps, const int *some,
                     size_t n_some, bool late, Passed *ret)
{
    Error err = ERROR_INIT;
    Comm *comm = NULL;
    const long before = n_allocated;
    if (open_rank(rank, size, &comm, &err) < 0)
        fail_msg("%s", err.text);
    mesh.late = late;
    for (size_t i = 0; i < n_steps; i++)
        if (run_step(comm, &steps[i], &err) < 0)
            fail_msg("%s", err.text);
    comm = comm_free(comm);
    assert_int_equal(mesh.n_meshes, 0);
    for (size_t i = 0; ret && i < n_some; i++)
        for (int sent = 0; sent < 2; sent++)
            ret->list[i][sent] = messages_with(some[i], sent, &ret->n[i][sent]);
    if (!ret) {
        mesh_reset();
        assert_int_equal(n_allocated, before);
    }
}

/* Checks, for each two ranks of `some`, that one rank sends exactly the messages that the other
 * rank receives. */
static void run_world(int size, const Step *steps, size_t n_steps, bool late)
{
    const int all[SOME_MAX] = {0, 1, size / 2, size - 2, size - 1};
    int some[SOME_MAX];
    size_t n_some = 0;
    for (size_t i = 0; i < SOME_MAX; i++)
        if (n_some == 0 || all[i] > some[n_some - 1])
            some[n_some++] = all[i];
    Passed passed[SOME_MAX] = {0};
    for (size_t i = 0; i < n_some; i++)
        run_rank(some[i], size, steps, n_steps, some, n_some, late, &passed[i]);
    for (size_t i = 0; i < n_some; i++)
        for (size_t k = 0; k < n_some; k++) {
            const MeshMessage *sent = passed[i].list[k][1], *received = passed[k].list[i][0];
            assert_int_equal(passed[i].n[k][1], passed[k].n[i][0]);
            for (size_t j = 0; j < passed[i].n[k][1]; j++)
                if (sent[j].slot != received[j].slot || sent[j].n_bytes != received[j].n_bytes ||
                    sent[j].hash != received[j].hash)
                    fail_msg("message %zu from rank %d to rank %d of %d", j, some[i], some[k],
                             size);
        }
    for (size_t i = 0; i < n_some; i++)
        for (size_t k = 0; k < n_some; k++)
            for (int sent = 0; sent < 2; sent++)
                free(passed[i].list[k][sent]);
    mesh_reset();
}

/* ---- tests ---- */

static void worlds_of_any_size_agree(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 5, 64, 257, 1025};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
        const size_t size = (size_t)sizes[i];
        const Step steps[] = {
            {KIND_ALL_REDUCE, COMM_U32, COMM_MAX, 1, 0},
            {KIND_ALL_REDUCE, COMM_I64, COMM_SUM, 3, 0},
            {KIND_ALL_REDUCE, COMM_F32, COMM_SUM, 4097, 0},
            {KIND_ALL_REDUCE, COMM_U32, COMM_MAX, 4500 + size, 0},
            {KIND_SCATTER, COMM_I32, COMM_SUM, 3 * size, 1},
            {KIND_SCATTER_OUT, COMM_F32, COMM_SUM, 2 * size * 3 - 1, 3},
            {KIND_SCATTER_OUT, COMM_I64, COMM_SUM, 5, 7},
            {KIND_SCATTER, COMM_I32, COMM_SUM, size + 1, 2},
            {KIND_GATHER, COMM_I32, COMM_SUM, 1, 1},
            {KIND_GATHER, COMM_I32, COMM_SUM, 100 * size + 1, 1},
            {KIND_GATHER, COMM_I32, COMM_SUM, 3 * size * 5 - 4, 5},
            {KIND_BROADCAST, COMM_I32, COMM_SUM, 1001, size - 1},
            {KIND_BROADCAST, COMM_I32, COMM_SUM, 7, 0},
        };
        run_world(sizes[i], steps, ELEMENTSOF(steps), false);
        if (size < 300)
            run_world(sizes[i], steps, ELEMENTSOF(steps), true);
    }
}

/* The scratch memory of one exchange suffices for 16 KiB of each of 256 ranks, or for 4,096 bytes
 * of each of 1,024 ranks. */
static void the_small_exchange_ends_where_its_memory_does(void **state)
{
    (void)state;
    static const struct {
        int size;
        size_t n;
    } cases[] = {{2, 4096},   {2, 4097},    {256, 4096},  {257, 4080}, {257, 4081},
                 {257, 4096}, {1024, 1024}, {1025, 1023}, {1025, 1024}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const Step step = {KIND_ALL_REDUCE, COMM_F32, COMM_SUM, cases[i].n, 0};
        run_world(cases[i].size, &step, 1, false);
    }
}

/* The blocks of all peers fit into a comm's scratch memory, however many peers there are. The real
 * rank is rank 1, so that rank 0's block is at the beginning of that memory. */
static void blocks_of_all_ranks_have_room(void **state)
{
    (void)state;
    static const int sizes[] = {2, 5, 33, 1024, 1025, 2049, 16384};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
        Error err = ERROR_INIT;
        Comm *comm = NULL;
        const Step step = {KIND_SCATTER_OUT, COMM_F32, COMM_SUM, 2 * 70000 + 5, 70000};
        const Step few = {KIND_SCATTER_OUT, COMM_F32, COMM_SUM, 2 * 1030 + 5, 1030};
        if (open_rank(1, sizes[i], &comm, &err) < 0)
            fail_msg("%s", err.text);
        if (run_step(comm, sizes[i] > 1000 ? &few : &step, &err) < 0)
            fail_msg("%s", err.text);
        const size_t wanted = (size_t)(mesh.highest - mesh.lowest);
        assert_in_range(wanted, 1, malloc_usable_size(mesh.lowest));
        comm = comm_free(comm);
    }
    mesh_reset();
}

/* Many blocks are in flight at once, up to the bound: they are sent neither one by one nor all
 * together. */
static void so_many_messages_are_under_way(void **state)
{
    (void)state;
    static const struct {
        Step step;
        size_t under_way; /* messages in flight from one peer */
    } cases[] = {
        {{KIND_GATHER, COMM_I32, COMM_SUM, 1000, 1}, 64 / 2},
        {{KIND_SCATTER, COMM_F32, COMM_SUM, 1000, 1}, 16},
        {{KIND_SCATTER, COMM_F32, COMM_SUM, 4 << 20, 1 << 20}, 8}, /* blocks of 256 KiB */
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        Comm *comm = NULL;
        assert_int_equal(open_rank(1, 2, &comm, &err), 0);
        assert_int_equal(run_step(comm, &cases[i].step, &err), 0);
        assert_int_equal(mesh.n_behind, cases[i].under_way);
        comm = comm_free(comm);
    }
    mesh_reset();
}

/* Whichever network call fails, the comm reports the failure, releases everything and makes no
 * further network call. */
static void each_failure_ends_the_comm(void **state)
{
    (void)state;
    static const Step steps[] = {
        {KIND_ALL_REDUCE, COMM_I32, COMM_SUM, 3, 0}, {KIND_ALL_REDUCE, COMM_F32, COMM_SUM, 5000, 0},
        {KIND_SCATTER, COMM_I32, COMM_SUM, 7, 1},    {KIND_SCATTER_OUT, COMM_I32, COMM_SUM, 80, 1},
        {KIND_GATHER, COMM_I32, COMM_SUM, 80, 1},    {KIND_BROADCAST, COMM_I32, COMM_SUM, 5, 1},
        {KIND_BROADCAST, COMM_I32, COMM_SUM, 5, 2},
    };
    for (size_t i = 0; i < ELEMENTSOF(steps); i++) {
        int r = -1;
        for (size_t k = 1; r < 0; k++) {
            Error err = ERROR_INIT;
            Comm *comm = NULL;
            assert_true(k < 2000);
            assert_int_equal(open_rank(1, 3, &comm, &err), 0);
            mesh.fail_at = mesh.n_calls + k;
            r = run_step(comm, &steps[i], &err);
            if (r < 0) {
                assert_int_equal(mesh.n_calls, mesh.fail_at); /* no call after the failure */
                assert_int_equal(r, -ECONNRESET);
                assert_non_null(strstr(err.text, "rank 1 of 3: rank 1 is gone"));
                assert_int_equal(run_step(comm, &steps[i], &err), -ECONNRESET);
                assert_int_equal(mesh.n_calls, mesh.fail_at);
            }
            comm = comm_free(comm);
            assert_int_equal(mesh.n_meshes, 0);
        }
    }
    mesh_reset();
}

static void a_comm_leaves_no_memory_behind(void **state)
{
    (void)state;
    static const Step steps[] = {{KIND_ALL_REDUCE, COMM_F32, COMM_SUM, 5000, 0},
                                 {KIND_SCATTER_OUT, COMM_I32, COMM_SUM, 80, 1},
                                 {KIND_GATHER, COMM_I32, COMM_SUM, 80, 1},
                                 {KIND_BROADCAST, COMM_I32, COMM_SUM, 5, 1}};
    mesh_reset();
    run_rank(2, 5, steps, ELEMENTSOF(steps), NULL, 0, false, NULL);
}

static void an_abort_reaches_the_mesh(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    Comm *comm = NULL;
    char byte = 1;
    assert_int_equal(open_rank(1, 3, &comm, &err), 0);
    comm_abort(comm);
    assert_int_equal(mesh.n_aborted, 1);
    assert_int_equal(comm_broadcast(comm, 1, &byte, 1, &err), -ECANCELED);
    comm = comm_free(comm);
    mesh_reset();
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worlds_of_any_size_agree),
        cmocka_unit_test(the_small_exchange_ends_where_its_memory_does),
        cmocka_unit_test(blocks_of_all_ranks_have_room),
        cmocka_unit_test(so_many_messages_are_under_way),
        cmocka_unit_test(each_failure_ends_the_comm),
        cmocka_unit_test(a_comm_leaves_no_memory_behind),
        cmocka_unit_test(an_abort_reaches_the_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
