/* SPDX-License-Identifier: Apache-2.0 */
/* test-journal.c - what a journal holds is what the core saw: a small shell drives the core, with a
 * store of its own in which every decision succeeds, and the journal is replayed. */
#include "controller/journal/journal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "controller/feed/feed.h"
#include "controller/journal/replay.h"

#include <string.h>
#include <sys/stat.h>

static const char job_text[] =
    "{\"name\":\"a\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
    "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
    "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/empty.npy\"},"
    "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
    "\"checkpoint\":{\"uri\":\"file:///c/\"}}";

/* ---- a disk that takes nothing while that file is there ---- */

static const char *fails_while;
static int fails_with;

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    struct stat st;
    if (!fails_while || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || access(fails_while, F_OK) < 0)
        return __real_write(fd, data, n);
    errno = fails_with;
    return -1;
}

typedef struct Shell {
    char folder[64], path[96], old_path[96];
    JournalHead head;
    Journal *journal;
    Feed *feed;
    void *memory;
    Cluster *cluster;
    uint64_t now_usec;
    int64_t revision, world_revision;
    int n_decisions;
} Shell;

static void stamp(const Shell *s, Event *event)
{
    event->now_usec = s->now_usec;
    event->real_usec = s->now_usec + UINT64_C(1700000000) * USEC_PER_SEC;
}

static void tell(Shell *s, Event event);

static void put_text(Shell *s, const char *key, const char *value)
{
    Event event;
    Error err = ERROR_INIT;
    Actions ignored;
    assert_int_equal(feed_event(s->feed, key, value, value ? strlen(value) : 0, 0, ++s->revision,
                                &event, &err),
                     1);
    stamp(s, &event);
    event.more = true;
    journal_record_key(s->journal, &event, key, value);
    cluster_step(s->cluster, &event, &ignored);
}

#define PUT(s, prefix, record, key)                                                                \
    do {                                                                                           \
        _cleanup_free_ char *_text = NULL;                                                         \
        _text = prefix##_encode(record, NULL);                                                     \
        put_text(s, key, _text);                                                                   \
    } while (0)

static void carry_out(Shell *s, const Decision *d)
{
    char key[KEY_MAX];
    s->n_decisions++;
    const int64_t id = d->id;
    if (d->put_world) {
        PUT(s, world_record, &d->world, key_of("lab", KEY_WORLDS, d->job, key));
        s->world_revision = s->revision;
    }
    if (d->put_phase)
        PUT(s, phase_record, &d->phase, key_of("lab", KEY_PHASES, d->job, key));
    if (d->put_incident)
        PUT(s, incident_record, &d->incident, key_of("lab", KEY_INCIDENTS, d->incident.id, key));
    for (int i = 0; i < d->n_cordons; i++)
        PUT(s, cordon_record, &d->cordons[i], key_of("lab", KEY_CORDONS, d->cordons[i].node, key));
    for (int i = 1; i <= 2 && d->remove_generation; i++) {
        const char *node = i == 1 ? "n1" : "n2";
        put_text(s, key_ranks("lab", "a", d->remove_generation, node, key), NULL);
    }
    if (d->remove_incident[0])
        put_text(s, key_of("lab", KEY_INCIDENTS, d->remove_incident, key), NULL);
    tell(s, (Event){
                .kind = EVENT_OUTCOME, .id = id, .outcome = OUTCOME_DONE, .revision = s->revision});
}

static void tell(Shell *s, Event event)
{
    Actions *actions = calloc(1, sizeof(*actions));
    assert_non_null(actions);
    do {
        stamp(s, &event);
        journal_record_event(s->journal, &event);
        cluster_step(s->cluster, &event, actions);
        if (actions->decision.id) {
            journal_record_decision(s->journal, &event, &actions->decision);
            Decision *copy = malloc(sizeof(*copy));
            assert_non_null(copy);
            *copy = actions->decision;
            WorldRun runs[2];
            assert_true(copy->world.n_runs <= 2);
            if (copy->put_world)
                memcpy(runs, copy->world.runs, copy->world.n_runs * sizeof(*runs));
            copy->world.runs = runs;
            carry_out(s, copy);
            free(copy);
        }
        event = (Event){.kind = EVENT_TICK};
    } while (actions->again);
    free(actions);
}

static void open_journal(Shell *s, uint64_t max_bytes)
{
    Error err = ERROR_INIT;
    s->journal = journal_free(s->journal);
    if (journal_new(s->path, max_bytes, &s->head, &s->journal, &err) < 0)
        fail_msg("%s", err.text);
}

static void begin_core(Shell *s)
{
    s->feed = feed_free(s->feed);
    free(s->memory);
    s->memory = calloc(1, cluster_bytes(&s->head.limits));
    assert_non_null(s->memory);
    s->feed = feed_new("lab");
    s->cluster = cluster_init(s->memory, &s->head.limits, &s->head.config);
}

static int shell_begin(void **state)
{
    Shell *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/sdtrain-journal-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    (void)snprintf(s->path, sizeof(s->path), "%s/events.jsonl", s->folder);
    (void)snprintf(s->old_path, sizeof(s->old_path), "%s.1", s->path);
    s->head = (JournalHead){
        .cluster = "lab",
        .version = "0.2.0",
        .config = cluster_config_default,
        .limits = {.nodes = 16, .jobs = 4, .reports = 64, .incidents = 6, .requests = 8}};
    s->head.config.incidents_kept = 5;
    s->head.config.max_strikes = 0;
    s->now_usec = 1000 * USEC_PER_SEC;
    begin_core(s);
    *state = s;
    return 0;
}

static int shell_end(void **state)
{
    Shell *s = *state;
    Error err = ERROR_INIT;
    s->journal = journal_free(s->journal);
    s->feed = feed_free(s->feed);
    free(s->memory);
    assert_int_equal(folder_remove(s->folder, &err), 0);
    free(s);
    return 0;
}

/* ---- the life of a job ---- */

static void put_node(Shell *s, const char *name)
{
    char key[KEY_MAX];
    NodeRecord node = {.machine_id = "m", .incarnation = 1, .n_slots = 1};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    PUT(s, node_record, &node, key_of("lab", KEY_NODES, name, key));
}

static void put_rank(Shell *s, int64_t generation, const char *node, RankReport report,
                     int64_t first_step)
{
    char key[KEY_MAX];
    report.at_usec = report.ready_usec = s->now_usec;
    RanksRecord record = {.incarnation = 1,
                          .generation = generation,
                          .world_revision = s->world_revision,
                          .ranks = &report,
                          .n_ranks = 1,
                          .killed_usec = generation > 1 ? s->now_usec : 0,
                          .first_step = first_step,
                          .first_step_usec = first_step ? s->now_usec : 0};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    PUT(s, ranks_record, &record, key_ranks("lab", "a", generation, node, key));
}

static void tick(Shell *s)
{
    s->now_usec += 10 * USEC_PER_MSEC;
    tell(s, (Event){.kind = EVENT_TICK});
}

static void bring_up(Shell *s, int64_t generation)
{
    put_rank(s, generation, "n1", (RankReport){.rank = 0, .state = RANK_READY}, 0);
    put_rank(s, generation, "n2", (RankReport){.rank = 1, .state = RANK_READY}, 0);
    tick(s);
    put_rank(s, generation, "n1", (RankReport){.rank = 0, .state = RANK_RUNNING}, 10 * generation);
    tick(s);
}

static void begin_job(Shell *s)
{
    char key[KEY_MAX];
    _cleanup_free_ char *copy = strdup(job_text);
    put_node(s, "n1");
    put_node(s, "n2");
    tell(s, (Event){.kind = EVENT_LEADING, .term = 7});
    SpecRecord spec = {.spec = copy, .submitted_usec = 1};
    PUT(s, spec_record, &spec, key_of("lab", KEY_SPECS, "a", key));
    DesiredRecord desired = {.min = 1, .max = 2};
    PUT(s, desired_record, &desired, key_of("lab", KEY_DESIRED, "a", key));
    s->now_usec += USEC_PER_SEC; /* at once none goes: a node may have vanished just before */
    tick(s);
    bring_up(s, 1);
}

static void lose_a_rank(Shell *s, int64_t generation)
{
    s->now_usec += 120 * USEC_PER_SEC;
    put_rank(s, generation, "n2",
             (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9, .text = "gone"}, 0);
    tick(s);
    bring_up(s, generation + 1);
}

/* ---- the replay ---- */

typedef struct Seen {
    int n_heads, n_decisions, n_differences, n_events, n_cut;
    bool calm;
    char text[1024]; /* of the last difference */
} Seen;

static int on_report(const ReplayReport *r, void *userdata)
{
    Seen *seen = userdata;
    seen->n_heads += r->kind == REPLAY_HEAD;
    if (r->kind == REPLAY_HEAD)
        seen->calm = r->head->calm;
    seen->n_events += r->kind == REPLAY_EVENT;
    seen->n_cut += r->kind == REPLAY_CUT;
    if (r->kind != REPLAY_DECISION)
        return 0;
    seen->n_decisions++;
    seen->n_differences += r->differs;
    if (r->differs) {
        _cleanup_free_ char *then = r->then ? json_dumps(r->then, 0) : NULL;
        _cleanup_free_ char *now = r->now ? json_dumps(r->now, 0) : NULL;
        (void)snprintf(seen->text, sizeof(seen->text), "line %zu\n- %s\n+ %s", r->line,
                       then ? then : "", now ? now : "");
    }
    return 0;
}

static Seen replay(const char *path)
{
    Seen seen = {0};
    Error err = ERROR_INIT;
    if (journal_replay(path, on_report, &seen, &err) != 0)
        fail_msg("%s", err.text);
    return seen;
}

static void assert_same(const Seen *seen)
{
    if (seen->n_differences > 0)
        fail_msg("%d differ, the last: %s", seen->n_differences, seen->text);
}

static char *read_journal(const Shell *s)
{
    char *text;
    Error err = ERROR_INIT;
    assert_int_equal(file_read(s->path, 1 << 24, &text, NULL, &err), 0);
    return text;
}

static void write_journal(const Shell *s, const char *text, size_t n)
{
    Error err = ERROR_INIT;
    assert_int_equal(file_write(s->path, text, n, 0, &err), 0);
}

/* Puts `to` where `from`, of the same length, is found first or last. */
static void change(const Shell *s, const char *from, const char *to, bool last)
{
    _cleanup_free_ char *text = read_journal(s);
    char *found = NULL;
    assert_int_equal(strlen(from), strlen(to));
    for (char *at = text; (at = strstr(at, from)) && (last || !found); at++)
        found = at;
    assert_non_null(found);
    memcpy(found, to, strlen(to));
    write_journal(s, text, strlen(text));
}

/* ---- tests ---- */

static void a_life_is_replayed(void **state)
{
    Shell *s = *state;
    open_journal(s, 64 << 20);
    begin_job(s);
    lose_a_rank(s, 1);
    lose_a_rank(s, 2);
    assert_true(s->n_decisions >= 9); /* each generation: a world, go, running */
    Seen seen = replay(s->path);
    assert_same(&seen);
    assert_int_equal(seen.n_decisions, s->n_decisions);
    assert_int_equal(seen.n_heads, 1);
}

/* A small bound: many parts, of which the last two are there, each replayed by itself. */
static void parts_stand_alone_and_are_bounded(void **state)
{
    enum { MAX_BYTES = 256 << 10 };
    Shell *s = *state;
    struct stat st, old_st;
    open_journal(s, MAX_BYTES);
    begin_job(s);
    int n_parts = 0;
    uint64_t last_size = 0;
    for (int64_t generation = 1; generation < 60; generation++) {
        lose_a_rank(s, generation);
        assert_int_equal(stat(s->path, &st), 0);
        n_parts += (uint64_t)st.st_size < last_size;
        last_size = (uint64_t)st.st_size;
        bool has_old = stat(s->old_path, &old_st) == 0;
        assert_true(st.st_size + (has_old ? old_st.st_size : 0) < MAX_BYTES);
    }
    assert_true(n_parts >= 3);
    const char *const paths[] = {s->path, s->old_path};
    for (size_t i = 0; i < 2; i++) {
        Seen seen = replay(paths[i]);
        assert_true(seen.calm);
        assert_same(&seen);
        assert_int_equal(seen.n_heads, 1);
        assert_true(seen.n_decisions > 0);
    }
}

static void a_restart_goes_on_behind_a_cut_line(void **state)
{
    Shell *s = *state;
    open_journal(s, 64 << 20);
    begin_job(s);
    s->journal = journal_free(s->journal);
    _cleanup_free_ char *text = read_journal(s);
    write_journal(s, text, strlen(text) - 20);
    Seen cut = replay(s->path);
    assert_same(&cut);
    assert_int_equal(cut.n_cut, 1);

    begin_core(s);
    s->n_decisions = 0;
    open_journal(s, 64 << 20);
    s->now_usec += 10 * USEC_PER_SEC;
    begin_job(s);
    Seen seen = replay(s->path);
    assert_same(&seen);
    assert_int_equal(seen.n_heads, 2);
    assert_int_equal(seen.n_cut, 0);
}

static void assert_refused(const Shell *s, const char *words)
{
    Seen seen = {0};
    Error err = ERROR_INIT;
    assert_int_equal(journal_replay(s->path, on_report, &seen, &err), -EINVAL);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, err.text);
}

static void a_bad_line_is_named(void **state)
{
    Shell *s = *state;
    open_journal(s, 64 << 20);
    begin_job(s);
    change(s, "{\"key\":", "[\"key\":", true); /* the last one is followed by ticks */
    assert_refused(s, "events.jsonl:");
    change(s, "[\"key\":", "{\"key\":", true);
    change(s, "\"nodes\":16", "\"nodes\":-1", false);
    assert_refused(s, "events.jsonl:1: limits.nodes: -1 is not in ");
    change(s, "\"journal\"", "\"diary\"  ", false);
    assert_refused(s, "events.jsonl:1: not the journal of a controller");
    write_journal(s, "", 0);
    assert_refused(s, "events.jsonl: empty");
    write_journal(s, "{\"journal\":2}", 13);
    assert_refused(s, "events.jsonl:1: journal: 2 is not in ");
}

/* What was recorded is not what this core decides. */
static void a_difference_shows_both(void **state)
{
    Shell *s = *state;
    open_journal(s, 64 << 20);
    begin_job(s);
    lose_a_rank(s, 1);
    change(s, "incident a-1: trainer-died", "incident b-1: trainer-died", false);
    Seen seen = replay(s->path);
    assert_int_equal(seen.n_differences, 1);
    assert_int_equal(seen.n_decisions, s->n_decisions);
    assert_non_null(strstr(seen.text, "- [\"incident b-1: trainer-died"));
    assert_non_null(strstr(seen.text, "+ [\"incident a-1: trainer-died"));
}

/* Recorded settings are used, and those that were changed on the way. */
static void settings_are_replayed(void **state)
{
    Shell *s = *state;
    s->head.config.max_strikes = 1; /* of a rank that dies: its node goes at once */
    begin_core(s);
    open_journal(s, 64 << 20);
    begin_job(s);
    Event event = {0};
    stamp(s, &event);
    s->head.config.max_strikes = 2;
    cluster_configure(s->cluster, &s->head.config);
    journal_record_config(s->journal, &event, &s->head.config);
    lose_a_rank(s, 1);
    Seen seen = replay(s->path);
    assert_same(&seen);

    change(s, "\"max_strikes\":2", "\"max_strikes\":1", true); /* then it matters */
    seen = replay(s->path);
    assert_true(seen.n_differences > 0);
}

/* A list of nodes that was loaded on the way decides about the world that follows. */
static void a_list_of_nodes_is_replayed(void **state)
{
    Shell *s = *state;
    open_journal(s, 64 << 20);
    begin_job(s);
    Event event = {0};
    stamp(s, &event);
    (void)snprintf(s->head.config.admit, sizeof(s->head.config.admit), "%s", "n2");
    cluster_configure(s->cluster, &s->head.config);
    journal_record_config(s->journal, &event, &s->head.config);
    lose_a_rank(s, 1);
    Seen seen = replay(s->path);
    assert_same(&seen);

    change(s, "\"admit\":\"n2\"", "\"admit\":\"n1\"", true); /* then it matters */
    seen = replay(s->path);
    assert_true(seen.n_differences > 0);
    assert_non_null(strstr(seen.text, " n2 "));
}

static void texts_of_the_settings_survive(_unused_ void **state)
{
    ClusterConfig config = cluster_config_default, back;
    Error err = ERROR_INIT;
    (void)snprintf(config.admit, sizeof(config.admit), "n*");
    (void)snprintf(config.prices, sizeof(config.prices), "p5*=12.29");
    _cleanup_json_ json_t *object = journal_config_json(&config);
    assert_int_equal(journal_config_read("line", object, &back, &err), 0);
    assert_string_equal(back.admit, config.admit);
    assert_string_equal(back.prices, config.prices);
}

static void a_disk_that_fails_is_tried_again(void **state)
{
    Shell *s = *state;
    char blocked[128];
    Error err = ERROR_INIT;
    open_journal(s, 256 << 10);
    (void)snprintf(blocked, sizeof(blocked), "%s.new/x", s->path); /* no part can begin */
    assert_int_equal(folder_make(blocked, &err), 0);
    begin_job(s);
    int64_t generation = 1;
    for (; generation < 40; generation++)
        lose_a_rank(s, generation);
    blocked[strlen(blocked) - 2] = '\0';
    assert_int_equal(folder_remove(blocked, &err), 0);
    for (; generation < 44; generation++)
        lose_a_rank(s, generation);
    Seen seen = replay(s->path);
    assert_same(&seen);
    assert_true(seen.n_decisions > 0);
    seen = replay(s->old_path);
    assert_same(&seen);
}

/* The part before makes way where there is no room for a new one, and only there. */
static void a_full_disk_loses_the_part_before(void **state)
{
    Shell *s = *state;
    struct stat st;
    open_journal(s, 256 << 10);
    begin_job(s);
    int64_t generation = 1;
    while (stat(s->old_path, &st) < 0)
        lose_a_rank(s, generation++);
    const ino_t before = st.st_ino;
    fails_while = s->old_path;
    fails_with = EIO;
    for (int i = 0; i < 20; i++)
        lose_a_rank(s, generation++);
    assert_int_equal(stat(s->old_path, &st), 0);
    assert_int_equal(st.st_ino, before);
    fails_with = ENOSPC;
    for (int i = 0; i < 20 && fails_while; i++) {
        lose_a_rank(s, generation++);
        if (stat(s->old_path, &st) < 0 || st.st_ino != before)
            fails_while = NULL;
    }
    assert_null(fails_while);
    for (int i = 0; i < 3; i++)
        lose_a_rank(s, generation++);
    Seen seen = replay(s->path);
    assert_same(&seen);
    assert_true(seen.n_decisions > 0);
}

#define WITH_SHELL(test) cmocka_unit_test_setup_teardown(test, shell_begin, shell_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SHELL(a_life_is_replayed),
        WITH_SHELL(parts_stand_alone_and_are_bounded),
        WITH_SHELL(a_restart_goes_on_behind_a_cut_line),
        WITH_SHELL(a_bad_line_is_named),
        WITH_SHELL(a_difference_shows_both),
        WITH_SHELL(settings_are_replayed),
        WITH_SHELL(a_list_of_nodes_is_replayed),
        cmocka_unit_test(texts_of_the_settings_survive),
        WITH_SHELL(a_disk_that_fails_is_tried_again),
        WITH_SHELL(a_full_disk_loses_the_part_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
