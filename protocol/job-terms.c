/* SPDX-License-Identifier: Apache-2.0 */
/* job-terms.c - see job-terms.h. */
#include "protocol/job-terms.h"

#include "base/json/json-diff.h"
#include "base/json/json.h"
#include "base/memory.h"

#include <string.h>

int job_terms_identity(const Job *job, const JobNamed *named, Hash *ret)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    int r = hasher_new(&hasher);
    if (r < 0)
        return r;
    const Hash own = job_identity(job, named->latents, named->text);
    hasher_update(hasher, &own, sizeof(own));
    hasher_update(hasher, named->config, strlen(named->config));
    if (named->empty)
        hasher_update(hasher, named->empty, named->empty_bytes);
    *ret = hasher_digest(hasher);
    return 0;
}

char *job_terms_format(const Job *job, const JobNamed *named)
{
    _cleanup_free_ char *canonical = job_canonical(job, named->latents, named->text);
    _cleanup_json_ json_t *json = json_loads(canonical, 0, NULL);
    assert(json); /* job_canonical() has written valid JSON */
    if (named->config)
        json_object_set_new(json_object_get(json, "model"), "config",
                            json_hash(hash_bytes(named->config, strlen(named->config))));
    if (named->empty)
        json_object_set_new(json_object_get(json, "data"), "empty_text",
                            json_hash(hash_bytes(named->empty, named->empty_bytes)));
    _cleanup_free_ char *text =
        memory_given(json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)));
    return strlen(text) < JOB_TERMS_MAX ? TAKE_PTR(text) : NULL;
}

/* A key of the canonical text that has another name in the job file, and the job file's words for its numbers. */
typedef struct Term {
    const char *canonical, *key;
    const char *words[4];
} Term;

static const Term terms[] = {
    {"model.init", "model.init", {"random", "safetensors", "checkpoint"}},
    {"model.optimizer", "model.init.optimizer", {NULL}},
    {"model.config", "model.config (hash)", {NULL}},
    {"data.empty_text", "data.empty_text (hash)", {NULL}},
    {"train.device", "train.device", {"cpu", "cuda"}},
    {"train.precision", "train.precision", {"fp32", "bf16", "fp16"}},
    {"train.reduction", "train.reduction", {"exact", "exact64", "float"}},
    {"train.prediction", "train.prediction", {"epsilon", "v_prediction"}},
    {"train.noise.start", "train.noise_schedule.beta_start", {NULL}},
    {"train.noise.end", "train.noise_schedule.beta_end", {NULL}},
    {"train.noise.steps", "train.noise_schedule.steps", {NULL}},
    {"optimizer.lr", "train.optimizer.lr", {NULL}},
    {"optimizer.beta1", "train.optimizer.betas[0]", {NULL}},
    {"optimizer.beta2", "train.optimizer.betas[1]", {NULL}},
    {"optimizer.eps", "train.optimizer.eps", {NULL}},
    {"optimizer.weight_decay", "train.optimizer.weight_decay", {NULL}},
    {"optimizer.warmup", "train.optimizer.warmup_steps", {NULL}},
    {"optimizer.clip", "train.optimizer.clip_norm", {NULL}},
    {"ema.enabled", "train.ema", {NULL}},
    {"ema.decay", "train.ema.decay", {NULL}},
    {"ema.start", "train.ema.start_step", {NULL}},
};

static const Term *find_term(const char *canonical)
{
    for (size_t i = 0; i < ELEMENTSOF(terms); i++)
        if (strcmp(terms[i].canonical, canonical) == 0)
            return &terms[i];
    return NULL;
}

/* Returns the word for a number. A number without a known word, for example of a newer version, stays a number. */
static json_t *word_of(const Term *term, json_t *value)
{
    const json_int_t i = json_integer_value(value);
    const bool is_known = term && json_is_integer(value) && i >= 0 &&
                          (size_t)i < ELEMENTSOF(term->words) && term->words[i];
    return is_known ? json_string(term->words[i]) : json_incref(value);
}

json_t *job_terms_parse(const char *text)
{
    _cleanup_json_ json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(json))
        return NULL;
    _cleanup_json_ json_t *flat = json_flat(json);
    json_t *ret = json_object();
    json_object_set_new(ret, "train.device", json_string("cpu")); /* a CPU job omits the key */
    const char *name;
    json_t *value;
    json_object_foreach (flat, name, value) {
        const Term *term = find_term(name);
        json_object_set_new(ret, term ? term->key : name, word_of(term, value));
    }
    return ret;
}

size_t job_terms_diff(const char *was, const char *is, char *text, size_t size)
{
    _cleanup_json_ json_t *a = job_terms_parse(was), *b = job_terms_parse(is);
    *text = '\0';
    return a && b ? json_diff_format(a, b, text, size) : 0;
}
