/* SPDX-License-Identifier: Apache-2.0 */
/* test-feed-keys.c - which keys become events, of which kind and name, and which texts a Feed remembers. */
#include "base/test/testing-leaks.h"
#include "cluster/keys.h"
#include "controller/feed/feed.h"

#include <string.h>

#define LAB "/sdtrain/lab/"

/* Keys of job a and others: the event's kind, which texts are remembered, and the event's names. */
static const struct {
    const char *key;
    EventKind kind;
    bool has_text; /* the leader rewrites the record */
    bool has_last; /* the leader puts the record back */
    const char *name, *node;
    int64_t generation;
} keys[] = {
    {LAB "nodes/n1", EVENT_NODE, false, false, "n1", "", 0},
    {LAB "cordons/n1", EVENT_CORDON, true, false, "n1", "", 0},
    {LAB "specs/a", EVENT_SPEC, false, true, "a", "", 0},
    {LAB "desired/a", EVENT_DESIRED, true, true, "a", "", 0},
    {LAB "worlds/a", EVENT_WORLD, false, false, "a", "", 0},
    {LAB "phases/a", EVENT_PHASE, true, true, "a", "", 0},
    {LAB "ranks/a/3/n1", EVENT_RANKS, false, false, "a", "n1", 3},
    {LAB "rendezvous/a/4", EVENT_RENDEZVOUS, false, false, "a", "", 4},
    {LAB "checkpoints/a", EVENT_CHECKPOINTS, true, true, "a", "", 0},
    {LAB "progress/a", EVENT_PROGRESS, false, false, "a", "", 0},
    {LAB "incidents/a-1", EVENT_INCIDENT, true, false, "a-1", "", 0},
    {LAB "alerts/a-1 b", EVENT_ALERT, true, false, "a-1 b", "", 0},
    {LAB "requests/R~1", EVENT_REQUEST, true, false, "R~1", "", 0},
};

static WorldRun one_run = {.node = "n1", .incarnation = 1, .slots = 1};
static RankReport one_report = {.rank = 0};

/* Returns a readable record of that kind; NULL: the test has none. */
static char *record_of(EventKind kind)
{
    switch (kind) {
    case EVENT_NODE:
        return node_record_encode(
            &(NodeRecord){.name = "n1", .machine_id = "m", .incarnation = 1, .n_slots = 1}, NULL);
    case EVENT_CORDON:
        return cordon_record_encode(&(CordonRecord){.node = "n1"}, NULL);
    case EVENT_SPEC: {
        char job[] = "{}";
        return spec_record_encode(&(SpecRecord){.spec = job, .submitted_usec = 1}, NULL);
    }
    case EVENT_DESIRED:
        return desired_record_encode(&(DesiredRecord){.min = 1, .max = 2}, NULL);
    case EVENT_WORLD:
        return world_record_encode(
            &(WorldRecord){.generation = 1, .size = 1, .runs = &one_run, .n_runs = 1}, NULL);
    case EVENT_PHASE:
        return phase_record_encode(&(PhaseRecord){.generation = 1}, NULL);
    case EVENT_RANKS:
        return ranks_record_encode(&(RanksRecord){.node = "n1",
                                                  .incarnation = 1,
                                                  .generation = 3,
                                                  .ranks = &one_report,
                                                  .n_ranks = 1},
                                   NULL);
    case EVENT_CHECKPOINTS:
        return checkpoints_record_encode(&(CheckpointsRecord){0}, NULL);
    case EVENT_PROGRESS:
        return progress_record_encode(&(ProgressRecord){.generation = 1}, NULL);
    case EVENT_INCIDENT:
        return incident_record_encode(
            &(IncidentRecord){.id = "a-1", .cause = "hang", .generation = 1}, NULL);
    default:
        return NULL;
    }
}

static int feed_text_of(Feed *feed, const char *key, const char *text, Event *ret)
{
    Error err = ERROR_INIT;
    int r = feed_event(feed, key, text, text ? strlen(text) : 0, 17, 19, ret, &err);
    if (r < 0 || (r > 0 && ret->health)) /* the error names the key */
        assert_int_equal(strncmp(err.text, key, strlen(LAB) + 4), 0);
    return r;
}

static void take(Feed *feed, const char *key, const char *text)
{
    Event event;
    assert_int_equal(feed_text_of(feed, key, text, &event), 1);
}

static void each_kind_is_its_own(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
        _cleanup_free_ char *text = record_of(keys[i].kind);
        const char *const texts[] = {text ? text : "{", "{", "{\"v\":99}", NULL};
        for (size_t k = 0; k < ELEMENTSOF(texts); k++) {
            Event event;
            memset(&event, 0xff, sizeof(event));
            assert_int_equal(feed_text_of(feed, keys[i].key, texts[k], &event), 1);
            assert_int_equal(event.kind, keys[i].kind);
            assert_string_equal(event.name, keys[i].name);
            assert_string_equal(event.node, keys[i].node);
            assert_int_equal(event.generation, keys[i].generation);
            assert_int_equal(event.created, 17);
            assert_int_equal(event.revision, 19);
            assert_false(event.more || event.stalled);
            assert_int_equal(event.now_usec + event.real_usec + (uint64_t)event.lease, 0);
            const bool readable = k == 0 && text;
            if (!readable && k < 3)
                assert_int_equal(event.health, k == 2 ? RECORD_FOREIGN : RECORD_DAMAGED);
            else
                assert_int_equal(event.health, RECORD_READABLE);
            assert_int_equal(event.record != NULL, readable);
        }
    }
}

static void what_is_no_key_of_ours_is_none(_unused_ void **state)
{
    static const struct {
        const char *key;
        int r;
    } cases[] = {
        {"/sdtrain/lab2/nodes/n1", 0},
        {"/sdtrain/la/nodes/n1", 0},
        {LAB "strange/n1", 0},
        {LAB "leader/7", 0},
        {LAB "health/n1", 0},
        {LAB "nodes/N1", -EINVAL},
        {LAB "nodes/n1/x", -EINVAL},
        {LAB "incidents/a/b", -EINVAL},
        {LAB "incidents/\xff", -EINVAL},
        {LAB "alerts/a\x7f", -EINVAL},
        {LAB "requests/\x1f", -EINVAL},
        {LAB "requests/\xc3\xa4", -EINVAL},
        {LAB "ranks/a/3", -EINVAL},
        {LAB "ranks/a/0/n1", -EINVAL},
        {LAB "rendezvous/a", -EINVAL},
        {LAB "rendezvous/a/3/n1", -EINVAL},
        {LAB "specs/0123456789012345678901234567890123456789012345678901234567890123456789",
         -EINVAL},
    };
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Event event;
        const int r = feed_text_of(feed, cases[i].key, "{", &event);
        if (r != cases[i].r)
            fail_msg("%s: %d", cases[i].key, r);
    }
    feed_mark(feed);
    assert_null(feed_next_unseen(feed)); /* none of these keys is known */
}

/* A name of the greatest length fits into an event; a longer one is refused. */
static void a_name_fits_or_is_refused(_unused_ void **state)
{
    char key[KEY_MAX] = LAB "incidents/";
    const size_t n = strlen(key), n_name = sizeof(((Event *)NULL)->name);
    Event event;
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    memset(key + n, 'x', n_name - 1);
    key[n + n_name - 1] = '\0';
    assert_int_equal(feed_text_of(feed, key, "{", &event), 1);
    assert_string_equal(event.name, key + n);
    memcpy(key + n + n_name - 1, "x", 2);
    assert_int_equal(feed_text_of(feed, key, "{", &event), -EINVAL);

    char job[RECORD_JOB_MAX + 1] = "";
    memset(job, 'j', RECORD_JOB_MAX);
    assert_int_equal(feed_text_of(feed, key_ranks("lab", job, 3, job, key), NULL, &event), 1);
    assert_string_equal(event.name, job);
    assert_string_equal(event.node, job);
    assert_int_equal(feed_text_of(feed, key_rendezvous("lab", job, 3, key), NULL, &event), 1);
    assert_string_equal(event.name, job);
}

static void texts_are_those_that_the_leader_needs(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
        _cleanup_free_ char *text = record_of(keys[i].kind);
        const char *key = keys[i].key;
        assert_null(feed_text(feed, key));
        assert_null(feed_last(feed, key));
        take(feed, key, text ? text : "{}");
        if (keys[i].has_text)
            assert_string_equal(feed_text(feed, key), text ? text : "{}");
        else
            assert_null(feed_text(feed, key));
        if (keys[i].has_last)
            assert_string_equal(feed_last(feed, key), text);
        else
            assert_null(feed_last(feed, key));
        take(feed, key, "{");
        if (keys[i].has_text) /* feed_text() returns unreadable text, too; feed_last() does not */
            assert_string_equal(feed_text(feed, key), "{");
        if (keys[i].has_last)
            assert_string_equal(feed_last(feed, key), text);
        take(feed, key, NULL);
        assert_null(feed_text(feed, key));
    }
}

/* A job's texts are kept while any of its five records exists, and are dropped with the last one. */
static void texts_go_with_the_last_record(_unused_ void **state)
{
    static const size_t its[] = {2, 3, 4, 5, 8};
    for (size_t last = 0; last < ELEMENTSOF(its); last++) {
        _cleanup_(feed_freep) Feed *feed = feed_new("lab");
        for (size_t i = 0; i < ELEMENTSOF(its); i++) {
            _cleanup_free_ char *text = record_of(keys[its[i]].kind);
            take(feed, keys[its[i]].key, text);
        }
        for (size_t i = 0; i < ELEMENTSOF(its); i++)
            if (i != last)
                take(feed, keys[its[i]].key, NULL);
        for (size_t i = 0; i < ELEMENTSOF(its); i++)
            assert_int_equal(feed_last(feed, keys[its[i]].key) != NULL, keys[its[i]].has_last);
        take(feed, LAB "ranks/a/3/n1", NULL); /* not a record of the job itself */
        take(feed, LAB "desired/ab", NULL);   /* a record of another job */
        assert_non_null(feed_last(feed, LAB "specs/a"));
        take(feed, keys[its[last]].key, NULL);
        for (size_t i = 0; i < ELEMENTSOF(its); i++)
            assert_null(feed_last(feed, keys[its[i]].key));
    }
}

static void what_a_read_does_not_show_is_gone(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    char seen[4][KEY_MAX];
    int n = 0;
    assert_null(feed_next_unseen(feed)); /* no re-read has begun */
    take(feed, LAB "nodes/n1", "{");
    take(feed, LAB "nodes/n2", "{");
    take(feed, LAB "cordons/n1", "{");
    take(feed, LAB "nodes/n3", "{");
    take(feed, LAB "nodes/n3", NULL);
    feed_mark(feed);
    take(feed, LAB "nodes/n2", "{");
    take(feed, LAB "nodes/n4", "{"); /* a new key */
    for (const char *key; (key = feed_next_unseen(feed)); n++) {
        assert_true(n < 2);
        (void)snprintf(seen[n], KEY_MAX, "%s", key);
        take(feed, seen[n], NULL); /* the shell, too, reports each unseen key to the feed as gone */
    }
    assert_int_equal(n, 2);
    const bool first = strcmp(seen[0], LAB "nodes/n1") == 0;
    assert_string_equal(seen[!first], LAB "nodes/n1");
    assert_string_equal(seen[first], LAB "cordons/n1");
    assert_null(feed_next_unseen(feed));
    /* A re-read that begins before another has ended counts all known keys again. */
    feed_mark(feed);
    assert_non_null(feed_next_unseen(feed));
    feed_mark(feed);
    take(feed, LAB "nodes/n4", "{");
    assert_string_equal(feed_next_unseen(feed), LAB "nodes/n2");
    assert_null(feed_next_unseen(feed));
    take(feed, LAB "nodes/n5", "{"); /* outside of a re-read no key is missed */
    assert_null(feed_next_unseen(feed));
}

static void put_node(Feed *feed, const char *features)
{
    NodeRecord node = {.name = "n1", .machine_id = "m", .incarnation = 1, .n_slots = 1};
    (void)snprintf(node.features, sizeof(node.features), "%s", features);
    _cleanup_free_ char *text = node_record_encode(&node, NULL);
    take(feed, LAB "nodes/n1", text);
}

static void a_node_knows_what_its_record_says(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    assert_false(feed_node_knows(feed, "n1", "secrets"));
    put_node(feed, "doctor secrets");
    assert_true(feed_node_knows(feed, "n1", "secrets"));
    assert_true(feed_node_knows(feed, "n1", "doctor"));
    assert_false(feed_node_knows(feed, "n1", "secret"));
    assert_false(feed_node_knows(feed, "n2", "secrets"));
    take(feed, LAB "cordons/n1", "{"); /* a cordon record has no features */
    assert_true(feed_node_knows(feed, "n1", "secrets"));
    put_node(feed, "doctor");
    assert_false(feed_node_knows(feed, "n1", "secrets"));
    take(feed, LAB "nodes/n1", "{"); /* an unreadable record has no features */
    assert_false(feed_node_knows(feed, "n1", "doctor"));
    put_node(feed, "doctor");
    take(feed, LAB "nodes/n1", NULL);
    assert_false(feed_node_knows(feed, "n1", "doctor"));
}

/* A job file of another job, and one that does not parse, are events that refuse the job. */
static void a_job_file_that_is_refused_is_a_fact(_unused_ void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"name\":\"b\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
         "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
         "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/e.npy\"},"
         "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
         "\"checkpoint\":{\"uri\":\"file:///c/\"}}",
         "specs/a: name: \"b\" is not the name in the key"},
        {"{\"name\":\"a\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
         "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
         "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/e.npy\"},"
         "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
         "\"checkpoint\":{\"uri\":\"file:///c/\"}}",
         ""},
        {"{", "specs/a: line 1, column"},
    };
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Event event;
        _cleanup_free_ char *copy = strdup(cases[i].text);
        _cleanup_free_ char *text =
            spec_record_encode(&(SpecRecord){.spec = copy, .submitted_usec = 1}, NULL);
        assert_int_equal(feed_text_of(feed, LAB "specs/a", text, &event), 1);
        assert_int_equal(event.health, RECORD_READABLE);
        assert_non_null(strstr(event.spec->refused, cases[i].words));
        assert_int_equal(event.spec->arrival, 17);
        /* a refused job file sets no fact */
        assert_int_equal(event.spec->max, cases[i].words[0] ? 0 : 2);
    }
}

static void live_once(_unused_ void *arg)
{
    Feed *feed = feed_new("lab");
    for (size_t i = 0; i < 3 * ELEMENTSOF(keys); i++) {
        const size_t k = i % ELEMENTSOF(keys);
        _cleanup_free_ char *text = record_of(keys[k].kind);
        if (i == 2 * ELEMENTSOF(keys))
            feed_mark(feed);
        take(feed, keys[k].key, text ? text : "{");
    }
    while (feed_next_unseen(feed))
        ;
    feed_mark(feed);
    feed_mark(feed);
    _cleanup_free_ char *world = record_of(EVENT_WORLD);
    take(feed, keys[4].key, world); /* the feed is freed while it holds this record */
    assert_null(feed_free(feed));
    assert_null(feed_free(NULL));
}

static void nothing_stays_in_memory(_unused_ void **state) { leaks_none(live_once, NULL); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_its_own),
        cmocka_unit_test(what_is_no_key_of_ours_is_none),
        cmocka_unit_test(a_name_fits_or_is_refused),
        cmocka_unit_test(texts_are_those_that_the_leader_needs),
        cmocka_unit_test(texts_go_with_the_last_record),
        cmocka_unit_test(what_a_read_does_not_show_is_gone),
        cmocka_unit_test(a_node_knows_what_its_record_says),
        cmocka_unit_test(a_job_file_that_is_refused_is_a_fact),
        cmocka_unit_test(nothing_stays_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
