/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.c - see pictures.h. */
#include "trainer/evaluate/pictures.h"

#include "protocol/exit-code.h"
#include "store/access-check.h"
#include "trainer/sample/drawing.h"
#include "trainer/session/device-exit.h"
#include "trainer/state/device-patience.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 4 };
#define TRY_USEC (STORE_TRY_SEC * USEC_PER_SEC)

typedef struct Pictures {
    const EvalRequest *request;
    Session *session;
    Device *model_device; /* NULL: the session's */
    Drawing *drawing;
    bool of_ema;
    char uri[EVAL_URI_MAX + 1]; /* of the grid */
} Pictures;

/* After a failure the device may still compute: then session_free() keeps it, and what uses it stays, too. */
static void pictures_close(Pictures *p)
{
    Session *s = p->session;
    if (!s || !s->device || device_is_idle(s->device)) {
        (void)drawing_free(p->drawing);
        (void)device_free(p->model_device);
    }
    p->session = session_free(s);
}

static int name_grid(Pictures *p, Error *err)
{
    const Job *job = p->request->job;
    const Manifest *manifest = p->session->resume;
    const Hash of_file = hash_bytes(p->request->text, strlen(p->request->text));
    const Hash both[] = {manifest_hash(manifest), of_file};
    char text[HASH_TEXT_BYTES];
    const int n = snprintf(p->uri, sizeof(p->uri), "%s/%s-step-%010lld-%.8s.png",
                           job->eval.grid.uri, job->name, (long long)manifest_step(manifest),
                           hash_format(hash_bytes(both, sizeof(both)), text));
    if (n < (int)sizeof(p->uri))
        return 0;
    return error_set_exit(err, error_set(err, -EINVAL, "grid.uri: %s... is too long", p->uri),
                          EXIT_NEVER_RETRY);
}

/* Drawing may take hours, and should not fail at its end because nothing can be written. */
static int try_store(const EvalRequest *request, Error *err)
{
    StoreTry try = {.kind = STORE_TRY_WRITE};
    (void)snprintf(try.uri, sizeof(try.uri), "%s", request->job->eval.grid.uri);
    store_try_all(&try, 1, TRY_USEC);
    if (try.r == 0)
        return 0;
    return error_set_exit(err, error_set(err, try.r, "grid.uri: %s", try.error.text),
                          exit_code_of_store(try.r));
}

/* The network computes in the job's precision. The model's networks compute in fp32, as when the data were made. */
static int open_devices(Pictures *p, int grain, Error *err)
{
    const EvalRequest *request = p->request;
    Session *s = p->session;
    const DeviceOptions fp32 = {.kind = DEVICE_CUDA,
                                .threads = s->job->train.threads,
                                .type = DATA_F32,
                                .pci_address = request->gpu};
    int r = eval_session_open_device(s, request, grain, err);
    if (r < 0 || !request->job->eval.grid.model || device_type(s->device) == DATA_F32)
        return r;
    r = device_open(&fp32, &p->model_device, err);
    return error_set_exit(err, r, device_exit_code(r));
}

static int report(void *userdata, int64_t done, int64_t all, Error *err)
{
    const EvalRequest *request = userdata;
    return request->progress(request->userdata, "steps are done", done, all, NAN, err);
}

static int open_drawing(Pictures *p, Error *err)
{
    const EvalRequest *request = p->request;
    Session *s = p->session;
    const JobGrid *grid = &request->job->eval.grid;
    /* the plans of a GPU are for the job's grain */
    const int all =
        request->job->train.device == JOB_DEVICE_CUDA ? (int)s->job->train.grain : GRAIN;
    int r = open_devices(p, MIN(all, grid->samples), err);
    if (r < 0)
        return r;
    const DrawingNeeds needs = {.grid = grid,
                                .job = s->job,
                                .data = s->dataset,
                                .config = &s->config,
                                .device = s->device,
                                .model_device = p->model_device ?: s->device,
                                .grain = all,
                                .progress = report,
                                .userdata = (void *)request};
    r = drawing_new(&needs, &p->drawing, err);
    if (r == 0)
        r = checkpoint_restore_weights(s->resume_store, s->resume, p->of_ema,
                                       drawing_parameters(p->drawing), s->device,
                                       drawing_weights(p->drawing), err);
    if (r < 0 && !device_exit_blames(s->device, &r, err))
        (void)error_set_exit(err, r, exit_code_of_store(r)); /* r is returned below */
    return r;
}

static int draw(Pictures *p, char **ret, size_t *ret_bytes, Error *err)
{
    Session *s = p->session;
    int r = drawing_run(p->drawing, manifest_step(s->resume), p->of_ema, ret, ret_bytes, err);
    if (r == -EDOM || r == -EINVAL)
        return error_set_exit(err, r, r == -EDOM ? EXIT_NON_FINITE : EXIT_NEVER_RETRY);
    if (r < 0 && r != -ECANCELED)
        (void)device_exit_blames(s->device, &r, err); /* r is returned below */
    return r;
}

static int put(const Pictures *p, char *png, size_t n_bytes, EvalResults *ret, Error *err)
{
    const JobGrid *grid = &p->request->job->eval.grid;
    const struct iovec all = {png, n_bytes};
    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(grid->uri, &store, err);
    if (r == 0)
        r = store_put(store, strrchr(p->uri, '/') + 1, &all, 1, 0, err);
    if (r < 0)
        return error_set_exit(err, error_prefix(err, r, "grid.uri"), exit_code_of_store(r));
    (void)snprintf(ret->text, sizeof(ret->text), "%d picture%s by the %sweights", grid->samples,
                   grid->samples == 1 ? "" : "s", p->of_ema ? "EMA " : "");
    return eval_results_add_artifact(ret, "grid", p->uri);
}

int pictures_draw(const EvalRequest *request, EvalResults *ret, Error *err)
{
    _cleanup_free_ char *png = NULL;
    size_t n_bytes;
    _cleanup_(pictures_close) Pictures p = {.request = request};
    int r = eval_session_open(request, &p.session, err);
    if (r == 0)
        r = eval_session_of_ema(p.session, request, manifest_has_ema(p.session->resume), &p.of_ema,
                                err);
    if (r == 0)
        r = name_grid(&p, err);
    if (r == 0)
        r = try_store(request, err);
    if (r == 0)
        r = open_drawing(&p, err);
    if (r == 0)
        r = draw(&p, &png, &n_bytes, err);
    return r < 0 ? r : put(&p, png, n_bytes, ret, err);
}
