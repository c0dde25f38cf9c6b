/* SPDX-License-Identifier: Apache-2.0 */
/* begin.c - see begin.h. */
#include "trainer/begin/begin.h"

#include "kernels/cuda/plans/plans.h"
#include "kernels/kernels.h"
#include "nn/weights/weights-match.h"

#include <string.h>

static int check_network(const Job *job, const ParameterList *network, const Manifest *manifest,
                         const char *uri, bool whole, Error *err)
{
    const ManifestNetwork wanted = {
        .n_elements = network->n_elements,
        .n_tensors = (int64_t)network->n_items,
        .chunk_elements = whole ? chunk_layout(network->n_elements).chunk_elements
                                : manifest_chunk_elements(manifest),
        .keeps_ema = !whole || job->train.ema.enabled,
    };
    int r = manifest_check_network(manifest, uri, &wanted, err);
    return r == -EBADMSG ? error_prefix(err, -EINVAL, "it is another network's") : r;
}

int begin_read_init(const Job *job, const ParameterList *network, Store **ret_store, Manifest **ret,
                    Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    const char *uri = job->model.init_uri;
    int r = manifest_read_uri(uri, NULL, &store, &manifest, err);
    if (r == 0)
        r = check_network(job, network, manifest, uri, job->model.init_optimizer, err);
    if (r < 0)
        return r;
    *ret_store = TAKE_PTR(store);
    *ret = TAKE_PTR(manifest);
    return 0;
}

int begin_check_init(const Job *job, const UnetConfig *config, Error *err)
{
    _cleanup_(parameter_list_freep) ParameterList *network = NULL;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    if (job->model.init == INIT_RANDOM)
        return 0;
    if (job->model.init == INIT_SAFETENSORS)
        return weights_check(job->model.init_uri, config, err);
    int r = unet_parameters(config, &network, err);
    return r < 0 ? r : begin_read_init(job, network, &store, &manifest, err);
}

int begin_check_resume(const Job *job, const UnetConfig *config, const CheckpointFacts *facts,
                       const char *uri, Error *err)
{
    _cleanup_(parameter_list_freep) ParameterList *network = NULL;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    int r = manifest_read_uri(uri, NULL, &store, &manifest, err);
    if (r < 0)
        return r;
    const int64_t step = manifest_step(manifest), last = job->train.steps;
    if (step >= last)
        return error_set(err, -EINVAL,
                         "%s: the manifest is of step %lld, the job ends at %lld: train.steps "
                         "counts from 0, so it must be more than %lld",
                         uri, (long long)step, (long long)last, (long long)step);
    r = manifest_check_job(manifest, facts, err);
    if (r == 0)
        r = unet_parameters(config, &network, err);
    return r < 0 ? r : check_network(job, network, manifest, uri, true, err);
}

int begin_check_plans(const Job *job, Error *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_(cuda_plans_freep) CudaPlans *plans = NULL;
    size_t n_bytes;
    if (job->train.plans != JOB_PLANS_SET)
        return 0;
    int r = store_get_uri(job->train.plans_uri, DEVICE_PLANS_MAX, &text, &n_bytes, err);
    if (r == 0 && strlen(text) != n_bytes)
        r = error_set(err, -EINVAL, "%s: a NUL byte", job->train.plans_uri);
    return r < 0 ? r : cuda_plans_parse(job->train.plans_uri, text, &plans, err);
}
