/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - see loss.h. */
#include "trainer/evaluate/loss.h"

#include "protocol/exit-code.h"
#include "trainer/session/device-exit.h"
#include "trainer/state/device-patience.h"

#include <math.h>

enum { READ_AHEAD_BYTES = 64 << 20, GRAIN_SEC = 600 };

typedef struct Measure {
    const EvalRequest *request;
    Session *session;
    float *weights; /* device memory */
    double *loss;   /* device memory: the loss of one grain */
} Measure;

/* After a failure the device may still compute: then session_free() keeps it, and its memory stays, too. */
static void measure_close(Measure *m)
{
    Session *s = m->session;
    if (s && s->device && device_is_idle(s->device)) {
        device_release(s->device, m->weights);
        device_release(s->device, m->loss);
    }
    m->session = session_free(s);
}

static int open_network(Measure *m, Error *err)
{
    Session *s = m->session;
    const DatasetShape *data = dataset_shape(s->dataset);
    const NetworkShape shape = {.grain = (int)s->job->train.grain,
                                .height = data->height,
                                .width = data->width,
                                .text_tokens = data->text_tokens};
    int r = eval_session_open_device(s, m->request, shape.grain, err);
    if (r < 0)
        return r;
    r = network_new(s->device, &s->config, &shape, &s->network, err);
    if (r == 0)
        r = grain_work_new(s->device, s->network, s->job, data, NULL, &s->work, err);
    if (r == 0)
        r = device_allocate(s->device,
                            (size_t)network_parameters(s->network)->n_elements * sizeof(float),
                            (void **)&m->weights, err);
    if (r == 0)
        r = device_allocate(s->device, sizeof(*m->loss), (void **)&m->loss, err);
    return error_set_exit(err, r, r == -ENOMEM ? EXIT_RETRY : device_exit_code(r));
}

/* ---- measuring ---- */

static int measure_grain(Measure *m, Loader *loader, int64_t grain, double *ret, Error *err)
{
    Session *s = m->session;
    LoaderGrain samples;
    int r = loader_get(loader, grain, 0, GRAIN_SEC * USEC_PER_SEC, &samples, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    r = grain_work_measure(s->work, &samples, m->loss, GRAIN_SEC * USEC_PER_SEC, err);
    loader_release(loader, grain);
    if (r == 0) {
        device_download(s->device, ret, m->loss, sizeof(*ret));
        r = device_synchronise(s->device, err);
    }
    if (r < 0)
        return error_set_exit(err, r, device_exit_code(r));
    if (!isfinite(*ret))
        return error_set_exit(
            err,
            error_set(err, -EDOM, "the loss of positions %lld to %lld is %g",
                      (long long)samples.first_position,
                      (long long)(samples.first_position + s->job->train.grain - 1), *ret),
            EXIT_NON_FINITE);
    return 0;
}

/* Adds the mean loss of the weights, or of the EMA weights. done: how many measurements there were before, of n. */
static int measure(Measure *m, bool of_ema, int done, int n, EvalResults *ret, Error *err)
{
    Session *s = m->session;
    const int64_t grain = s->job->train.grain;
    const int64_t n_grains = (m->request->job->eval.positions + grain - 1) / grain;
    _cleanup_(loader_freep) Loader *loader = NULL;
    double sum = 0;
    int r = checkpoint_restore_weights(s->resume_store, s->resume, of_ema,
                                       network_parameters(s->network), s->device, m->weights, err);
    if (r == 0)
        r = loader_new(s->dataset, s->job, 0, 0, 1, READ_AHEAD_BYTES, &loader, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    network_set_weights(s->network, m->weights);
    for (int64_t i = 0; i < n_grains; i++) {
        double loss;
        r = measure_grain(m, loader, i, &loss, err);
        if (r < 0)
            return r;
        sum += loss;
        r = m->request->progress(m->request->userdata, "samples are measured",
                                 (done * n_grains + i + 1) * grain, n * n_grains * grain,
                                 sum / (double)(i + 1), err);
        if (r < 0)
            return r;
    }
    return eval_results_add_number(ret, of_ema ? "ema_loss" : "loss", sum / (double)n_grains);
}

static int measure_all(Measure *m, EvalResults *ret, Error *err)
{
    const bool has_ema = manifest_has_ema(m->session->resume);
    const bool both = m->request->job->eval.of == EVAL_OF_ANY && has_ema;
    bool of_ema;
    int r = eval_session_of_ema(m->session, m->request, false, &of_ema, err);
    if (r == 0)
        r = measure(m, of_ema, 0, both ? 2 : 1, ret, err);
    if (r == 0 && both)
        r = measure(m, true, 1, 2, ret, err);
    return r;
}

int loss_measure(const EvalRequest *request, EvalResults *ret, Error *err)
{
    _cleanup_(measure_close) Measure m = {.request = request};
    int r = eval_session_open(request, &m.session, err);
    if (r == 0)
        r = open_network(&m, err);
    return r < 0 ? r : measure_all(&m, ret, err);
}
