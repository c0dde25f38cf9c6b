/* SPDX-License-Identifier: Apache-2.0 */
/* test-manifest-bounds.c - a manifest that is larger than any manifest that this program writes is refused before it is
 * parsed. */
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/checkpoint.h"

#include <string.h>

/* Makes a manifest with the largest model and history that a writer accepts. */
static Manifest *largest_manifest(void)
{
    ParameterList list = {.n_items = MANIFEST_TENSORS_MAX, .n_elements = INT64_C(1) << 34};
    list.items = calloc(list.n_items, sizeof(*list.items));
    Manifest *m = calloc(1, sizeof(*m));
    assert_true(list.items && m);
    const int64_t each = list.n_elements / (int64_t)list.n_items;
    for (size_t i = 0; i < list.n_items; i++)
        list.items[i] = (Parameter){.offset = (int64_t)i * each, .n_elements = each};
    ObjectTable table;
    m->layout = chunk_layout(list.n_elements);
    assert_int_equal(object_table_new(&list, &m->layout, 1 << 30, true, &table), 0);
    assert_true(table.n_records <= MANIFEST_OBJECTS_MAX);
    m->objects = table.records;
    m->n_objects = table.n_records;
    for (size_t i = 0; i < m->n_objects; i++)
        m->objects[i].n_bytes =
            (uint64_t)m->objects[i].count * (m->objects[i].kind == OBJECT_MOMENTS ? 8 : 4) +
            (object_has_header(m->objects[i].kind) ? 1000 : 0);
    m->name = (CheckpointName){.step = 9999999999, .generation = 999999999999, .attempt = ~0u};
    m->facts.generation = m->name.generation;
    m->metrics_first = 1;
    m->n_tensors = (int64_t)list.n_items;
    m->ema = true;
    m->scalars = (TrainScalars){.step = m->name.step, .loss_scale = 1};
    m->scalars.maxima = calloc(list.n_items * MAXIMA_WINDOW, sizeof(uint32_t));
    m->chunks = calloc((size_t)m->layout.n_chunks, sizeof(*m->chunks));
    m->segments = calloc(MANIFEST_SEGMENTS_MAX, sizeof(*m->segments));
    m->committed = calloc(MANIFEST_COMMITTED_MAX, sizeof(*m->committed));
    assert_true(m->scalars.maxima && m->chunks && m->segments && m->committed);
    for (int64_t i = 0; i < MANIFEST_SEGMENTS_MAX; i++) {
        MetricsSegment *s = &m->segments[m->n_segments++];
        const int64_t last = i + 1 < MANIFEST_SEGMENTS_MAX ? 1000000 * (i + 1) : m->name.step;
        *s = (MetricsSegment){.first = 1000000 * i + 1,
                              .last = last,
                              .level = 16,
                              .n_bytes = 1u << 31};
        CheckpointName name = m->name;
        name.step = last;
        metrics_key_format(&name, s->first, last, s->key);
    }
    while (m->n_committed < MANIFEST_COMMITTED_MAX)
        checkpoint_name_format(&m->name, m->committed[m->n_committed++]);
    memset(m->facts.job, 'j', sizeof(m->facts.job) - 1);
    memset(m->facts.numerics, '"', sizeof(m->facts.numerics) - 1);
    m->digest = manifest_state_digest(m);
    free(list.items);
    return m;
}

static void assert_refused(const char *text, size_t n_bytes, const char *why)
{
    Manifest *m = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(manifest_parse("m.json", text, n_bytes, &m, &err), -EBADMSG);
    if (!strstr(err.text, why))
        fail_msg("%s", err.text);
}

static void test_bounds(void **unused)
{
    (void)unused;
    _cleanup_(manifest_freep) Manifest *m = largest_manifest(), *again = NULL;
    _cleanup_free_ char *text = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(manifest_format(m, &text), 0);
    if (manifest_parse("largest", text, strlen(text), &again, &err) < 0)
        fail_msg("%zu bytes: %s", strlen(text), err.text);
    assert_true(strlen(text) <= MANIFEST_BYTES_MAX * 3 / 4);

    _cleanup_free_ char *hostile = malloc(MANIFEST_BYTES_MAX + 1);
    assert_non_null(hostile);
    for (size_t i = 0; i <= MANIFEST_BYTES_MAX; i++)
        hostile[i] = "[],"[i % 3];
    memcpy(hostile, "{\"v\":[", 6);
    assert_refused(hostile, MANIFEST_BYTES_MAX + 1, "a manifest has at most 8388608");
    assert_refused(hostile, MANIFEST_BYTES_MAX, "more than the 262144 values");

    ParameterList parameters = {.n_items = MANIFEST_TENSORS_MAX + 1, .n_elements = 1 << 20};
    _cleanup_(comm_freep) Comm *comm = NULL;
    _cleanup_(store_freep) Store *store = NULL;
    CheckpointWriter *writer = NULL;
    assert_int_equal(comm_open_self(&comm, &err), 0);
    assert_int_equal(store_open("/tmp", &store, &err), 0);
    CheckpointOptions options = {.store = store,
                                 .reports = comm,
                                 .parameters = &parameters,
                                 .unet_config = ""};
    assert_int_equal(checkpoint_writer_new(&options, &writer, &err), -E2BIG);
    assert_non_null(strstr(err.text, "at most 8192 tensors"));
    parameters = (ParameterList){.n_items = 1, .n_elements = (INT64_C(1) << 34) + 1};
    assert_int_equal(checkpoint_writer_new(&options, &writer, &err), -E2BIG);
    assert_non_null(strstr(err.text, "4096 chunks of 4194304 parameters"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
