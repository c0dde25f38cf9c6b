/* SPDX-License-Identifier: Apache-2.0 */
/* manifest-fit.c - whether a checkpoint's state fits a job's network. */
#include "manifest/manifest-internal.h"

int manifest_check_network(const Manifest *m, const char *source, const ManifestNetwork *network,
                           Error *err)
{
    const ChunkLayout *l = &m->layout;
    if (l->n_elements != network->n_elements || l->chunk_elements != network->chunk_elements)
        return error_set(err, -EBADMSG,
                         "%s: a model of %lld elements in chunks of %lld, this job's has %lld in "
                         "chunks of %lld",
                         source, (long long)l->n_elements, (long long)l->chunk_elements,
                         (long long)network->n_elements, (long long)network->chunk_elements);
    if (m->n_tensors != network->n_tensors)
        return error_set(err, -EBADMSG, "%s: %lld tensors, this job's model has %lld", source,
                         (long long)m->n_tensors, (long long)network->n_tensors);
    if (m->ema && !network->keeps_ema)
        return error_set(err, -EBADMSG, "%s: it holds an EMA, this job has none", source);
    return 0;
}

int64_t manifest_chunk_elements(const Manifest *m) { return m->layout.chunk_elements; }
