/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-history.c - tests which checkpoints and metrics are committed, kept and removed. */
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/metrics.h"
#include "trainer/checkpoint/test/testing-state.h"

#include <string.h>
#include <unistd.h>

static Fixture fixture;

/* One rank of one generation. */
typedef struct Life {
    char folder[64];
    Store *store;
    Comm *comm;
    CheckpointWriter *writer;
    TrainState *state;
    int64_t generation;
} Life;

static void life_begin(Life *l, const char *folder, int64_t generation)
{
    Error err = ERROR_INIT;
    *l = (Life){.generation = generation};
    (void)snprintf(l->folder, sizeof(l->folder), "%s", folder);
    assert_int_equal(store_open(folder, &l->store, &err), 0);
    assert_int_equal(comm_open_self(&l->comm, &err), 0);
    l->writer = testing_writer(&fixture, l->store, l->comm, generation, 0);
    l->state = testing_state(&fixture, 0, 0, 1, 0, false);
}

static void life_end(Life *l)
{
    l->writer = checkpoint_writer_free(l->writer);
    l->state = train_state_free(l->state);
    l->comm = comm_free(l->comm);
    l->store = store_free(l->store);
}

static CheckpointResult life_save(Life *l, int64_t step, int64_t metrics_first)
{
    l->state->scalars.step = step;
    CheckpointResult result = testing_save(l->writer, l->state, l->generation, metrics_first);
    assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
    assert_int_equal(result.step, step);
    return result;
}

static CheckpointResult life_commit(Life *l, int64_t step, int64_t metrics_first)
{
    CheckpointResult result = life_save(l, step, metrics_first);
    checkpoint_settle(l->writer, true);
    return result;
}

static Manifest *life_manifest(const Life *l, const CheckpointResult *result)
{
    (void)l;
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    Manifest *m = NULL;
    assert_int_equal(manifest_read_uri(result->uri, &result->hash, &store, &m, &err), 0);
    return m;
}

static void life_resume(Life *l, const CheckpointResult *from)
{
    Error err = ERROR_INIT;
    _cleanup_(manifest_freep) Manifest *m = life_manifest(l, from);
    assert_int_equal(checkpoint_restore(l->store, NULL, m, l->state, &err), 0);
    assert_int_equal(checkpoint_adopt_history(l->writer, m, &err), 0);
}

/* Checks which steps (and generations) have a manifest, as "101.2 100.1 0.1". Waits for the end of retention first. */
static void assert_kept(Life *l, const char *expected)
{
    Error err = ERROR_INIT;
    l->writer = checkpoint_writer_free(l->writer);
    StoreList list;
    assert_int_equal(checkpoint_list(l->store, &list, &err), 0);
    char kept[256] = "";
    for (size_t i = 0; i < list.n_objects; i++) {
        CheckpointName name;
        assert_int_equal(checkpoint_name_parse(list.objects[i].key, &name), 0);
        size_t used = strlen(kept);
        (void)snprintf(kept + used, sizeof(kept) - used, "%s%lld.%lld", i ? " " : "",
                       (long long)name.step, (long long)name.generation);
    }
    store_list_clear(&list);
    assert_string_equal(kept, expected);
}

static size_t count_objects(const Life *l, const char *prefix)
{
    Error err = ERROR_INIT;
    StoreList list;
    assert_int_equal(store_list(l->store, prefix, 10000, &list, &err), 0);
    size_t n = list.n_objects;
    store_list_clear(&list);
    return n;
}

static void put_text(const Life *l, const char *key, const char *text)
{
    Error err = ERROR_INIT;
    assert_int_equal(store_put(l->store, key,
                               &(struct iovec){(void *)(uintptr_t)text, strlen(text)}, 1, 0, &err),
                     0);
}

/* Publishes the metrics of m. Returns the number of lost steps. */
static int64_t publish(const Life *l, const Manifest *m)
{
    Error err = ERROR_INIT;
    MetricsGap gap;
    assert_int_equal(checkpoint_publish_metrics(l->store, m, "metrics.jsonl", &gap, &err), 0);
    return gap.n_steps;
}

static char *get_text(const Life *l, const char *key)
{
    Error err = ERROR_INIT;
    char *text = NULL;
    assert_int_equal(store_get(l->store, key, 1 << 20, &text, NULL, &err), 0);
    return text;
}

static void assert_text(const Life *l, const char *key, const char *expected)
{
    _cleanup_free_ char *text = get_text(l, key);
    assert_string_equal(text, expected);
}

static void remove_object(const Life *l, const char *key)
{
    Error err = ERROR_INIT;
    assert_int_equal(store_delete(l->store, key, &err), 0);
}

/* ---- metrics ---- */

static void test_metrics(void **state)
{
    const char *folder = *state;
    Error err = ERROR_INIT;
    Life l;
    life_begin(&l, folder, 1);
    CheckpointResult zero = life_commit(&l, 0, 1); /* without a step there is no segment */
    (void)life_commit(&l, 3, 1);
    CheckpointResult six = life_commit(&l, 6, 4);
    (void)life_save(&l, 8, 7);
    /* after a refused commit, the save leaves no trace in the history */
    checkpoint_settle(l.writer, false);
    life_end(&l);

    life_begin(&l, folder, 2);
    life_resume(&l, &six);
    assert_int_equal(l.state->scalars.step, 6);
    (void)life_commit(&l, 9, 7);
    CheckpointResult last = life_commit(&l, 10, 10);
    CheckpointResult again = life_commit(&l, 10, 11); /* the same step again, without new lines */
    assert_true(hash_equal(last.digest, again.digest));

    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &again);
    assert_int_equal(m->n_segments, 4);
    assert_int_equal(m->metrics_first, 1);
    assert_int_equal(publish(&l, m), 0);
    assert_int_equal(publish(&l, m), 0);
    _cleanup_free_ char *text = NULL;
    assert_int_equal(store_get(l.store, "metrics.jsonl", 10000, &text, NULL, &err), 0);
    _cleanup_free_ char *before = testing_metrics(1, 1, 6), *after = testing_metrics(2, 7, 10);
    char expected[1024];
    (void)snprintf(expected, sizeof(expected), "%s%s", before, after);
    assert_string_equal(text, expected);

    /* The segment of the refused save has been removed, the listed segments have not. */
    assert_kept(&l, "10.2 10.2 0.1");
    assert_int_equal(count_objects(&l, "metrics/"), 4);
    (void)zero;

    life_end(&l);
}

/* One segment is missing and one is damaged: their steps are a gap, and the job can still end. */
static void test_lost_metrics(void **state)
{
    Life l;
    life_begin(&l, *state, 1);
    (void)life_commit(&l, 3, 1);
    (void)life_commit(&l, 5, 4);
    CheckpointResult last = life_commit(&l, 9, 6);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &last);
    _cleanup_free_ char *kept = get_text(&l, m->segments[1].key);
    _cleanup_free_ char *third = testing_metrics(1, 6, 9);

    remove_object(&l, m->segments[0].key);
    put_text(&l, m->segments[1].key, "step 4 of generation 9\nand so on, as long as it was ...\n");
    assert_int_equal(publish(&l, m), 5);
    assert_text(&l, "metrics.jsonl", third);

    /* One segment exists again: the published file is replaced by a file that also has the lines of this segment. */
    put_text(&l, m->segments[1].key, kept);
    assert_int_equal(publish(&l, m), 3);
    char both[1024];
    (void)snprintf(both, sizeof(both), "%s%s", kept, third);
    assert_text(&l, "metrics.jsonl", both);

    /* The gap is also reported by a new writer that continues from the newest commit. */
    last = life_commit(&l, 10, 10);
    l.writer = checkpoint_writer_free(l.writer);
    l.writer = testing_writer(&fixture, l.store, l.comm, 1, 0);
    life_resume(&l, &last);
    (void)life_commit(&l, 11, 11);
    while (checkpoint_busy(l.writer))
        (void)usleep(1000);
    MetricsGap gap;
    checkpoint_gap(l.writer, &gap);
    assert_int_equal(gap.n_steps, 3);
    assert_int_equal(gap.first, 1);
    assert_int_equal(gap.last, 3);
    life_end(&l);
}

/* hide: puts a file in place of the metrics folder; otherwise puts the folder back. */
static void hide_metrics(const Life *l, bool hide)
{
    char here[128], away[128];
    (void)snprintf(here, sizeof(here), "%s/metrics", l->folder);
    (void)snprintf(away, sizeof(away), "%s/away", l->folder);
    if (hide) {
        assert_int_equal(rename(here, away), 0);
        put_text(l, "metrics", "a file where a folder should be");
    } else {
        assert_int_equal(unlink(here), 0);
        assert_int_equal(rename(away, here), 0);
    }
}

/* A store that accepts everything except metrics does not prevent saves, and no metrics are lost once the store accepts
 * them again. */
static void test_refused_metrics(void **state)
{
    Error err = ERROR_INIT;
    Life l;
    life_begin(&l, *state, 1);
    put_text(&l, "metrics", "a file where a folder should be");
    CheckpointResult last = {0};
    for (int64_t step = 1; step <= 20; step++)
        last = life_commit(&l, step, step);
    while (checkpoint_busy(l.writer))
        (void)usleep(1000);
    MetricsGap gap;
    checkpoint_gap(l.writer, &gap);
    /* the metrics are not lost: they wait until the store accepts them */
    assert_int_equal(gap.n_steps, 0);
    int64_t n_missed;
    assert_int_equal(checkpoint_put_missed(l.writer, &n_missed, &err), -ENOTDIR);
    assert_int_equal(n_missed, 20);
    remove_object(&l, "metrics");
    last = life_commit(&l, 21, 21);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &last);
    /* 16 segments were merged into one segment, which has all their lines */
    assert_int_equal(m->n_segments, 21 - 15);
    assert_int_equal(publish(&l, m), 0);
    _cleanup_free_ char *all = testing_metrics(1, 1, 21);
    assert_text(&l, "metrics.jsonl", all);
    assert_int_equal(checkpoint_restore(l.store, NULL, m, l.state, &err), 0);

    /* Metrics are refused once, and still wait when there are enough segments for a merge: then the merge waits,
     * too. fault_open() changes memory that the writer's thread reads, so the test first waits for the writer. */
    while (checkpoint_busy(l.writer))
        (void)usleep(1000);
    (void)setenv("SDTRAIN_FAULT", "checkpoint.missed=eio@*", 1); /* cannot fail for a valid name */
    assert_int_equal(fault_open(&err), 0);
    hide_metrics(&l, true);
    (void)life_commit(&l, 22, 22);
    while (checkpoint_busy(l.writer))
        (void)usleep(1000);
    hide_metrics(&l, false);
    for (int64_t step = 23; step <= 34; step++)
        last = life_commit(&l, step, step);
    _cleanup_(manifest_freep) Manifest *waits = life_manifest(&l, &last);
    assert_int_equal(waits->n_segments, m->n_segments + 13);
    /* fault_open() changes memory that the writer's thread reads, so the test first waits for the writer */
    while (checkpoint_busy(l.writer))
        (void)usleep(1000);
    /* cannot fail for a valid name */
    (void)setenv("SDTRAIN_FAULT", "checkpoint.missed=eio@100000", 1);
    assert_int_equal(fault_open(&err), 0);
    last = life_commit(&l, 35, 35);
    _cleanup_(manifest_freep) Manifest *merged = life_manifest(&l, &last);
    assert_int_equal(merged->n_segments, m->n_segments + 14 - 15);
    assert_int_equal(publish(&l, merged), 0);

    /* The metrics of the last save are refused. */
    while (checkpoint_busy(l.writer))
        (void)usleep(1000);
    hide_metrics(&l, true);
    last = life_commit(&l, 36, 36);
    hide_metrics(&l, false);
    _cleanup_(manifest_freep) Manifest *newest = life_manifest(&l, &last);
    assert_int_equal(publish(&l, newest), 1);
    assert_int_equal(checkpoint_put_missed(l.writer, &n_missed, &err), 0);
    assert_int_equal(n_missed, 0);
    assert_int_equal(publish(&l, newest), 0);
    life_end(&l);
}

/* The key already has an object: the beginning of this history, more than this history, or someone else's text. */
static void test_published_before(void **state)
{
    Life l;
    life_begin(&l, *state, 1);
    CheckpointResult three = life_commit(&l, 3, 1);
    _cleanup_(manifest_freep) Manifest *short_one = life_manifest(&l, &three);
    assert_int_equal(publish(&l, short_one), 0);
    CheckpointResult five = life_commit(&l, 5, 4);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &five);
    _cleanup_free_ char *all = testing_metrics(1, 1, 5);
    assert_int_equal(publish(&l, m), 0); /* this happens after --resume with more steps */
    assert_text(&l, "metrics.jsonl", all);
    assert_int_equal(publish(&l, short_one), 0); /* this happens after --resume with fewer steps */
    assert_text(&l, "metrics.jsonl", all);

    /* The published file fills a gap. */
    remove_object(&l, m->segments[0].key);
    assert_int_equal(publish(&l, m), 0);
    assert_text(&l, "metrics.jsonl", all);

    put_text(&l, m->segments[0].key, "");
    put_text(&l, "metrics.jsonl", "somebody's own\n");
    assert_int_equal(publish(&l, m), 3);
    assert_text(&l, "metrics.jsonl", "somebody's own\n");
    char folder[CHECKPOINT_FOLDER_MAX], key[CHECKPOINT_FOLDER_MAX + 16];
    checkpoint_name_format(&m->name, folder);
    (void)snprintf(key, sizeof(key), "metrics-%s.jsonl", folder);
    _cleanup_free_ char *rest = testing_metrics(1, 4, 5);
    assert_text(&l, key, rest);
    life_end(&l);
}

/* The list of segments after each of a million saves stays short and complete, and every line is copied only a few
 * times. */
static void test_a_million_saves(void **state)
{
    (void)state;
    MetricsSegment list[MANIFEST_SEGMENTS_MAX];
    size_t n = 0, most = 0;
    uint64_t copied = 0;
    for (int64_t step = 1; step <= 1000000; step++) {
        size_t at;
        if (metrics_find_merge(list, n, &at)) {
            MetricsSegment merged = {.first = list[at].first,
                                     .last = list[at + METRICS_FAN_IN - 1].last,
                                     .level = list[at].level + 1};
            for (size_t i = at; i < at + METRICS_FAN_IN; i++)
                merged.n_bytes += list[i].n_bytes;
            copied += merged.n_bytes;
            list[at] = merged;
            n -= METRICS_FAN_IN - 1;
            memmove(&list[at + 1], &list[at + METRICS_FAN_IN], (n - at - 1) * sizeof(*list));
        }
        list[n++] = (MetricsSegment){.first = step, .last = step, .n_bytes = 170};
        most = MAX(most, n);
    }
    assert_true(most <= 100);
    assert_true(copied <= UINT64_C(5) * 170 * 1000000);
    int64_t next = 1;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(list[i].first, next);
        next = list[i].last + 1;
    }
    assert_int_equal(next, 1000001);

    /* Large segments are not merged: 1e9 steps that are saved every 1,000 steps. */
    n = 0;
    for (int64_t k = 0; k < 1000000; k++) {
        size_t at;
        while (metrics_find_merge(list, n, &at)) {
            for (size_t i = at + 1; i < at + METRICS_FAN_IN; i++)
                list[at].n_bytes += list[i].n_bytes;
            list[at].level++;
            n -= METRICS_FAN_IN - 1;
            memmove(&list[at + 1], &list[at + METRICS_FAN_IN], (n - at - 1) * sizeof(*list));
        }
        assert_true(n < MANIFEST_SEGMENTS_MAX);
        list[n++] = (MetricsSegment){.n_bytes = 170000};
    }
}

/* With real saves, merged objects hold the same lines, and a kept manifest keeps the segments that it lists. */
static void test_merged_metrics(void **state)
{
    Life l;
    life_begin(&l, *state, 1); /* the writer has keep_last 2 and keep_every 100 */
    CheckpointResult hundred = {0}, last = {0};
    for (int64_t step = 1; step <= 300; step++) {
        last = life_commit(&l, step, step);
        if (step == 100)
            hundred = last;
    }
    l.writer = checkpoint_writer_free(l.writer);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &last),
                                       *old = life_manifest(&l, &hundred);
    assert_true(m->n_segments <= 3 * METRICS_FAN_IN);
    assert_int_equal(m->segments[0].level, 2);
    assert_int_equal(m->segments[0].n_lines, 256);

    size_t n_shared = 0;
    for (size_t i = 0; i < old->n_segments; i++)
        for (size_t k = 0; k < m->n_segments; k++)
            n_shared += strcmp(old->segments[i].key, m->segments[k].key) == 0;
    assert_int_equal(n_shared, 0);
    _cleanup_free_ char *to_100 = testing_metrics(1, 1, 100), *to_300 = testing_metrics(1, 1, 300);
    assert_int_equal(publish(&l, old), 0); /* every segment that the old manifest lists exists */
    assert_text(&l, "metrics.jsonl", to_100);
    assert_int_equal(publish(&l, m), 0);
    assert_text(&l, "metrics.jsonl", to_300);

    /* Only segments exist that the manifests of steps 100, 200, 299 or 300 list; 299 and 300 have similar lists. */
    assert_true(count_objects(&l, "metrics/") <= old->n_segments + 3 * METRICS_FAN_IN * 2);

    /* If a segment is lost before a merge that needs it, the merged object lacks the lines of that segment. */
    life_end(&l);
    life_begin(&l, *state, 2);
    life_resume(&l, &last);
    const MetricsSegment *tail = &m->segments[m->n_segments - 1];
    assert_int_equal(tail->level, 0);
    remove_object(&l, tail->key);
    for (int64_t step = 301; step <= 320; step++)
        last = life_commit(&l, step, step);
    _cleanup_(manifest_freep) Manifest *after = life_manifest(&l, &last);
    int64_t n_lines = 0;
    for (size_t i = 0; i < after->n_segments; i++)
        n_lines += after->segments[i].n_lines;
    assert_int_equal(n_lines, 319);
    assert_int_equal(publish(&l, after), 0); /* the published file has the lost line */
    remove_object(&l, "metrics.jsonl");
    assert_int_equal(publish(&l, after), 1);
    life_end(&l);
}

static void test_bad_metrics(void **state)
{
    Error err = ERROR_INIT;
    Life l;
    life_begin(&l, *state, 1);
    (void)life_commit(&l, 3, 1);
    l.state->scalars.step = 5;
    static const struct {
        const char *text;
        int64_t first, last;
    } cases[] = {{"a\nb\n", 3, 4}, {"a\nb\n", 5, 6}, {"a\n", 4, 5},      {"a\nb\nc\n", 4, 5},
                 {"a\nb", 4, 5},   {"", 4, 3},       {"a\nb\n\n", 4, 6}, {"a\nb\nc\n", 3, 5}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        assert_int_equal(checkpoint_begin(l.writer, l.state, cases[i].text, cases[i].first,
                                          cases[i].last, &err),
                         -EINVAL);
    assert_int_equal(checkpoint_begin(l.writer, l.state, "a\nb\n", 4, 5, &err), 0);
    assert_int_equal(checkpoint_begin(l.writer, l.state, "", 6, 5, &err), -EBUSY);
    CheckpointResult result;
    assert_int_equal(checkpoint_wait(l.writer, 10 * USEC_PER_SEC, &result), 0);
    assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
    assert_true(checkpoint_busy(l.writer)); /* busy until the save is settled */
    assert_int_equal(checkpoint_begin(l.writer, l.state, "", 6, 5, &err), -EBUSY);
    checkpoint_poll(l.writer, &result);
    assert_int_equal(result.phase, CHECKPOINT_IDLE);
    life_end(&l);
}

/* ---- retention ---- */

static void test_keep(void **state)
{
    Life l;
    life_begin(&l, *state, 1); /* the writer has keep_last 2 and keep_every 100 */
    static const int64_t steps[] = {0, 99, 100, 101, 102, 200, 201, 202, 203};
    for (size_t i = 0; i < ELEMENTSOF(steps); i++)
        (void)life_commit(&l, steps[i], i ? steps[i - 1] + 1 : 1);
    assert_kept(&l, "203.1 202.1 200.1 100.1 0.1");
    assert_int_equal(count_objects(&l, "metrics/"), 8);
    life_end(&l);
}

/* Commits steps 1 to 5. Evaluations read steps 1 and 2 from step 3 on, and the first n of these at step 5. */
static void commit_held(const char *uri, size_t n, const char *kept)
{
    static const int64_t steps[] = {1, 2};
    Life l;
    life_begin(&l, uri, 1); /* the writer has keep_last 2 and keep_every 100 */
    for (int64_t step = 1; step <= 5; step++) {
        if (step >= 3)
            checkpoint_hold(l.writer, steps, step == 5 ? n : 2);
        (void)life_commit(&l, step, step);
    }
    assert_kept(&l, kept);
    life_end(&l);
}

static void test_held(void **state) { commit_held(*state, 2, "5.1 4.1 2.1 1.1"); }

static void test_held_no_longer(void **state) { commit_held(*state, 1, "5.1 4.1 1.1"); }

static void test_orphans(void **state)
{
    Life l;
    life_begin(&l, *state, 1);
    (void)life_commit(&l, 10, 1);
    CheckpointResult twenty = life_commit(&l, 20, 11);
    (void)life_commit(&l, 30, 21); /* invalidated below: the job resumes from step 20 */
    life_end(&l);

    life_begin(&l, *state, 2);
    life_resume(&l, &twenty);
    put_text(&l, "step-0000000040-o1-g1-0000abcd/unet/config.json", "a save cut short");
    put_text(&l, "step-0000000025-o1-g2-0000abcd/moments/c000000.bin", "one of this generation");
    put_text(&l, "step-0000000001-o1-g1-0000abcd/manifest.json", "not even a manifest");
    put_text(&l, "metrics/metrics-0000000021-0000000040-o1-g1-0000abcd.jsonl", "never committed\n");
    put_text(&l, "notes.txt", "somebody's own");
    put_text(&l, "step-5/notes.txt", "somebody's own");
    (void)life_commit(&l, 29, 21);
    checkpoint_writer_free(TAKE_PTR(l.writer));         /* waits for the end of retention */
    assert_int_equal(count_objects(&l, "metrics/"), 4); /* the segment of step 30 still exists */
    l.writer = testing_writer(&fixture, l.store, l.comm, 2, 0);
    life_resume(&l, &twenty);
    (void)life_commit(&l, 30, 21); /* reaches the step of the invalidated checkpoint */
    assert_kept(&l, "30.2 20.1");
    assert_int_equal(count_objects(&l, "metrics/"), 3);
    assert_int_equal(count_objects(&l, "step-0000000040"), 0);
    assert_int_equal(count_objects(&l, "step-0000000025"), 0);
    assert_int_equal(count_objects(&l, "notes.txt") + count_objects(&l, "step-5/"), 2);
    life_end(&l);
}

/* The record of the commits is lost or old: a job begins at step 0 or at an old step, beside committed checkpoints. No
 * committed checkpoint is removed before a commit has reached its step. */
static void test_lost_record(void **state)
{
    Life l;
    life_begin(&l, *state, 1);
    (void)life_commit(&l, 10, 1);
    (void)life_commit(&l, 20, 11);
    (void)life_commit(&l, 30, 21);
    (void)life_commit(&l, 40, 31);
    assert_kept(&l, "40.1 30.1");

    l.writer = testing_writer(&fixture, l.store, l.comm, 2, 0);
    (void)life_commit(&l, 0, 1);
    assert_kept(&l, "40.1 30.1 0.2");
    assert_int_equal(count_objects(&l, "metrics/"), 4); /* all segments that step 40 lists */

    l.writer = testing_writer(&fixture, l.store, l.comm, 3, 0);
    /* the new commit passes step 30: the keep rules do not keep step 30, and step 30 is not of this history */
    (void)life_commit(&l, 35, 1);
    assert_kept(&l, "40.1 35.3 0.2");
    l.writer = testing_writer(&fixture, l.store, l.comm, 4, 0);
    (void)life_commit(&l, 40, 1);
    assert_kept(&l, "40.4 0.2");
    life_end(&l);
}

/* A world that was replaced, but does not know it yet, removes no objects of the newer generation, nor checkpoints from
 * which the newer generation may have resumed. */
static void test_newer_generation(void **state)
{
    Life l;
    life_begin(&l, *state, 1);
    for (int64_t step = 1; step <= 3; step++)
        (void)life_commit(&l, step, step);
    checkpoint_writer_free(TAKE_PTR(l.writer));
    size_t before = count_objects(&l, "");
    l.writer = testing_writer(&fixture, l.store, l.comm, 1, 0);
    put_text(&l, "step-0000000003-o1-g2-0000abcd/moments/c000000.bin", "being written");
    for (int64_t step = 4; step <= 6; step++)
        (void)life_commit(&l, step, step);
    assert_kept(&l, "6.1 5.1 4.1 3.1 2.1");
    assert_true(count_objects(&l, "") > before);
    life_end(&l);
}

/* The newest two whole checkpoints are kept: a damaged checkpoint does not count. */
static void test_damaged_do_not_count(void **state)
{
    Error err = ERROR_INIT;
    Life l;
    life_begin(&l, *state, 1);
    (void)life_commit(&l, 1, 1);
    (void)life_commit(&l, 2, 2);
    CheckpointResult three = life_save(&l, 3, 3);
    char key[CHECKPOINT_URI_MAX];
    (void)snprintf(key, sizeof(key), "%s", three.uri + strlen(store_uri(l.store)) + 1);
    (void)snprintf(strrchr(key, '/'), 64, "/moments/c000002.bin");
    assert_int_equal(store_delete(l.store, key, &err), 0);
    checkpoint_settle(l.writer, true);
    assert_kept(&l, "3.1 2.1 1.1");

    l.writer = testing_writer(&fixture, l.store, l.comm, 1, 0);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &three);
    assert_int_equal(checkpoint_adopt_history(l.writer, m, &err), 0);
    (void)life_commit(&l, 4, 4);
    checkpoint_writer_free(TAKE_PTR(l.writer));
    l.writer = NULL;
    assert_kept(&l, "4.1 3.1 2.1");
    life_end(&l);
}

/* The list of commits is bounded; checkpoints that leave the list were removed long before. */
static void test_long_history(void **state)
{
    Life l;
    life_begin(&l, *state, 1);
    CheckpointResult last = {0};
    for (int64_t step = 1; step <= MANIFEST_COMMITTED_MAX + 40; step++)
        last = life_commit(&l, step, step);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &last);
    assert_int_equal(m->n_committed, MANIFEST_COMMITTED_MAX);
    /* 96 steps in six segments, then one segment per step */
    assert_int_equal(m->n_segments, 6 + 8);
    assert_kept(&l, "104.1 103.1 100.1");
    life_end(&l);
}

static int setup(void **state)
{
    char folder[] = "/tmp/test-history-XXXXXX";
    *state = mkdtemp(folder) ? strdup(folder) : NULL;
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    int r = folder_remove(*state, NULL);
    free(*state);
    return r;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_published_before, setup, teardown),
        cmocka_unit_test(test_a_million_saves),
        cmocka_unit_test_setup_teardown(test_merged_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held_no_longer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orphans, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_record, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_generation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_do_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_history, setup, teardown),
    };
    log_set_level(LOG_LEVEL_ERROR);
    fixture_open(FIXTURE_SMALL, &fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    return failed;
}
