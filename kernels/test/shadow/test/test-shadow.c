/* SPDX-License-Identifier: Apache-2.0 */
/* test-shadow.c - shows that a shadow device finds breaches of the contract of kernels.h, and gives the CPU's bits to
 * programs without a breach. */
#include "kernels/test/shadow/shadow.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/number/hash.h"
#include "base/test/testing.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1000, BYTES = N * sizeof(float) };

static Device *open_shadow(uint64_t seed, uint64_t delay_usec)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = DATA_F32};
    const ShadowOptions shadow = {.seed = seed, .delay_usec = delay_usec, .each = 2};
    Device *device;
    Error err = ERROR_INIT;
    if (shadow_open(&options, &shadow, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

typedef struct Pair {
    Device *device;
    float *memory, *host; /* each has N floats */
} Pair;

static Pair pair_open(uint64_t seed, uint64_t delay_usec)
{
    Pair p = {.device = open_shadow(seed, delay_usec)};
    Error err = ERROR_INIT;
    assert_int_equal(device_allocate(p.device, BYTES, (void **)&p.memory, &err), 0);
    assert_int_equal(device_host_allocate(p.device, BYTES, (void **)&p.host, &err), 0);
    return p;
}

static void pair_close(Pair *p)
{
    device_release(p->device, p->memory);
    device_host_release(p->device, p->host);
    p->device = device_free(p->device);
}

/* Runs the breach in a child process. Returns the signal that ends the child, or 0. */
static int signal_of(void (*breach)(Pair *))
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        (void)signal(SIGABRT, SIG_DFL);
        Pair p = pair_open(1, 50000);
        breach(&p);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_by_host(Pair *p) { p->host[0] = *(volatile float *)p->memory; }

static void write_by_host(Pair *p) { *(volatile float *)p->memory = 1; }

/* Sends ten copies, of which five are up to 50 ms late. */
static void send_slowly(Pair *p, Lane lane)
{
    for (int i = 0; i < 10; i++)
        device_send(p->device, lane, p->memory, p->host, BYTES);
}

static void reuse_a_source(Pair *p)
{
    send_slowly(p, LANE_IN);
    p->host[N - 1] = 1;
    (void)device_synchronise(p->device, NULL);
}

static void release_what_is_sent(Pair *p)
{
    send_slowly(p, LANE_IN);
    device_host_release(p->device, p->host);
}

static void release_what_is_computed_with(Pair *p)
{
    send_slowly(p, LANE_COMPUTE);
    silu_forward(p->device, N, p->memory, p->memory);
    device_release(p->device, p->memory);
}

static void release_what_hangs(Pair *p)
{
    shadow_hang(p->device, LANE_COMPUTE);
    silu_forward(p->device, N, p->memory, p->memory);
    device_release(p->device, p->memory);
}

static void free_an_object_in_use(Pair *p)
{
    Linear *linear;
    send_slowly(p, LANE_COMPUTE);
    if (linear_new(p->device, &(LinearShape){.rows = 1, .in = 1, .out = 1}, &linear, NULL) < 0)
        return;
    linear_forward(linear, p->memory, p->memory, p->memory, NULL, NULL, p->memory, p->memory);
    (void)linear_free(linear);
}

static void give_host_memory(Pair *p) { silu_forward(p->device, N, p->memory, p->host); }

static void copy_too_much(Pair *p)
{
    device_fetch(p->device, LANE_OUT, p->host, p->memory + 1, BYTES);
}

static void write_behind(Pair *p)
{
    accumulate(p->device, N + 1, p->memory, p->memory);
    (void)device_synchronise(p->device, NULL);
    device_release(p->device, p->memory);
}

static void use_plans_too_late(Pair *p)
{
    Linear *linear;
    if (linear_new(p->device, &(LinearShape){.rows = 1, .in = 1, .out = 1}, &linear, NULL) == 0)
        (void)device_use_plans(p->device, "{}", NULL);
}

static void leave_memory_behind(Pair *p) { p->device = device_free(p->device); }

static void keep_the_contract(Pair *p)
{
    silu_forward(p->device, N, p->memory, p->memory);
    (void)device_synchronise(p->device, NULL);
    pair_close(p);
}

static void breaches_end_the_process(void **state)
{
    (void)state;
    static void (*const aborts[])(Pair *) = {
        reuse_a_source,        release_what_is_sent, release_what_is_computed_with,
        free_an_object_in_use, give_host_memory,     copy_too_much,
        write_behind,          leave_memory_behind,  use_plans_too_late,
        release_what_hangs,
    };
    static void (*const accesses[])(Pair *) = {read_by_host, write_by_host};
    for (size_t i = 0; i < ELEMENTSOF(accesses);
         i++) { /* a sanitizer handles the signal, and ends with another signal */
        const int number = signal_of(accesses[i]);
        assert_true(number == SIGSEGV || number == SIGBUS || number == SIGABRT);
    }
    for (size_t i = 0; i < ELEMENTSOF(aborts); i++)
        if (signal_of(aborts[i]) != SIGABRT)
            fail_msg("breach %zu was not found", i);
    assert_int_equal(signal_of(keep_the_contract), 0);
}

/* The bytes of a fetch are not in the host's memory before the program waits for the fetch. */
static void a_fetch_is_late(void **state)
{
    (void)state;
    Pair p = pair_open(2, 0);
    Error err = ERROR_INIT;
    uint32_t early;
    shadow_hang(p.device, LANE_COMPUTE); /* the lane hangs until the device is freed */
    device_wait(p.device, LANE_COMM, device_fence(p.device, LANE_COMPUTE));
    device_fetch(p.device, LANE_COMM, p.host, p.memory, BYTES);
    memcpy(&early, p.host, sizeof(early));
    assert_int_equal(early, 0xa5a5a5a5);
    assert_false(device_reached(p.device, device_fence(p.device, LANE_COMM)));

    const uint64_t before = clock_monotonic_usec();
    assert_int_equal(device_await(p.device, device_fence(p.device, LANE_COMM), 50000, &err),
                     -ETIMEDOUT);
    assert_true(clock_monotonic_usec() - before >= 50000);
    assert_non_null(strstr(err.text, "lane comm"));
    assert_int_equal(device_await(p.device, device_fence(p.device, LANE_IN), 0, &err), 0);
    (void)device_free(p.device); /* frees the hung work, and the memory that it uses */
}

/* A lane that does not wait for another lane may overtake the other lane, depending on the delays of the seed. A lane
 * that waits never does. */
static void only_a_wait_orders_lanes(void **state)
{
    (void)state;
    int n_wrong = 0;
    for (uint64_t seed = 0; seed < 40; seed++)
        for (int waits = 0; waits <= 1; waits++) {
            Pair p = pair_open(seed, 2000);
            Error err = ERROR_INIT;
            for (size_t i = 0; i < N; i++)
                p.host[i] = 1;
            device_send(p.device, LANE_IN, p.memory, p.host, BYTES);
            if (waits)
                device_wait(p.device, LANE_COMPUTE, device_fence(p.device, LANE_IN));
            accumulate(p.device, N, p.memory, p.memory);
            assert_int_equal(device_synchronise(p.device, &err), 0);
            device_fetch(p.device, LANE_COMPUTE, p.host, p.memory, BYTES);
            assert_int_equal(device_synchronise(p.device, &err), 0);
            n_wrong += p.host[N - 1] != 2;
            if (waits)
                assert_true(p.host[N - 1] == 2);
            pair_close(&p);
        }
    assert_in_range(n_wrong, 1, 40);
}

/* Queues a send, an operation that needs it, and a second send that the operation must not see. Returns the memory's
 * last number. */
static float with_schedule(const char *text, bool waits_for_send, bool waits_for_compute)
{
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    ShadowOptions shadow;
    Pair p = {0};
    Error err = ERROR_INIT;
    float *second, *result;
    assert_int_equal(shadow_options_parse(text, &shadow, &err), 0);
    assert_int_equal(shadow_open(&options, &shadow, &p.device, &err), 0);
    assert_int_equal(device_allocate(p.device, BYTES, (void **)&p.memory, &err), 0);
    assert_int_equal(device_host_allocate(p.device, BYTES, (void **)&p.host, &err), 0);
    assert_int_equal(device_host_allocate(p.device, BYTES, (void **)&second, &err), 0);
    assert_int_equal(device_host_allocate(p.device, BYTES, (void **)&result, &err), 0);
    for (size_t i = 0; i < N; i++)
        p.host[i] = 1;
    device_send(p.device, LANE_IN, p.memory, p.host, BYTES);
    if (waits_for_send)
        device_wait(p.device, LANE_COMPUTE, device_fence(p.device, LANE_IN));
    accumulate(p.device, N, p.memory, p.memory);
    device_fetch(p.device, LANE_COMPUTE, result, p.memory, BYTES);
    if (waits_for_compute)
        device_wait(p.device, LANE_IN, device_fence(p.device, LANE_COMPUTE));
    device_send(p.device, LANE_IN, p.memory, second, BYTES);
    assert_int_equal(device_synchronise(p.device, &err), 0);
    const float last = result[N - 1];
    device_host_release(p.device, second);
    device_host_release(p.device, result);
    pair_close(&p);
    return last;
}

/* Each schedule gives the right result, 2, with both waits, and shows missing waits as wrong results: without a wait,
 * and with only the first wait. */
static void a_schedule_needs_each_wait(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        float without, first;
    } cases[] = {
        {"late", 0, 2},         /* the sum runs first, and the second send last */
        {"late=compute", 0, 0}, /* both sends run before the sum */
        {"late=in", 0, 2},      {"late=out/comm", 2, 2},
        {"late=none", 2, 2}, /* each call runs before the next one: no error is found */
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_true(with_schedule(cases[i].text, false, false) == cases[i].without);
        assert_true(with_schedule(cases[i].text, true, false) == cases[i].first);
        assert_true(with_schedule(cases[i].text, true, true) == 2);
    }
    int n_wrong = 0;
    for (int seed = 0; seed < 40; seed++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "drawn,seed=%d", seed);
        n_wrong += with_schedule(text, false, false) != 2;
        assert_true(with_schedule(text, false, false) == with_schedule(text, false, false));
        assert_true(with_schedule(text, true, true) == 2);
    }
    assert_in_range(n_wrong, 5, 39);
}

/* Late work runs only when the program waits for it, however often it calls device_reached(). A full lane runs only as
 * many calls as it must. */
static void late_work_waits_to_be_asked_for(void **state)
{
    (void)state;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    const ShadowOptions late = {.schedule = SHADOW_LATE, .late = 1 << LANE_COMPUTE};
    Error err = ERROR_INIT;
    Pair p = {0};
    assert_int_equal(shadow_open(&options, &late, &p.device, &err), 0);
    assert_int_equal(device_allocate(p.device, BYTES, (void **)&p.memory, &err), 0);
    assert_int_equal(device_host_allocate(p.device, BYTES, (void **)&p.host, &err), 0);
    device_clear(p.device, p.memory, BYTES);
    const Fence first = device_fence(p.device, LANE_COMPUTE);
    device_fetch(p.device, LANE_COMPUTE, p.host, p.memory, BYTES);
    const Fence second = device_fence(p.device, LANE_COMPUTE);
    assert_int_equal(device_await(p.device, first, USEC_INFINITY, &err), 0);
    for (int i = 0; i < 100; i++)
        assert_false(device_reached(p.device, second));
    assert_int_equal(*(const uint32_t *)p.host, 0xa5a5a5a5);
    /* LANE_OUT is not late, so its wait makes the late calls run. */
    device_wait(p.device, LANE_OUT, second);
    assert_true(device_reached(p.device, second) && p.host[0] == 0);
    for (int i = 0; i < 3000; i++)
        device_clear(p.device, p.memory, BYTES);
    assert_false(device_reached(p.device, device_fence(p.device, LANE_COMPUTE)));
    assert_int_equal(device_synchronise(p.device, &err), 0);
    pair_close(&p);
}

static void a_broken_device_stays_broken(void **state)
{
    (void)state;
    static const int errors[] = {-EIO, -EFAULT};
    for (size_t i = 0; i < ELEMENTSOF(errors); i++) {
        Pair p = pair_open(3, 100);
        Error err = ERROR_INIT;
        accumulate(p.device, N, p.memory, p.memory);
        assert_int_equal(device_synchronise(p.device, &err), 0);
        shadow_break(p.device, errors[i]);
        accumulate(p.device, N, p.memory, p.memory);
        const Fence fence = device_fence(p.device, LANE_COMPUTE);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(device_await(p.device, fence, USEC_INFINITY, &err), errors[i]);
            assert_int_equal(device_synchronise(p.device, &err), errors[i]);
        }
        assert_true(device_reached(p.device, fence));
        pair_close(&p);
    }
}

/* Calls keep their arguments: with more calls than a lane has room for, with arguments that change afterwards, and in
 * the child of a fork. */
static void calls_keep_their_arguments(void **state)
{
    (void)state;
    Pair p = pair_open(4, 100);
    float one = 1, result;
    const TensorSpan span = {0, 1};
    const StatePlanShape shape = {.tensors = &span,
                                  .n_tensors = 1,
                                  .n_elements = 1,
                                  .chunk_elements = 1,
                                  .n_ranks = 1,
                                  .n_shards = 1};
    const GradientSums sums = {.data = p.memory + 1, .type = SUM_F32};
    StatePlan *plan;
    Error err = ERROR_INIT;
    assert_int_equal(state_plan_new(p.device, &shape, &plan, &err), 0);
    device_upload(p.device, p.memory, &one, sizeof(one));
    for (int i = 0; i < 5000; i++) {
        AdamW adamw = {.lr = 1,
                       .weight_decay = i == 4999 ? 0.5f : 0,
                       .correction1 = 1,
                       .correction2 = 1,
                       .eps = 1};
        state_update(plan, &adamw, 0, &sums, p.memory, p.memory + 2, p.memory + 3, NULL);
        memset(&adamw, 0xff, sizeof(adamw));
    }
    device_download(p.device, &result, p.memory, sizeof(result));
    assert_true(result == 0.5f);
    plan = state_plan_free(plan);

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        accumulate(p.device, 1, p.memory, p.memory);
        device_download(p.device, &result, p.memory, sizeof(result));
        _exit(result == 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    pair_close(&p);
}

static char *numerics_of(const Device *device)
{
    char *text;
    assert_int_equal(device_numerics(device, &text), 0);
    return text;
}

/* A device that chooses its algorithms reports them as plans, and accepts plans with other algorithms that it has. */
static void plans_are_told_and_used(void **state)
{
    (void)state;
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = DATA_F32};
    Error err = ERROR_INIT;
    Device *device;
    char *plans, hash[HASH_TEXT_BYTES];
    ShadowOptions shadow;
    assert_int_equal(shadow_options_parse("plans=b/a,seed=9", &shadow, &err), 0);
    assert_int_equal(shadow.seed, 9);
    assert_int_equal(shadow_open(&options, &shadow, &device, &err), 0);
    assert_int_equal(device_plans(device, &plans), 0);
    assert_string_equal(plans, "{\"conv\":\"b\"}");
    char *numerics = numerics_of(device);
    assert_non_null(strstr(numerics, hash_format(hash_bytes(plans, strlen(plans)), hash)));
    free(plans);

    assert_int_equal(device_use_plans(device, "{\"conv\":\"c\"}", &err), -EINVAL);
    assert_non_null(strstr(err.text, "conv: "));
    assert_int_equal(device_use_plans(device, "{\"conv\":\"\"}", &err), -EINVAL);
    char *same = numerics_of(device);
    assert_string_equal(same, numerics); /* refused plans change nothing */
    assert_int_equal(device_use_plans(device, "{\"conv\":\"a\"}", &err), 0);
    assert_int_equal(device_plans(device, &plans), 0);
    assert_string_equal(plans, "{\"conv\":\"a\"}");
    char *other = numerics_of(device);
    assert_string_not_equal(other, numerics);
    assert_non_null(strstr(other, hash_format(hash_bytes(plans, strlen(plans)), hash)));
    free(plans);
    free(numerics);
    free(same);
    free(other);
    device = device_free(device);
}

static void a_device_may_have_no_plans(void **state)
{
    (void)state;
    const DeviceOptions cpu = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    Error err = ERROR_INIT;
    Device *devices[2];
    assert_int_equal(device_open(&cpu, &devices[0], &err), 0);
    devices[1] = open_shadow(1, 0);
    char *numerics[2];
    for (size_t i = 0; i < ELEMENTSOF(devices); i++) {
        char *plans;
        assert_int_equal(device_plans(devices[i], &plans), -ENOENT);
        assert_int_equal(device_use_plans(devices[i], "{\"conv\":\"a\"}", &err), -ENOENT);
        assert_non_null(strstr(err.text, "no plans"));
        numerics[i] = numerics_of(devices[i]);
        devices[i] = device_free(devices[i]);
    }
    assert_string_equal(numerics[0], numerics[1]);
    free(numerics[0]);
    free(numerics[1]);
}

/* A module has its own copy of base, which uses the log and the fault points of this program. */
static void programs_open_it_as_a_module(void **state)
{
    (void)state;
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = DATA_F32};
    Error err = ERROR_INIT;
    Device *device;
    float *memory;
    char said[512] = "";
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    log_set_level(LOG_LEVEL_DEBUG);
    int r = setenv("SDTRAIN_FAULT", "shadow.break=efault@2", 1);
    assert_int_equal(r, 0);
    assert_int_equal(fault_open(&err), 0);
    r = device_open(&options, &device, &err);
    log_set_level(LOG_LEVEL_INFO);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    if (r < 0)
        fail_msg("%s", err.text);
    assert_true(read(ends[0], said, sizeof(said) - 1) > 0);
    if (!strstr(said, "debug sdtrain: a shadow device computes SHADOW_SEED=7"))
        fail_msg("it said: %s", said);
    (void)close(before);
    (void)close(ends[0]);
    (void)close(ends[1]);

    assert_int_equal(device_kind(device), DEVICE_CUDA);
    assert_int_equal(device_allocate(device, BYTES, (void **)&memory, &err), 0);
    accumulate(device, N, memory, memory);
    assert_int_equal(device_synchronise(device, &err), 0);
    accumulate(device, N, memory, memory); /* fails because of SDTRAIN_FAULT */
    assert_int_equal(device_synchronise(device, &err), -EFAULT);
    device_release(device, memory);
    device = device_free(device);
}

static void options_are_read(void **state)
{
    (void)state;
    static const char *const bad[] = {"seed",     "seed=",   "delay=9999999", "seed=1 ",
                                      "each=1,x", "hosts",   "latex",         "late=",
                                      "late=in/", "late=no", "late=in/x",     "drawn="};
    ShadowOptions o;
    Error err = ERROR_INIT;
    assert_int_equal(shadow_options_parse("seed=7,delay=20,each=3,host,drop=waits", &o, &err), 0);
    assert_true(o.seed == 7 && o.delay_usec == 20 && o.each == 3 && o.takes_host &&
                o.drop == SHADOW_DROP_WAITS);
    assert_int_equal(shadow_options_parse(NULL, &o, &err), 0);
    assert_true(o.seed == 0 && o.delay_usec > 0 && !o.takes_host);
    assert_true(o.schedule == SHADOW_TIMED);
    assert_int_equal(shadow_options_parse("late,seed=3", &o, &err), 0);
    assert_true(o.schedule == SHADOW_LATE && o.late == 15 && o.seed == 3);
    assert_int_equal(shadow_options_parse("late=comm/compute", &o, &err), 0);
    assert_true(o.schedule == SHADOW_LATE && o.late == (1 << LANE_COMM | 1 << LANE_COMPUTE));
    assert_int_equal(shadow_options_parse("late=none", &o, &err), 0);
    assert_true(o.schedule == SHADOW_LATE && o.late == 0);
    assert_int_equal(shadow_options_parse("seed=4,drawn", &o, &err), 0);
    assert_true(o.schedule == SHADOW_DRAWN && o.seed == 4);
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(shadow_options_parse(bad[i], &o, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(breaches_end_the_process),
        cmocka_unit_test(a_fetch_is_late),
        cmocka_unit_test(only_a_wait_orders_lanes),
        cmocka_unit_test(a_schedule_needs_each_wait),
        cmocka_unit_test(late_work_waits_to_be_asked_for),
        cmocka_unit_test(a_broken_device_stays_broken),
        cmocka_unit_test(calls_keep_their_arguments),
        cmocka_unit_test(options_are_read),
        cmocka_unit_test(plans_are_told_and_used),
        cmocka_unit_test(a_device_may_have_no_plans),
        cmocka_unit_test(programs_open_it_as_a_module),
    };
    if (setenv("SDTRAIN_CUDA_MODULE", SHADOW_MODULE, 1) < 0 ||
        setenv("SDTRAIN_SHADOW", "seed=7", 1) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
