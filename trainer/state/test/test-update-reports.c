/* SPDX-License-Identifier: Apache-2.0 */
/* test-update-reports.c - how a rank checks the other ranks' reports about their grains, what it does if they do not
 * answer, and an update without enough memory. */
#include "base/test/testing-alloc.h"
#include "base/test/testing-leaks.h"
#include "base/test/testing.h"
#include "trainer/state/test/testing-update.h"

#include <string.h>
#include <time.h>

enum { SLOW_USEC = 3000, RANKS = 3, GRAINS = 5, SHARE = 2, ALLOCATIONS_MAX = 200, NO_LOSS = -2 };

static const Case plain = {GRAINS, 0, REDUCTION_EXACT, 0, 1.0};

/* The report that update.c gathers. */
typedef struct Report {
    double loss;
    int64_t bad;
} Report;

/* ---- wrappers between update and comm, and update and device (ld --wrap) ---- */

static struct {
    bool reports; /* the fields below replace one of the gathered reports */
    int at;       /* index of that report in [RANKS][SHARE] */
    double loss;
    int64_t bad;

    uint32_t maximum; /* maximum of all ranks for `tensor`; 0: not replaced */
    int64_t tensor;

    int reduce, gather; /* errors that the calls return; 0: none */
    bool slow;          /* each sum takes SLOW_USEC */
} plant;

static int failing_allocation; /* counts allocations down to the one that fails; 0: none fails */
/* number of allocations of device memory and shared host memory that are not released */
static int n_held;

int __real_comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err);
int __wrap_comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err);
int __real_comm_all_gather(Comm *comm, const void *in, void *out, size_t n_bytes, Error *err);
int __wrap_comm_all_gather(Comm *comm, const void *in, void *out, size_t n_bytes, Error *err);
int __real_device_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
int __wrap_device_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
int __real_device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
int __wrap_device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
void __real_device_release(Device *device, void *memory);
void __wrap_device_release(Device *device, void *memory);
void __real_device_host_release(Device *device, void *memory);
void __wrap_device_host_release(Device *device, void *memory);

int __wrap_comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err)
{
    int r = __real_comm_all_reduce(comm, type, op, data, n, err);
    const struct timespec slow = {0, SLOW_USEC * 1000};
    if (op == COMM_SUM && plant.slow)
        (void)nanosleep(&slow, NULL); /* simulates a slow network */
    if (op == COMM_MAX && plant.maximum)
        ((uint32_t *)data)[plant.tensor] = plant.maximum;
    return op == COMM_MAX && plant.reduce < 0 ? error_set(err, plant.reduce, "no sum") : r;
}

int __wrap_comm_all_gather(Comm *comm, const void *in, void *out, size_t n_bytes, Error *err)
{
    int r = __real_comm_all_gather(comm, in, out, n_bytes, err);
    if (plant.reports)
        ((Report *)out)[plant.at] = (Report){.loss = plant.loss, .bad = plant.bad};
    return plant.gather < 0 ? error_set(err, plant.gather, "no gathering") : r;
}

static bool allocation_fails(void) { return failing_allocation > 0 && --failing_allocation == 0; }

int __wrap_device_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    if (allocation_fails())
        return error_set(err, -ENOMEM, "no device memory");
    n_held++;
    return __real_device_allocate(device, n_bytes, ret, err);
}

int __wrap_device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    if (allocation_fails())
        return error_set(err, -ENOMEM, "no host memory");
    n_held++;
    return __real_device_host_allocate(device, n_bytes, ret, err);
}

void __wrap_device_release(Device *device, void *memory)
{
    n_held -= memory != NULL;
    __real_device_release(device, memory);
}

void __wrap_device_host_release(Device *device, void *memory)
{
    n_held -= memory != NULL;
    __real_device_host_release(device, memory);
}

/* ---- checks of reports ---- */

static int decide(Rank *rank, UpdateVerdict *ret, UpdateResult *ret_result, Error *err)
{
    update_begin(rank->update);
    rank_compute_grains(rank, false);
    *err = ERROR_INIT;
    int r = update_collect(rank->update, err);
    return r < 0 ? r : update_decide(rank->update, ret, ret_result, err);
}

static void says(Rank *rank, int at, int64_t bad)
{
    int64_t first, n, share;
    Error err;
    UpdateVerdict verdict;
    UpdateResult result = {0};
    char wanted[128];
    grain_share(GRAINS, at / SHARE, RANKS, &first, &n, &share);
    plant.reports = true;
    plant.at = at;
    plant.loss = 1;
    plant.bad = bad;
    int r = decide(rank, &verdict, &result, &err);
    plant.reports = false;
    if (at % SHARE >= n) { /* there is no such grain, so the report is ignored */
        world_check(r == 0 && verdict == UPDATE_REDO, "place %d, %d: %d %s", at, (int)bad, r,
                    err.text);
    } else if (bad == NO_LOSS || (bad >= 0 && bad < TENSORS)) {
        (void)snprintf(wanted, sizeof(wanted), "tensor.%d", (int)bad);
        world_check(r == 0 && verdict == UPDATE_NON_FINITE, "place %d, %d: %d %s", at, (int)bad, r,
                    err.text);
        world_check(result.bad_grain == first + at % SHARE, "grain %d", (int)result.bad_grain);
        world_check(strcmp(result.bad_tensor, bad == NO_LOSS ? "loss" : wanted) == 0, "%s",
                    result.bad_tensor);
    } else {
        (void)snprintf(wanted, sizeof(wanted),
                       "deciding on step 1: rank %d says that tensor %lld of %d is not a number",
                       at / SHARE, (long long)bad, TENSORS);
        world_check(r == -EPROTO && strcmp(err.text, wanted) == 0, "place %d, %d: %d %s", at,
                    (int)bad, r, err.text);
    }
}

static int hear_reports(_unused_ World *world, Comm *comm, _unused_ void *arg)
{
    static const int64_t bad[] = {NO_LOSS, 0, 1, TENSORS - 1, TENSORS, -3, INT64_MAX, INT64_MIN};
    Rank rank = {0};
    rank_open(&rank, &plain, comm);
    for (int at = 0; at < RANKS * SHARE; at++)
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
            says(&rank, at, bad[i]);
    world_check(rank.state->scalars.step == 0, "a step was made");
    rank_close(&rank);
    return 0;
}

static void a_report_names_one_of_our_tensors(_unused_ void **state)
{
    World world = {.size = RANKS, .run = hear_reports};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

/* The mean loss is that of the grains, whatever the reports of ranks without a grain contain. */
static int hear_losses(_unused_ World *world, Comm *comm, _unused_ void *arg)
{
    Error err;
    Rank rank = {0};
    UpdateVerdict verdict;
    UpdateResult before = {0}, result = {0};
    rank_open(&rank, &plain, comm);
    world_check(decide(&rank, &verdict, &before, &err) == 0, "%s", err.text);
    plant.reports = true;
    plant.bad = -1;
    for (plant.at = 0; plant.at < RANKS * SHARE; plant.at++) {
        int64_t first, n, share;
        plant.loss = 1e6;
        grain_share(GRAINS, plant.at / SHARE, RANKS, &first, &n, &share);
        world_check(decide(&rank, &verdict, &result, &err) == 0, "%s", err.text);
        if (plant.at % SHARE >= n)
            world_check(result.loss == before.loss, "place %d: %g", plant.at, result.loss);
        else
            world_check(result.loss > 1e6 / GRAINS - 10 && result.loss < 1e6 / GRAINS + 10,
                        "place %d: %g", plant.at, result.loss);
    }
    plant.reports = false;
    rank_close(&rank);
    return 0;
}

static void the_loss_is_that_of_the_grains(_unused_ void **state)
{
    World world = {.size = RANKS, .run = hear_losses};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

/* If a maximum is so large that a sum could be infinite, the report of some grain must show it. */
static void an_infinite_maximum_has_a_grain(_unused_ void **state)
{
    Small small;
    UpdateVerdict verdict;
    UpdateResult result;
    Error err;
    /* the smallest infinite maximum for five grains */
    const uint32_t infinite = (127 + 128 - 3) << 23;
    small_open(&small, &plain);
    for (plant.tensor = 0; plant.tensor < TENSORS; plant.tensor++) {
        char wanted[128];
        plant.maximum = infinite;
        assert_int_equal(decide(&small.rank, &verdict, &result, &err), -EPROTO);
        (void)snprintf(wanted, sizeof(wanted),
                       "deciding on step 1: a rank's gradient of tensor %d is infinite, and no "
                       "grain's",
                       (int)plant.tensor);
        assert_string_equal(err.text, wanted);
        plant.maximum = infinite - 1;
        assert_int_equal(decide(&small.rank, &verdict, &result, &err), 0);
        assert_int_equal(verdict, UPDATE_REDO);
        plant.maximum = infinite;
        plant.reports = true;
        plant.at = GRAINS - 1;
        plant.bad = 3;
        assert_int_equal(decide(&small.rank, &verdict, &result, &err), 0);
        assert_int_equal(verdict, UPDATE_NON_FINITE);
        assert_int_equal(result.bad_grain, GRAINS - 1);
        plant.reports = false;
    }
    plant.maximum = 0;
    small_close(&small);
}

/* If the other ranks do not answer, nothing is decided, and the device is not blamed. */
static void ranks_that_do_not_answer_end_the_step(_unused_ void **state)
{
    Small small;
    UpdateVerdict verdict = UPDATE_ACCEPT;
    UpdateResult result;
    Error err;
    uint32_t word;
    small_open(&small, &plain);
    plant.reduce = -ECONNRESET;
    assert_int_equal(decide(&small.rank, &verdict, &result, &err), -ECONNRESET);
    assert_string_equal(err.text, "deciding on step 1: no sum");
    plant.reduce = 0;
    plant.gather = -EPIPE;
    assert_int_equal(decide(&small.rank, &verdict, &result, &err), -EPIPE);
    assert_string_equal(err.text, "deciding on step 1: no gathering");
    plant.gather = 0;
    update_begin(small.rank.update);
    assert_int_equal(small_pass(&small, 1, &result), UPDATE_REDO);
    assert_int_equal(small_pass(&small, 1, &result), UPDATE_ACCEPT);
    plant.gather = -EPIPE;
    assert_int_equal(update_apply(small.rank.update, 0, &word, &result, &err), -EPIPE);
    assert_string_equal(err.text, "reducing the gradients of step 1: no gathering");
    assert_int_equal(small.rank.state->scalars.step, 0);
    assert_false(update_device_failed(small.rank.update));
    plant.gather = 0;
    small_close(&small);
}

/* The time of a step's collectives is reported, without the time of earlier steps. */
static void the_time_of_collectives_is_counted(_unused_ void **state)
{
    Small small;
    UpdateResult result;
    small_open(&small, &plain);
    update_begin(small.rank.update);
    assert_int_equal(small_pass(&small, 1, &result), UPDATE_REDO);
    assert_int_equal(small_pass(&small, 1, &result), UPDATE_ACCEPT);
    plant.slow = true;
    small_apply(&small, &result);
    plant.slow = false;
    assert_true(update_comm_usec(small.rank.update) >= SLOW_USEC);
    update_begin(small.rank.update);
    assert_int_equal(update_comm_usec(small.rank.update), 0);
    small_close(&small);
}

/* ---- no memory ---- */

static int new_update(Small *small, Error *err)
{
    Update *update = NULL;
    const int held = n_held;
    *err = ERROR_INIT;
    int r = update_new(small->rank.state, small->comm, NULL, &small->rank.job, &update, err);
    world_check(r == 0 || !update, "there is one");
    update_free(update);
    world_check(n_held == held, "%d buffers are held", n_held - held);
    return r;
}

static void each_buffer_of_a_device_is_needed(_unused_ void **state)
{
    for (int zero_stage = 0; zero_stage <= 2; zero_stage++) {
        Small small;
        Error err;
        int n = 0, r;
        const Case c = {GRAINS, zero_stage, REDUCTION_EXACT, 0, 1.0};
        small_open(&small, &c);
        do {
            failing_allocation = ++n;
            r = new_update(&small, &err);
            assert_true(r == 0 || (r == -ENOMEM && strstr(err.text, "update: ")));
        } while (failing_allocation == 0);
        assert_int_equal(r, 0);
        failing_allocation = 0;
        assert_true(n > 10);
        small_close(&small);
    }
}

static AllocLife life_of_update(unsigned n, void *arg)
{
    const int *zero_stage = arg;
    Small small;
    Error err;
    const Case c = {GRAINS, *zero_stage, REDUCTION_EXACT, 0, 1.0};
    small_open(&small, &c);
    alloc_fail_at(n);
    int r = new_update(&small, &err);
    const bool struck = alloc_struck();
    small_close(&small);
    if (struck ? r != -ENOMEM || !err.text[0] : r != 0)
        return ALLOC_WRONG;
    return struck ? ALLOC_FAILED : ALLOC_WHOLE;
}

static void each_array_of_an_update_is_needed(_unused_ void **state)
{
    for (int zero_stage = 0; zero_stage <= 2; zero_stage += 2)
        assert_true(alloc_sweep(life_of_update, &zero_stage, ALLOCATIONS_MAX) >= 7);
}

/* if true, the wrapper says that the device computes in bf16; then gradients cannot be added as floats */
static bool is_bf16;
DataType __real_device_type(const Device *device);
DataType __wrap_device_type(const Device *device);

DataType __wrap_device_type(const Device *device)
{
    return is_bf16 ? DATA_BF16 : __real_device_type(device);
}

static void floats_need_fp32(_unused_ void **state)
{
    static const Reduction reductions[] = {REDUCTION_EXACT, REDUCTION_EXACT64, REDUCTION_FLOAT};
    for (size_t i = 0; i < ELEMENTSOF(reductions); i++) {
        Small small;
        Error err;
        const Case c = {GRAINS, 0, reductions[i], 0, 1.0};
        small_open(&small, &c);
        is_bf16 = true;
        assert_int_equal(new_update(&small, &err), reductions[i] == REDUCTION_FLOAT ? -ENOTSUP : 0);
        if (reductions[i] == REDUCTION_FLOAT)
            assert_non_null(strstr(err.text, "train.reduction: \"float\" needs precision fp32"));
        is_bf16 = false;
        small_close(&small);
    }
}

static void make_update(void *arg)
{
    Error err;
    assert_int_equal(new_update(arg, &err), 0);
}

static void an_update_that_is_freed_leaves_nothing(_unused_ void **state)
{
    for (int zero_stage = 0; zero_stage <= 2; zero_stage++) {
        Small small;
        const Case c = {GRAINS, zero_stage, REDUCTION_EXACT, 0, 1.0};
        small_open(&small, &c);
        leaks_none(make_update, &small);
        small_close(&small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_names_one_of_our_tensors),
        cmocka_unit_test(the_loss_is_that_of_the_grains),
        cmocka_unit_test(an_infinite_maximum_has_a_grain),
        cmocka_unit_test(ranks_that_do_not_answer_end_the_step),
        cmocka_unit_test(the_time_of_collectives_is_counted),
        cmocka_unit_test(each_buffer_of_a_device_is_needed),
        cmocka_unit_test(each_array_of_an_update_is_needed),
        cmocka_unit_test(floats_need_fp32),
        cmocka_unit_test(an_update_that_is_freed_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
