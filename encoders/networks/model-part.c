/* SPDX-License-Identifier: Apache-2.0 */
/* model-part.c - see model-part.h. */
#include "encoders/networks/model-part.h"

#include "base/number/bits.h"
#include "base/number/half.h"
#include "nn/weights/weights-match.h"
#include "store/safetensors.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20, PIECE_ELEMENTS = 1 << 20, KEY_MAX = 128 };

static const struct {
    const char *folder, *stem;
} parts[] = {
    [MODEL_VAE] = {"vae", "diffusion_pytorch_model"},
    [MODEL_TEXT_ENCODER] = {"text_encoder", "model"},
};

/* ---- names ---- */

static const char text_prefix[] = "text_model.";

static const struct {
    const char *old, *now;
} vae_names[] = {
    {".attentions.0.query.", ".attentions.0.to_q."},
    {".attentions.0.key.", ".attentions.0.to_k."},
    {".attentions.0.value.", ".attentions.0.to_v."},
    {".attentions.0.proj_attn.", ".attentions.0.to_out.0."},
};

bool model_tensor_name(ModelKind kind, const char *name, char ret[PARAMETER_NAME_MAX])
{
    int n;
    if (kind == MODEL_TEXT_ENCODER) {
        const bool whole = strncmp(name, text_prefix, strlen(text_prefix)) == 0;
        n = snprintf(ret, PARAMETER_NAME_MAX, "%s%s", whole ? "" : text_prefix, name);
        return n < PARAMETER_NAME_MAX;
    }
    for (size_t i = 0; i < ELEMENTSOF(vae_names); i++) {
        const char *at = strstr(name, vae_names[i].old);
        if (!at)
            continue;
        n = snprintf(ret, PARAMETER_NAME_MAX, "%.*s%s%s", (int)(at - name), name, vae_names[i].now,
                     at + strlen(vae_names[i].old));
        return n < PARAMETER_NAME_MAX;
    }
    n = snprintf(ret, PARAMETER_NAME_MAX, "%s", name);
    return n < PARAMETER_NAME_MAX;
}

/* ---- the tensors of a file and their parameters ---- */

typedef struct Wanted {
    const Parameter *parameter;
    const SafetensorsEntry *entry; /* NULL: not found yet */
} Wanted;

static int compare_wanted(const void *a, const void *b)
{
    return strcmp(((const Wanted *)a)->parameter->name, ((const Wanted *)b)->parameter->name);
}

static int compare_name(const void *name, const void *wanted)
{
    return strcmp(name, ((const Wanted *)wanted)->parameter->name);
}

static bool is_beside(const ParameterList *beside, const char *name)
{
    for (size_t i = 0; beside && i < beside->n_items; i++)
        if (strcmp(beside->items[i].name, name) == 0)
            return true;
    return false;
}

/* Compares the shapes. A matrix may be stored with two more dimensions of 1. */
static bool same_shape(const Parameter *p, const SafetensorsEntry *e)
{
    const bool as_conv = p->n_dims == 2 && e->n_dims == 4 && e->dims[2] == 1 && e->dims[3] == 1;
    bool same = e->n_dims == p->n_dims || as_conv;
    for (int i = 0; same && i < p->n_dims; i++)
        same = e->dims[i] == p->dims[i];
    return same;
}

static int refuse_shape(const char *source, const Parameter *p, const SafetensorsEntry *e,
                        Error *err)
{
    char found[WEIGHTS_SHAPE_MAX], wanted[WEIGHTS_SHAPE_MAX];
    return error_set(err, -EINVAL, "%s: tensor %.100s is %s, the config wants %s", source, e->name,
                     weights_shape(e->dims, e->n_dims, found),
                     weights_shape(p->dims, p->n_dims, wanted));
}

static int match_entry(const char *source, ModelKind kind, const ParameterList *beside,
                       Wanted *wanted, size_t n_wanted, const SafetensorsEntry *e, Error *err)
{
    char name[PARAMETER_NAME_MAX];
    const bool is_name = model_tensor_name(kind, e->name, name);
    Wanted *w = is_name ? bsearch(name, wanted, n_wanted, sizeof(*wanted), compare_name) : NULL;
    if (!w && (e->type == SAFETENSORS_INTEGER || (is_name && is_beside(beside, name))))
        return 0;
    if (!w)
        return error_set(err, -EINVAL,
                         "%s: tensor %.100s is none of the network that the config says", source,
                         e->name);
    if (w->entry)
        return error_set(err, -EINVAL, "%s: tensors %.100s and %.100s are the same one", source,
                         w->entry->name, e->name);
    if (e->type >= SAFETENSORS_INTEGER)
        return error_set(err, -EINVAL, "%s: tensor %.100s is %s; convert it to F32, F16 or BF16",
                         source, e->name, e->dtype);
    if (!same_shape(w->parameter, e))
        return refuse_shape(source, w->parameter, e, err);
    w->entry = e;
    return 0;
}

static int match_entries(const char *source, ModelKind kind, const ParameterList *beside,
                         const Safetensors *file, Wanted *wanted, size_t n_wanted, Error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < safetensors_count(file); i++)
        r = match_entry(source, kind, beside, wanted, n_wanted, safetensors_at(file, i), err);
    for (size_t i = 0; r == 0 && i < n_wanted; i++)
        if (!wanted[i].entry)
            r = error_set(err, -EINVAL, "%s: tensor %s is missing", source,
                          wanted[i].parameter->name);
    return r;
}

/* Matches a file's tensors with the wanted ones. network: the list of the wanted tensors, or the first of their
 * lists. */
static int match_file(const char *source, ModelKind kind, const ParameterList *network,
                      const ParameterList *beside, const Safetensors *file, Wanted *wanted,
                      size_t n_wanted, Error *err)
{
    int r = match_entries(source, kind, beside, file, wanted, n_wanted, err);
    if (r != -EINVAL)
        return r;
    Error whole = ERROR_INIT; /* explains which other model the file is of */
    if (weights_refuse_other(source, file, network, &whole) < 0)
        return error_set(err, r, "%s", whole.text);
    return r;
}

/* ---- reading ---- */

/* A file of weights that is read in pieces: reading it whole would need as much memory again as the weights. */
typedef struct WeightFile {
    Store *store;
    char key[KEY_MAX];
    char source[512];
    Safetensors *tensors;
    char *piece;   /* a piece as the file stores it: room for PIECE_ELEMENTS of the widest type */
    float *floats; /* the piece as fp32 */
} WeightFile;

static void weight_file_close(WeightFile *f)
{
    (void)safetensors_free(f->tensors);
    free(f->piece);
    free(f->floats);
}

/* Finds the file of weights NAME.safetensors, or else NAME.fp16.safetensors, which holds halves. */
static int find_file(WeightFile *f, ModelKind kind, uint64_t *ret_bytes, Error *err)
{
    static const char *const endings[] = {".safetensors", ".fp16.safetensors"};
    int r = -ENOENT;
    for (size_t i = 0; r == -ENOENT && i < ELEMENTSOF(endings); i++) {
        (void)snprintf(f->key, sizeof(f->key), "%s/%s%s", parts[kind].folder, parts[kind].stem,
                       endings[i]);
        r = store_head(f->store, f->key, ret_bytes, err);
    }
    if (r == -ENOENT)
        return error_set(err, r, "%.300s/%s: there is neither %s%s nor %s%s (.bin is not read)",
                         store_uri(f->store), parts[kind].folder, parts[kind].stem, endings[0],
                         parts[kind].stem, endings[1]);
    (void)snprintf(f->source, sizeof(f->source), "%.300s/%s", store_uri(f->store), f->key);
    return r;
}

static int weight_file_open(Store *store, ModelKind kind, WeightFile *f, Error *err)
{
    uint64_t n_bytes = 0;
    *f = (WeightFile){.store = store};
    f->piece = malloc(PIECE_ELEMENTS * sizeof(float));
    f->floats = malloc(PIECE_ELEMENTS * sizeof(float));
    if (!f->piece || !f->floats)
        return error_set(err, -ENOMEM, "weights: out of memory");
    int r = find_file(f, kind, &n_bytes, err);
    return r < 0 ? r
                 : safetensors_read(store, f->key, f->source, n_bytes, SAFETENSORS_ANY, &f->tensors,
                                    err);
}

/* Returns the piece as fp32. */
static const float *widen(const WeightFile *f, SafetensorsType type, size_t n)
{
    if (type == SAFETENSORS_F32) {
        memcpy(f->floats, f->piece, n * sizeof(float));
    } else if (type == SAFETENSORS_F16) {
        /* read_piece() checks that all values are finite. */
        (void)half_expand(f->piece, n, f->floats);
    } else {
        for (size_t i = 0; i < n; i++) {
            uint16_t high;
            memcpy(&high, f->piece + i * sizeof(high), sizeof(high));
            f->floats[i] = float_from_bits((uint32_t)high << 16);
        }
    }
    return f->floats;
}

static bool all_finite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (float_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return !bad;
}

/* Reads the piece of a tensor that begins with element `at`. *ret points to its *ret_n elements as fp32, valid until
 * the next call. */
static int read_piece(const WeightFile *f, const Wanted *wanted, int64_t at, size_t *ret_n,
                      const float **ret, Error *err)
{
    const SafetensorsEntry *e = wanted->entry;
    const size_t element = e->type == SAFETENSORS_F32 ? sizeof(float) : sizeof(uint16_t);
    const size_t n = (size_t)MIN(wanted->parameter->n_elements - at, (int64_t)PIECE_ELEMENTS);
    int r = store_get_range(f->store, f->key, e->offset + (uint64_t)at * element, n * element,
                            f->piece, err);
    if (r < 0)
        return error_prefix(err, r, "tensor %.100s", e->name);
    *ret = widen(f, e->type, n);
    *ret_n = n;
    if (!all_finite(*ret, n))
        return error_set(err, -EBADMSG, "%s: tensor %.100s holds a value that is not finite",
                         f->source, e->name);
    return 0;
}

static int read_tensor(const WeightFile *f, const ModelPart *part, const Wanted *wanted,
                       Hasher *hasher, Error *err)
{
    const Parameter *p = wanted->parameter;
    hasher_update(hasher, p->name, strlen(p->name) + 1);
    hasher_update(hasher, p->dims, (size_t)p->n_dims * sizeof(p->dims[0]));
    for (int64_t at = 0; at < p->n_elements; at += PIECE_ELEMENTS) {
        const float *floats;
        size_t n;
        int r = read_piece(f, wanted, at, &n, &floats, err);
        if (r < 0)
            return r;
        hasher_update(hasher, floats, n * sizeof(float));
        device_upload(part->device, part->weights + p->offset + at, floats, n * sizeof(float));
    }
    return 0;
}

/* Lists the tensors of all lists, sorted by name; the caller frees the result. */
static Wanted *list_wanted(const ParameterList *const *lists, size_t n_lists, size_t *ret_n)
{
    size_t n = 0;
    for (size_t i = 0; i < n_lists; i++)
        n += lists[i]->n_items;
    Wanted *wanted = calloc(MAX(n, 1), sizeof(*wanted));
    if (!wanted)
        return NULL;
    *ret_n = 0;
    for (size_t i = 0; i < n_lists; i++)
        for (size_t k = 0; k < lists[i]->n_items; k++)
            wanted[(*ret_n)++].parameter = &lists[i]->items[k];
    qsort(wanted, n, sizeof(*wanted), compare_wanted);
    return wanted;
}

/* ---- copying ---- */

static int copy_header(const Wanted *wanted, size_t n, const ModelSink *sink, Error *err)
{
    _cleanup_free_ SafetensorsEntry *entries = calloc(MAX(n, 1), sizeof(*entries));
    _cleanup_free_ char *header = NULL;
    size_t n_bytes;
    if (!entries)
        return error_set(err, -ENOMEM, "weights: out of memory");
    for (size_t i = 0; i < n; i++) {
        const Parameter *p = wanted[i].parameter;
        entries[i] = (SafetensorsEntry){.name = (char *)p->name,
                                        .type = SAFETENSORS_F32,
                                        .n_dims = p->n_dims};
        memcpy(entries[i].dims, p->dims, (size_t)p->n_dims * sizeof(p->dims[0]));
    }
    int r = safetensors_header(entries, n, &header, &n_bytes, err);
    return r < 0 ? r : sink->write(sink->context, header, n_bytes, err);
}

static int copy_tensor(const WeightFile *f, const Wanted *wanted, const ModelSink *sink, Error *err)
{
    int r = 0;
    for (int64_t at = 0; r == 0 && at < wanted->parameter->n_elements; at += PIECE_ELEMENTS) {
        const float *floats;
        size_t n;
        r = read_piece(f, wanted, at, &n, &floats, err);
        if (r == 0)
            r = sink->write(sink->context, floats, n * sizeof(float), err);
    }
    return r;
}

int model_part_copy(Store *store, ModelKind kind, const ParameterList *const *lists, size_t n_lists,
                    const ModelSink *sink, Error *err)
{
    size_t n;
    _cleanup_(weight_file_close) WeightFile file = {0};
    _cleanup_free_ Wanted *wanted = list_wanted(lists, n_lists, &n);
    if (!wanted)
        return error_set(err, -ENOMEM, "weights: out of memory");
    int r = weight_file_open(store, kind, &file, err);
    if (r == 0)
        r = match_file(file.source, kind, lists[0], NULL, file.tensors, wanted, n, err);
    if (r == 0)
        r = copy_header(wanted, n, sink, err);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = copy_tensor(&file, &wanted[i], sink, err);
    return r;
}

static int take_memory(ModelPart *part, ModelKind kind, Error *err)
{
    void *weights;
    int r = tape_allocate(part->tape, err);
    if (r < 0)
        return error_prefix(err, r, "%s", parts[kind].folder);
    r = device_allocate(part->device, (size_t)part->tape->parameters->n_elements * sizeof(float),
                        &weights, err);
    if (r < 0)
        return error_prefix(err, r, "%s: weights", parts[kind].folder);
    part->weights = weights;
    return 0;
}

/* A config may demand any amount of memory, so memory is allocated only after the file's tensors have matched the
 * config. */
int model_part_load(ModelPart *part, Store *store, ModelKind kind, const ParameterList *beside,
                    Hasher *hasher, Error *err)
{
    const ParameterList *const list = part->tape->parameters;
    size_t n;
    _cleanup_(weight_file_close) WeightFile file = {0};
    _cleanup_free_ Wanted *wanted = list_wanted(&list, 1, &n);
    if (!wanted)
        return error_set(err, -ENOMEM, "weights: out of memory");
    int r = weight_file_open(store, kind, &file, err);
    if (r == 0)
        r = match_file(file.source, kind, list, beside, file.tensors, wanted, n, err);
    if (r == 0)
        r = take_memory(part, kind, err);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = read_tensor(&file, part, &wanted[i], hasher, err);
    if (r == 0)
        tape_set_weights(part->tape, part->weights);
    return r;
}

int model_part_look(Store *store, ModelKind kind, const ParameterList *network,
                    const ParameterList *beside, Error *err)
{
    size_t n;
    _cleanup_(weight_file_close) WeightFile file = {0};
    _cleanup_free_ Wanted *wanted = list_wanted(&network, 1, &n);
    if (!wanted)
        return error_set(err, -ENOMEM, "weights: out of memory");
    int r = weight_file_open(store, kind, &file, err);
    return r < 0 ? r : match_file(file.source, kind, network, beside, file.tensors, wanted, n, err);
}

void model_part_close(ModelPart *part)
{
    Error ignored = ERROR_INIT; /* an error has no effect: a broken device runs nothing more */
    if (part->weights)
        (void)device_synchronise(part->device, &ignored);
    part->tape = tape_free(part->tape);
    if (part->weights)
        device_release(part->device, part->weights);
    part->weights = NULL;
}

int model_part_config(Store *store, ModelKind kind, char **ret_source, char **ret_text,
                      size_t *ret_bytes, Error *err)
{
    char key[KEY_MAX];
    _cleanup_free_ char *source = NULL;
    (void)snprintf(key, sizeof(key), "%s/config.json", parts[kind].folder);
    if (asprintf(&source, "%.300s/%s", store_uri(store), key) < 0) {
        source = NULL;
        return error_errno(err, -ENOMEM, "%s", key);
    }
    int r = store_get(store, key, CONFIG_BYTES_MAX, ret_text, ret_bytes, err);
    if (r == 0)
        *ret_source = TAKE_PTR(source);
    return r;
}
