/* SPDX-License-Identifier: Apache-2.0 */
/* diff-side.c - see diff-side.h. */
#include "ctl/job/watch/diff-side.h"

#include "base/file.h"
#include "base/json/json-diff.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "data/dataset-terms.h"
#include "data/index-open.h"
#include "manifest/manifest.h"
#include "protocol/unet-config.h"

#include <string.h>

#define MANIFEST "manifest.json"

bool diff_side_is_job(const char *name) { return !strpbrk(name, "/."); }

static bool is_manifest(const char *name)
{
    const size_t n = strlen(name), end = strlen(MANIFEST);
    return n >= end && strcmp(name + n - end, MANIFEST) == 0;
}

static void note(DiffSide *side, const char *what, const Error *why)
{
    if (side->n_notes < DIFF_NOTES_MAX)
        (void)snprintf(side->notes[side->n_notes++], sizeof(side->notes[0]), "%s: %s: %s",
                       side->name, what, why->text);
}

/* ---- the facts in a checkpoint ---- */

static json_t *flat_of(const char *text)
{
    _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
    return json_is_object(json) ? json_flat(json) : NULL;
}

static json_t *computes_of(const CheckpointFacts *f)
{
    _cleanup_json_ json_t *numerics = json_loads(f->numerics, 0, NULL);
    _cleanup_json_ json_t *json =
        json_pack("{s:{s:I, s:I}, s:O?}", "algorithms", "order", (json_int_t)f->order_algorithm,
                  "reduction", (json_int_t)f->reduction_algorithm, "numerics", numerics);
    return json_flat(json);
}

static void fill_of_manifest(const Manifest *manifest, DiffSide *ret)
{
    const CheckpointFacts *f = manifest_facts(manifest);
    ret->terms = job_terms_parse(f->job_terms);
    ret->data = flat_of(f->dataset_terms);
    ret->computes = computes_of(f);
    ret->identity = f->job_identity;
    ret->digest = f->dataset_digest;
    ret->has_identity = ret->has_digest = true;
}

static int read_manifest(const char *uri, const Hash *hash, DiffSide *ret, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    _cleanup_free_ char *whole = strchr(uri, '/') ? memory_text(uri) : memory_format("./%s", uri);
    int r = manifest_read_uri(whole, hash, &store, &manifest, err);
    if (r == 0)
        fill_of_manifest(manifest, ret);
    return r;
}

/* ---- a job file and the files that it names ---- */

/* Finds the hash of each stream's index.json. sources has the hashes of a submitted job, as noted at its submission. */
static void read_data(const Job *job, const char *sources, DiffSide *ret)
{
    DatasetSources noted;
    Error err = ERROR_INIT;
    const bool is_noted = *sources && dataset_sources_parse(sources, &noted, &err) == 0 &&
                          noted.n_streams == job->data.n_streams;
    json_t *data = json_object();
    int r = 0;
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++) {
        char key[64];
        Hash hash = {0};
        _cleanup_(store_freep) Store *store = NULL;
        (void)snprintf(key, sizeof(key), "data.streams[%zu].index_json", i);
        if (is_noted)
            hash = noted.index[i];
        else
            r = store_open(job->data.streams[i].uri, &store, &err);
        if (r == 0 && !is_noted)
            r = index_find_source(store, &hash, &err);
        if (r == 0)
            json_object_set_new(data, key, json_hash(hash));
    }
    if (r == 0) {
        ret->data = data;
        return;
    }
    note(ret, "what its data are is not known", &err);
    json_decref(data);
}

/* Reads the files that the job names, as a rank does. The caller frees *config and *empty. */
static int read_named(const Job *job, DatasetTerms *terms, char **config, float **empty,
                      JobNamed *ret, Error *err)
{
    UnetConfig unet;
    DatasetShape shape = {0};
    int r = unet_config_read(job->model.config_uri, store_get_uri, &unet, err);
    if (r == 0 && unet_config_format(&unet, config) < 0)
        r = error_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = dataset_terms_read(job, NULL, terms, NULL, err);
    if (r == 0 && terms->empty_text_uri)
        r = dataset_terms_read_empty(terms, job, NULL, &shape, empty, NULL, err);
    if (r < 0)
        return r;
    *ret = (JobNamed){.latents = terms->latents,
                      .text = terms->text,
                      .config = *config,
                      .empty = *empty};
    if (*empty)
        ret->empty_bytes = (size_t)shape.text_tokens * (size_t)shape.text_dim * sizeof(float);
    return 0;
}

static void read_identity(const Job *job, DiffSide *ret)
{
    Error err = ERROR_INIT;
    _cleanup_(dataset_terms_clear) DatasetTerms terms = {0};
    _cleanup_free_ char *config = NULL;
    _cleanup_free_ float *empty = NULL;
    JobNamed named = {.latents = job->data.latents, .text = job->data.text};
    int r = read_named(job, &terms, &config, &empty, &named, &err);
    if (r == 0)
        r = job_terms_identity(job, &named, &ret->identity);
    ret->has_identity = r == 0;
    if (r < 0)
        note(ret, "its identity is not known", &err);
    _cleanup_free_ char *text = job_terms_format(job, &named);
    ret->terms = text ? job_terms_parse(text) : NULL;
}

static int read_text(const char *text, const char *sources, bool learns, DiffSide *ret, Error *err)
{
    _cleanup_(job_freep) Job *job = NULL;
    int r = job_parse(ret->name, text, strlen(text), &job, err);
    if (r < 0)
        return r;
    ret->file = flat_of(text + json_mark_bytes(text, strlen(text)));
    if (learns) {
        read_identity(job, ret);
        read_data(job, sources, ret);
    }
    return 0;
}

static int read_file(const char *path, DiffSide *ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = file_read(path, JOB_TEXT_MAX, &text, NULL, err);
    return r < 0 ? r : read_text(text, "", true, ret, err);
}

static int read_job(const char *name, const Model *model, DiffSide *ret, Error *err)
{
    ModelJob *job;
    int r = model_find_job(model, name, &job, err);
    if (r < 0)
        return r;
    const CheckpointCommit *commit = checkpoints_latest(&job->checkpoints);
    Error why = ERROR_INIT;
    const bool is_reported = commit && read_manifest(commit->uri, &commit->hash, ret, &why) == 0;
    if (commit && !is_reported)
        note(ret, "its newest checkpoint is not looked at", &why);
    return read_text(job->spec.spec, job->spec.sources, !is_reported, ret, err);
}

int diff_side_read(const char *name, const Model *model, DiffSide *ret, Error *err)
{
    *ret = (DiffSide){.name = name};
    return diff_side_is_job(name) ? read_job(name, model, ret, err)
           : is_manifest(name)    ? read_manifest(name, NULL, ret, err)
                                  : read_file(name, ret, err);
}

void diff_side_clear(DiffSide *side)
{
    json_decref(side->file);
    json_decref(side->terms);
    json_decref(side->data);
    json_decref(side->computes);
    *side = (DiffSide){0};
}
