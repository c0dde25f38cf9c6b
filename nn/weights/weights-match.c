/* SPDX-License-Identifier: Apache-2.0 */
/* weights-match.c - see weights-match.h. */
#include "nn/weights/weights-match.h"

#include "nn/weights/weights-family.h"

#include <string.h>

/* The differences between the tensors of a file and of a network. */
typedef struct Misfits {
    size_t n_missing, n_extra, n_shapes, n_types;
    /* the first tensor with each kind of difference; NULL: none */
    const Parameter *missing, *shaped;
    const SafetensorsEntry *extra, *has_shape, *typed;
} Misfits;

static const Parameter *find_parameter(const ParameterList *network, const char *name)
{
    for (size_t i = 0; i < network->n_items; i++)
        if (strcmp(network->items[i].name, name) == 0)
            return &network->items[i];
    return NULL;
}

static bool same_shape(const Parameter *p, const SafetensorsEntry *e)
{
    bool same = e->n_dims == p->n_dims;
    for (int i = 0; same && i < p->n_dims; i++)
        same = e->dims[i] == p->dims[i];
    return same;
}

const char *weights_shape(const int64_t *dims, int n_dims, char ret[WEIGHTS_SHAPE_MAX])
{
    size_t at = 0;
    (void)snprintf(ret, WEIGHTS_SHAPE_MAX, "scalar");
    for (int i = 0; i < n_dims && at < WEIGHTS_SHAPE_MAX; i++)
        at += (size_t)snprintf(ret + at, WEIGHTS_SHAPE_MAX - at, "%s%lld", i > 0 ? "x" : "",
                               (long long)dims[i]);
    return ret;
}

static Misfits compare(const Safetensors *file, const ParameterList *network)
{
    Misfits m = {0};
    for (size_t i = 0; i < network->n_items; i++) {
        const Parameter *p = &network->items[i];
        const SafetensorsEntry *e = safetensors_find(file, p->name);
        if (!e && m.n_missing++ == 0)
            m.missing = p;
        if (e && !same_shape(p, e) && m.n_shapes++ == 0) {
            m.shaped = p;
            m.has_shape = e;
        }
        if (e && e->type >= SAFETENSORS_INTEGER && m.n_types++ == 0)
            m.typed = e;
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const SafetensorsEntry *e = safetensors_at(file, i);
        if (!find_parameter(network, e->name) && m.n_extra++ == 0)
            m.extra = e;
    }
    return m;
}

/* Writes a text such as " (and 3 more)", or "" if n is 1. */
static const char *and_more(size_t n, char ret[32])
{
    ret[0] = '\0';
    if (n > 1)
        (void)snprintf(ret, 32, " (and %zu more)", n - 1);
    return ret;
}

/* ---- prefixes ---- */

/* Finds a tensor whose name ends with the name of the network's first parameter. Returns the length of the
 * prefix of this name; 0: there is no such tensor. */
static size_t prefix_of(const Safetensors *file, const ParameterList *network, const char **ret)
{
    const char *first = network->items[0].name;
    const size_t n_first = strlen(first);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        const size_t n = strlen(name);
        if (n > n_first && name[n - n_first - 1] == '.' && strcmp(name + n - n_first, first) == 0) {
            *ret = name;
            return n - n_first;
        }
    }
    return 0;
}

/* Refuses a file whose names have a prefix. Wrappers of modules, and files of several networks, put a word in front of
 * each name. */
static int refuse_prefix(const char *source, const Safetensors *file, const ParameterList *network,
                         Error *err)
{
    const char *name = NULL;
    size_t n_with = 0, n_ours = 0;
    const size_t n = prefix_of(file, network, &name);
    for (size_t i = 0; n > 0 && i < safetensors_count(file); i++) {
        const char *each = safetensors_at(file, i)->name;
        const bool has = strncmp(each, name, n) == 0;
        n_with += has;
        n_ours += has && find_parameter(network, each + n);
    }
    if (n == 0 || n_ours * 2 < network->n_items)
        return 0;
    const bool all = n_with == safetensors_count(file);
    return error_set(err, -EINVAL,
                     "%s: the network's names begin with \"%.*s\" (%.100s)%s; write a file of "
                     "%sthese tensors, each without it",
                     source, (int)MIN(n, (size_t)64), name, name,
                     all ? "" : ", and other tensors lie beside them", all ? "" : "only ");
}

/* ---- error texts ---- */

int weights_refuse_other(const char *source, const Safetensors *file, const ParameterList *network,
                         Error *err)
{
    const WeightsFamily family = weights_family(file, network);
    if (!family.name)
        return refuse_prefix(source, file, network, err);
    return error_set(err, -EINVAL, "%s: %s %s (it has a tensor %.100s)%s", source,
                     family.in_pipeline ? "this is a pipeline in one file, with" : "this is",
                     family.name, family.tensor,
                     family.in_pipeline
                         ? "; convert it to diffusers' folders, of which each network has its own"
                         : ", and not the network that the config says");
}

/* Refuses a file with missing tensors, extra tensors, or both. */
static int refuse_names(const char *source, const Misfits *m, const Safetensors *file, Error *err)
{
    char shape[WEIGHTS_SHAPE_MAX], more[32], lacks[192] = "", has[320] = "";
    if (m->missing)
        (void)snprintf(lacks, sizeof(lacks), "tensor %s is missing%s", m->missing->name,
                       and_more(m->n_missing, more));
    if (m->extra)
        (void)snprintf(has, sizeof(has), "tensor %.100s (%s, %s) is none of the network's%s",
                       m->extra->name, m->extra->dtype,
                       weights_shape(m->extra->dims, m->extra->n_dims, shape),
                       and_more(m->n_extra, more));
    return error_set(err, -EINVAL, "%.200s: %s%s%s%s", source, lacks, *lacks && *has ? "; " : "",
                     has,
                     m->missing && strstr(source, "-of-0")
                         ? "; it is one of several files, and one is read: join them"
                     : safetensors_count(file) == 0 ? "; the file has no tensors"
                                                    : "");
}

static int refuse_shape(const char *source, const Misfits *m, Error *err)
{
    char found[WEIGHTS_SHAPE_MAX], wanted[WEIGHTS_SHAPE_MAX], more[32];
    return error_set(err, -EINVAL, "%s: tensor %s is %s, the network's is %s%s", source,
                     m->shaped->name,
                     weights_shape(m->has_shape->dims, m->has_shape->n_dims, found),
                     weights_shape(m->shaped->dims, m->shaped->n_dims, wanted),
                     and_more(m->n_shapes, more));
}

int weights_match(const char *source, const Safetensors *file, const ParameterList *network,
                  Error *err)
{
    const Misfits m = compare(file, network);
    char more[32];
    if (!m.missing && !m.extra && !m.shaped && !m.typed)
        return 0;
    int r = m.missing || m.extra || m.shaped ? weights_refuse_other(source, file, network, err) : 0;
    if (r == 0 && (m.missing || m.extra))
        r = refuse_names(source, &m, file, err);
    if (r == 0 && m.shaped)
        r = refuse_shape(source, &m, err);
    return r < 0 ? r
                 : error_set(err, -EINVAL,
                             "%s: tensor %.100s is %s%s; convert them to F32, F16 or BF16", source,
                             m.typed->name, m.typed->dtype, and_more(m.n_types, more));
}

/* ---- files ---- */

const char *weights_key(const char *uri)
{
    const char *slash = strrchr(uri, '/');
    return slash ? slash + 1 : uri;
}

int weights_open(const char *uri, const ParameterList *network, Store **ret_store,
                 Safetensors **ret, Error *err)
{
    const char *key = weights_key(uri);
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(safetensors_freep) Safetensors *file = NULL;
    _cleanup_free_ char *folder = key == uri       ? strdup(".")
                                  : key == uri + 1 ? strdup("/")
                                                   : strndup(uri, (size_t)(key - uri) - 1);
    uint64_t n_bytes = 0;
    if (!folder)
        return error_set(err, -ENOMEM, "out of memory");
    int r = store_open(folder, &store, err);
    if (r == 0)
        r = store_head(store, key, &n_bytes, err);
    if (r == 0)
        r = safetensors_read(store, key, uri, n_bytes, SAFETENSORS_ANY, &file, err);
    if (r == 0)
        r = weights_match(uri, file, network, err);
    if (r < 0)
        return r;
    *ret_store = TAKE_PTR(store);
    *ret = TAKE_PTR(file);
    return 0;
}

int weights_check(const char *uri, const UnetConfig *config, Error *err)
{
    _cleanup_(parameter_list_freep) ParameterList *network = NULL;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(safetensors_freep) Safetensors *file = NULL;
    int r = unet_parameters(config, &network, err);
    return r < 0 ? r : weights_open(uri, network, &store, &file, err);
}
