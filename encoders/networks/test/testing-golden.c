/* SPDX-License-Identifier: Apache-2.0 */
/* testing-golden.c - see testing-golden.h. */
#include "encoders/networks/test/testing-golden.h"

#include "base/file.h"
#include "base/json/json.h"

#include <math.h>
#include <string.h>

void source_path(const char *name, char *ret, size_t size)
{
    const char *source = getenv("SDTRAIN_SOURCE");
    (void)snprintf(ret, size, "%s/%s", source ? source : ".", name);
}

Golden golden_open(const char *path)
{
    Golden g = {0};
    Error err = ERROR_INIT;
    char whole[512];
    size_t n_bytes;
    uint64_t n_header;
    source_path(path, whole, sizeof(whole));
    if (file_read(whole, 4 << 20, &g.file, &n_bytes, &err) < 0 ||
        safetensors_open(path, g.file, n_bytes, n_bytes, SAFETENSORS_ANY, &g.tensors, &err) < 0)
        fail_msg("%s", err.text);
    memcpy(&n_header, g.file, sizeof(n_header));
    if (json_parse(path, g.file + 8, n_header, &g.header, &err) < 0)
        fail_msg("%s", err.text);
    return g;
}

void golden_close(Golden *g)
{
    free(g->file);
    (void)safetensors_free(g->tensors);
    json_decref(g->header);
}

const SafetensorsEntry *golden_entry(const Golden *g, const char *name)
{
    const SafetensorsEntry *e = safetensors_find(g->tensors, name);
    if (!e)
        fail_msg("no tensor %s", name);
    return e;
}

const void *golden_tensor(const Golden *g, const char *name)
{
    return g->file + golden_entry(g, name)->offset;
}

const char *golden_config(const Golden *g)
{
    json_t *metadata = json_object_get(g->header, "__metadata__");
    const char *text = json_string_value(json_object_get(metadata, "config"));
    assert_non_null(text);
    return text;
}

double largest_error(const float *a, const float *b, size_t n)
{
    double error = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        error = d <= error || isnan(error) ? error : d;
        largest = fmax(largest, fabs((double)b[i]));
    }
    return error / largest;
}

Device *open_cpu(int threads)
{
    Error err = ERROR_INIT;
    Device *device = NULL;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = threads, .type = DATA_F32};
    if (device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

double golden_tolerance(const Device *device)
{
    return device_type(device) == DATA_F32 ? 1e-5 : 5e-2;
}
