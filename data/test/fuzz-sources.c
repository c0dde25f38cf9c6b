/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-sources.c - arbitrary bytes as the sources in a job's record. Accepted sources are the same after they are
 * written and parsed again. */
#include "data/dataset-shape.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    /* The text has a block of its own size, so that a read beyond its end is detected. */
    _cleanup_free_ char *text = malloc(n + 1);
    DatasetSources sources = {.n_streams = 77}, again;
    Error err = ERROR_INIT;
    assert(text);
    memcpy(text, data, n);
    text[n] = '\0';
    int r = dataset_sources_parse(text, &sources, &err);
    if (r < 0) {
        assert(r == -EINVAL && err.code == r && sources.n_streams == 77);
        return 0;
    }
    char written[JOB_SOURCES_MAX];
    assert(sources.n_streams <= JOB_STREAMS_MAX);
    r = dataset_sources_parse(dataset_sources_format(&sources, written), &again, &err);
    assert(r == 0 && again.n_streams == sources.n_streams);
    assert(again.has_empty_text == sources.has_empty_text);
    assert(hash_equal(again.empty_text, sources.empty_text));
    for (size_t i = 0; i < sources.n_streams; i++) {
        assert(hash_equal(again.index[i], sources.index[i]));
        assert(again.has_encoder[i] == sources.has_encoder[i]);
        assert(hash_equal(again.encoder[i], sources.encoder[i]));
    }
    return 0;
}
