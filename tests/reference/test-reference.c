/* SPDX-License-Identifier: Apache-2.0 */
/* test-reference.c - the reference of the job file agrees with job.c: its keys, its defaults, and
 * which keys are required. */
#include "base/json/json.h"
#include "base/test/testing.h"
#include "protocol/job.h"
#include "tests/reference/protocol-texts.h"

#include <string.h>

static const char *const minimal =
    "{\"name\": \"demo\", \"world\": {\"min\": 1, \"max\": 3}, \"model\": {\"config\": "
    "\"unet.json\"},"
    " \"data\": {\"streams\": [{\"uri\": \"/data\"}], \"empty_text\": \"/data/empty.npy\"},"
    " \"train\": {\"global_batch\": 32, \"grain\": 4, \"steps\": 100},"
    " \"checkpoint\": {\"uri\": \"/ckpt\"}}";

static const char *const minimal_exec =
    "{\"name\": \"demo\", \"kind\": \"exec\", \"world\": {\"min\": 2, \"max\": 4}, \"exec\": "
    "{\"command\": [\"a\"], \"dir\": \"/a\", \"progress\": {\"step\": \"(a)\"}}}";

static const char *const minimal_eval =
    "{\"name\": \"demo\", \"kind\": \"eval\", \"of\": {\"job\": \"other\"}, \"world\": {\"min\": 2, "
    "\"max\": 4}, \"exec\": {\"command\": [\"a\"], \"dir\": \"/a\"}, \"checkpoint\": {\"uri\": \"/c\"}}";

static const char *const minimal_loss =
    "{\"name\": \"demo\", \"kind\": \"eval\", \"of\": {\"job\": \"other\"}, \"world\": {\"min\": 1, "
    "\"max\": 1}, \"loss\": {\"streams\": [{\"uri\": \"/data\"}]}, \"checkpoint\": {\"uri\": \"/c\"}}";

static const char *const minimal_grid =
    "{\"name\": \"demo\", \"kind\": \"eval\", \"of\": {\"job\": \"other\"}, \"world\": {\"min\": 1, "
    "\"max\": 1}, \"grid\": {\"streams\": [{\"uri\": \"/data\"}], \"uri\": \"/p\"}, \"checkpoint\": "
    "{\"uri\": \"/c\"}}";

/* The keys of a kind of job, and its smallest job. */
static const struct Kind {
    const JobKey *keys;
    const size_t *n;
    const char *const *minimal;
    int n_defaults; /* at least so many keys have a default */
} kinds[] = {{job_keys, &n_job_keys, &minimal, 31},
             {exec_job_keys, &n_exec_job_keys, &minimal_exec, 8},
             {eval_job_keys, &n_eval_job_keys, &minimal_eval, 3},
             {loss_job_keys, &n_loss_job_keys, &minimal_loss, 4},
             {grid_job_keys, &n_grid_job_keys, &minimal_grid, 6}};

/* Returns the minimal job in which the key, which is a path, has the value; if value is NULL, the
 * job does not have the key. Consumes value. The caller frees the result. */
static char *with(const struct Kind *kind, const char *key, json_t *value)
{
    json_t *root = json_loads(*kind->minimal, 0, NULL), *at = root;
    assert_non_null(root);
    /* an EMA has defaults only if the job has an EMA */
    if (strncmp(key, "train.ema.", 10) == 0)
        (void)json_object_set_new(json_object_get(root, "train"), "ema", json_object());
    char part[64];
    const char *p = key;
    for (const char *dot; (dot = strchr(p, '.')); p = dot + 1) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(dot - p), p);
        if (!json_object_get(at, part))
            (void)json_object_set_new(at, part, json_object());
        at = json_object_get(at, part);
    }
    if (value)
        assert_int_equal(json_object_set_new(at, p, value), 0);
    else
        (void)json_object_del(at, p); /* the key may be absent */
    char *text = json_dumps(root, 0);
    json_decref(root);
    assert_non_null(text);
    return text;
}

static Job *parse(char *text)
{
    Error err = ERROR_INIT;
    Job *job = NULL;
    int r = job_parse_any("job.json", text, strlen(text), &job, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    free(text);
    return job;
}

static void assert_same_text(const char *key, const char *a, const char *b)
{
    if (!a != !b || (a && strcmp(a, b) != 0))
        fail_msg("%s: %s is not the default %s", key, b, a);
}

/* Compares all fields that may have a default. */
static void assert_same(const char *key, const Job *a, const Job *b)
{
    bool same =
        a->priority == b->priority && memcmp(&a->world, &b->world, sizeof(a->world)) == 0 &&
        a->model.init == b->model.init && a->model.init_optimizer == b->model.init_optimizer &&
        a->data.latent_scale == b->data.latent_scale &&
        a->data.shuffle_window == b->data.shuffle_window &&
        a->data.cache_bytes == b->data.cache_bytes && a->data.read_ahead == b->data.read_ahead &&
        a->data.read_ahead_bytes == b->data.read_ahead_bytes &&
        memcmp(&a->train, &b->train, sizeof(a->train)) == 0 &&
        a->checkpoint.every_steps == b->checkpoint.every_steps &&
        a->checkpoint.keep_last == b->checkpoint.keep_last &&
        a->checkpoint.keep_every == b->checkpoint.keep_every &&
        a->checkpoint.local_bytes == b->checkpoint.local_bytes &&
        memcmp(&a->recovery, &b->recovery, sizeof(a->recovery)) == 0 &&
        a->eval.work == b->eval.work && a->eval.of == b->eval.of &&
        a->eval.positions == b->eval.positions && a->eval.grid.samples == b->eval.grid.samples &&
        a->eval.grid.steps == b->eval.grid.steps &&
        a->eval.grid.guidance == b->eval.grid.guidance && a->eval.grid.seed == b->eval.grid.seed &&
        a->exec.device == b->exec.device && a->exec.own_gpu == b->exec.own_gpu &&
        a->exec.notify == b->exec.notify && a->exec.steps == b->exec.steps &&
        a->exec.leave_sec == b->exec.leave_sec && a->exec.leave_signal == b->exec.leave_signal &&
        a->exec.silence_sec == b->exec.silence_sec && a->exec.fence_sec == b->exec.fence_sec &&
        hash_equal(a->identity, b->identity);
    if (!same)
        fail_msg("%s: the default of the reference is not the one of job.c", key);
    assert_int_equal(a->of.every_steps, b->of.every_steps);
    if (job_is_program(a))
        return;
    assert_same_text(key, a->data.latents, b->data.latents);
    assert_same_text(key, a->data.text, b->data.text);
}

static void check_defaults(const struct Kind *kind)
{
    int n = 0;
    for (size_t i = 0; i < *kind->n; i++) {
        const JobKey *k = &kind->keys[i];
        if (!k->value)
            continue;
        json_t *value = json_loads(k->value, JSON_DECODE_ANY, NULL);
        if (!value)
            fail_msg("%s: %s is not JSON", k->key, k->value);
        _cleanup_(job_freep) Job *absent = parse(with(kind, k->key, NULL));
        _cleanup_(job_freep) Job *given = parse(with(kind, k->key, value));
        assert_same(k->key, absent, given);
        n++;
    }
    assert_true(n >= kind->n_defaults);
}

static void defaults_are_those_of_the_parser(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        check_defaults(&kinds[i]);
}

/* The parser knows each key of the reference: it refuses a key for its type or its value, never for
 * its name. */
static void check_keys(const struct Kind *kind)
{
    for (size_t i = 0; i < *kind->n; i++) {
        const JobKey *k = &kind->keys[i];
        Error err = ERROR_INIT;
        Job *job = NULL;
        char *text = with(kind, k->key, json_pack("[{s:i}]", "no-value-of-any-key", 1));
        assert_int_equal(job_parse_any("job.json", text, strlen(text), &job, &err), -EINVAL);
        assert_null(job);
        const char *named =
            strstr(err.text, strrchr(k->key, '.') ? strrchr(k->key, '.') + 1 : k->key);
        if (!named || strstr(err.text, "unknown"))
            fail_msg("%s: %s", k->key, err.text);
        free(text);
    }
}

static void the_parser_knows_each_key(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        check_keys(&kinds[i]);
}

static void check_required(const struct Kind *kind)
{
    for (size_t i = 0; i < *kind->n; i++) {
        const JobKey *k = &kind->keys[i];
        Error err = ERROR_INIT;
        Job *job = NULL;
        char *text = with(kind, k->key, NULL);
        int r = job_parse_any("job.json", text, strlen(text), &job, &err);
        bool must = k->required;
        if (must != (r < 0))
            fail_msg("%s: required %d, but without it: %d %s", k->key, must, r, err.text);
        job = job_free(job);
        free(text);
    }
}

static void what_is_required_is_missed(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        check_required(&kinds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_parser),
        cmocka_unit_test(the_parser_knows_each_key),
        cmocka_unit_test(what_is_required_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
