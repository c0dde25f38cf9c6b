/* SPDX-License-Identifier: Apache-2.0 */
/* test-data-alloc.c - each allocation fails in turn while a loader is made and while a sample is read: the failure is
 * reported, nothing leaks, and a later attempt works. */
#include "base/log.h"
#include "base/test/testing-alloc.h"
#include "base/test/testing-leaks.h"
#include "data/dataset-internal.h"
#include "data/test/testing-loader.h"

enum { ALLOCATIONS_MAX = 500, SLOTS = 3 };

typedef struct Life {
    Fixture fixture;
    Dataset *dataset;
} Life;

/* Returns the bytes of a ring that holds the first grain of SLOTS steps. */
static size_t ahead_bytes(const Dataset *d)
{
    return SLOTS * 4 * (d->n_latents + d->n_text) * sizeof(float);
}

static AllocLife make_loader(unsigned n, void *arg)
{
    Life *life = arg;
    Error err = ERROR_INIT;
    Loader *loader = NULL;
    alloc_fail_at(n);
    int r = loader_new(life->dataset, &life->fixture.job, 0, 0, 1, ahead_bytes(life->dataset),
                       &loader, &err);
    const bool struck = alloc_struck();
    if (struck ? r != -ENOMEM || loader || !err.text[0] : r != 0)
        return ALLOC_WRONG;
    loader_free(loader);
    check_steps(&life->fixture, life->dataset, 0, 5, 0, 1, 1);
    return struck ? ALLOC_FAILED : ALLOC_WHOLE;
}

static AllocLife read_sample(unsigned n, void *arg)
{
    Life *life = arg;
    Error err = ERROR_INIT;
    const OrderSample sample = {.sample = 499};
    char *caption = NULL;
    alloc_fail_at(n);
    int r = dataset_read(life->dataset, sample, NULL, NULL, &caption, &err);
    const bool struck = alloc_struck();
    if (r < 0 && (!struck || caption || r != -ENOMEM))
        return ALLOC_WRONG;
    if (r == 0 && (!caption || strcmp(caption, "sample 499") != 0))
        return ALLOC_WRONG;
    free(caption);
    check_steps(&life->fixture, life->dataset, 0, 2, 0, 1, 1);
    return r < 0 ? ALLOC_FAILED : ALLOC_WHOLE;
}

static AllocLife open_it(unsigned n, void *arg)
{
    Life *life = arg;
    Error err = ERROR_INIT;
    Dataset *dataset = NULL;
    alloc_fail_at(n);
    int r = dataset_open(&life->fixture.job, &dataset, &err);
    (void)alloc_struck();
    if (r < 0 && (dataset || r != -ENOMEM || !err.text[0]))
        return ALLOC_WRONG;
    if (r == 0)
        check_steps(&life->fixture, dataset, 0, 2, 0, 1, 1);
    dataset_free(dataset);
    return r < 0 ? ALLOC_FAILED : ALLOC_WHOLE;
}

static void begin(Life *life)
{
    fixture_make(&life->fixture, &plain);
    life->dataset = open_dataset(&life->fixture);
}

static void end(Life *life)
{
    dataset_free(life->dataset);
    scratch_remove(&life->fixture.scratch);
}

static void a_loader_without_memory_is_none(_unused_ void **state)
{
    Life life;
    begin(&life);
    /* The allocations are the loader, its reads, and three arrays per slot. */
    assert_int_equal(alloc_sweep(make_loader, &life, ALLOCATIONS_MAX), 2 + 3 * SLOTS);
    end(&life);
}

static void a_sample_without_memory_is_read_again(_unused_ void **state)
{
    Life life;
    begin(&life);
    assert_true(alloc_sweep(read_sample, &life, ALLOCATIONS_MAX) >= 1);
    end(&life);
}

static void a_dataset_without_memory_is_not_open(_unused_ void **state)
{
    Life life;
    begin(&life);
    assert_true(alloc_sweep(open_it, &life, ALLOCATIONS_MAX) >= 4);
    end(&life);
}

static void load_once(void *arg)
{
    const Life *life = arg;
    check_steps(&life->fixture, life->dataset, 0, 1, 0, 1, ahead_bytes(life->dataset));
}

static void open_once(void *arg)
{
    const Life *life = arg;
    char *caption;
    Error err = ERROR_INIT;
    Dataset *dataset = open_dataset(&life->fixture);
    assert_good(dataset_read(dataset, (OrderSample){.sample = 7}, NULL, NULL, &caption, &err), err);
    free(caption);
    free(dataset_digest_terms(dataset));
    dataset_free(dataset);
}

static void what_is_freed_leaves_nothing(_unused_ void **state)
{
    Life life;
    begin(&life);
    leaks_none(load_once, &life);
    leaks_none(open_once, &life);
    end(&life);
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loader_without_memory_is_none),
        cmocka_unit_test(a_sample_without_memory_is_read_again),
        cmocka_unit_test(a_dataset_without_memory_is_not_open),
        cmocka_unit_test(what_is_freed_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
