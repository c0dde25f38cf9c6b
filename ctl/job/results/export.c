/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - `sdctl job export`: writes the weights of the newest committed checkpoint as one safetensors file, or as
 * the U-Net of a pipeline folder. */
#include "ctl/arguments.h"
#include "ctl/export/interrupt.h"
#include "ctl/export/pipeline.h"
#include "ctl/export/weights.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "ctl/waiting.h"

#include "base/fault.h"

#include <string.h>

enum { CHECKPOINTS_MAX = 4 }; /* limit of attempts; each attempt exports the newest checkpoint */

typedef struct ExportOptions {
    const char *out, *pipeline, *model;
    bool ema;
} ExportOptions;

#define OPTIONS_STRUCT ExportOptions
static const CtlOption options[] = {
    OPTION_OUT(),
    {"pipeline", 0, "FOLDER", "instead: a folder that diffusers loads, with what --model has",
     TAKES(TEXT, pipeline)},
    OPTION_MODEL,
    {"ema", 0, NULL, "the averaged weights", TAKES(NOTHING, ema)},
};
const CtlOptions job_export_options = CTL_OPTIONS(options, .ema = false);

typedef struct Exported {
    int64_t step;
    bool ema;
} Exported;

static int export_pipeline(const Arguments *a, Store *store, const Manifest *manifest,
                           const ModelJob *of, bool ema, Error *err)
{
    const ExportOptions *o = arguments_own(a);
    _cleanup_(job_freep) Job *job = NULL;
    int r = job_parse(a->operand, of->spec.spec, strlen(of->spec.spec), &job, err);
    if (r < 0)
        return r;
    const PipelineOptions pipeline = {.folder = o->pipeline,
                                      .model = o->model,
                                      .job = job,
                                      .ema = ema};
    return pipeline_write(store, manifest, &pipeline, err);
}

static int export_commit(const Arguments *a, const ModelJob *job, const CheckpointCommit *commit,
                         Exported *ret, Error *err)
{
    const ExportOptions *o = arguments_own(a);
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    Waiting *waiting = waiting_begin(commit->uri);
    int r = manifest_read_uri(commit->uri, &commit->hash, &store, &manifest, err);
    waiting = waiting_end(waiting);
    if (r < 0)
        return r;
    *ret = (Exported){.step = commit->step,
                      .ema = o->ema || (o->pipeline && manifest_has_ema(manifest))};
    if (o->pipeline)
        return export_pipeline(a, store, manifest, job, ret->ema, err);
    return weights_write(store, manifest, ret->ema, o->out, err);
}

static int find_commit(const Arguments *a, Model **ret_model, ModelJob **ret_job,
                       CheckpointCommit *ret, Error *err)
{
    int r = model_open(&a->client, ret_model, err);
    if (r == 0)
        r = model_find_job(*ret_model, a->operand, ret_job, err);
    if (r == 0)
        r = model_refuse_program(*ret_job, err);
    if (r < 0)
        return r;
    const CheckpointCommit *commit = checkpoints_latest(&(*ret_job)->checkpoints);
    if (!commit)
        return error_set(err, -ENOENT,
                         "job %s has no checkpoint yet; sdctl job checkpoint %s has it save one",
                         a->operand, a->operand);
    *ret = *commit;
    return 0;
}

/* Exports the newest checkpoint. A running job removes old checkpoints, possibly the checkpoint that is being
 * read. In this case a newer checkpoint is committed, and this function tries to export the newer one. */
static int export_newest(const Arguments *a, Exported *ret, Error *err)
{
    int r = 0;
    Hash before = {0};
    for (int i = 0; i < CHECKPOINTS_MAX; i++) {
        _cleanup_(model_freep) Model *model = NULL;
        CheckpointCommit commit;
        ModelJob *job;
        Error of_search = ERROR_INIT;
        int found = find_commit(a, &model, &job, &commit, i == 0 ? err : &of_search);
        if (i > 0 && (found < 0 || hash_equal(commit.hash, before)))
            return r; /* no newer checkpoint, so the error has another cause */
        if (found < 0)
            return found;
        before = commit.hash;
        r = export_commit(a, job, &commit, ret, err);
        if (r == 0 || r == -EINTR)
            return r;
    }
    return r;
}

int job_export(const Arguments *a)
{
    const ExportOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    Exported exported = {0};
    if (!o->out == !o->pipeline)
        return arguments_refuse(a->verb, "either --out FILE or --pipeline FOLDER is needed");
    if (!o->pipeline != !o->model)
        return arguments_refuse(a->verb, "--pipeline FOLDER and --model FOLDER belong together");
    int r = fault_open(&err);
    interrupt_begin();
    if (r == 0)
        r = export_newest(a, &exported, &err);
    interrupt_end();
    if (r < 0)
        return ctl_fail(&err, r);
    printf("job %s: %s of step %lld are in %s\n", a->operand,
           exported.ema ? "averaged weights" : "weights", (long long)exported.step,
           o->pipeline ? o->pipeline : o->out);
    return CTL_DONE;
}
