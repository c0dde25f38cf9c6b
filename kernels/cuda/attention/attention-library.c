/* SPDX-License-Identifier: Apache-2.0 */
/* attention-library.c - see attention-library.h. */
#include "kernels/cuda/attention/attention-library.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernels/cuda/attention/attention-choice.h"
#include "kernels/cuda/attention/attention-tile.h"
#include "kernels/cuda/attention/attention-tune.h"
#include "kernels/cuda/plans/plans.h"

#include <stdlib.h>
#include <string.h>

struct AttentionLibrary {
    Device *device;
    AttentionShape shape;
    cudnnHandle_t handle;
    struct {
        AttentionChoice choice;
        AttentionGraph *graph; /* the graph for choice.images images */
        CudaWork work;         /* the work of one run of the graph */
        double usec;           /* time of the pass over all images; < 0: not measured */
    } passes[N_ATTENTION_PASSES];
    AttentionTensors lengths; /* only the lengths are set, and only if a pass has a padding mask */
    size_t workspace_bytes;
    int users;
    AttentionLibrary *next; /* the next object in the list CudaCompute.attentions */
};

/* ---- sharing ---- */

/* Returns the object in use for the same shape, or NULL. A network has many attentions of few shapes, and cuDNN
 * compiles a kernel for each graph, which takes half a second. Attentions of one shape run one after the other, so they
 * can share their graphs. */
static AttentionLibrary *find_shared(const CudaCompute *compute, const AttentionShape *shape)
{
    char name[ATTENTION_NAME_MAX], other[ATTENTION_NAME_MAX];
    attention_pass_name(shape, ATTENTION_FORWARD, name);
    for (AttentionLibrary *l = compute->attentions; l; l = l->next) {
        attention_pass_name(&l->shape, ATTENTION_FORWARD, other);
        if (strcmp(name, other) == 0 && l->shape.forward_only == shape->forward_only)
            return l;
    }
    return NULL;
}

static void share(CudaCompute *compute, AttentionLibrary *l)
{
    l->next = compute->attentions;
    compute->attentions = l;
}

/* Removes the object from the list. A half-built object is not in the list. */
static void unshare(CudaCompute *compute, const AttentionLibrary *l)
{
    for (AttentionLibrary **at = &compute->attentions; *at; at = &(*at)->next)
        if (*at == l) {
            *at = l->next;
            return;
        }
}

/* ---- planning ---- */

/* Returns the number of passes of the shape; the first is forward. */
static AttentionPass passes_of(const AttentionLibrary *l)
{
    return l->shape.forward_only ? ATTENTION_BACKWARD : N_ATTENTION_PASSES;
}

static int architecture_of(const CudaCompute *compute)
{
    return atoi(compute->machine->architecture + strlen("sm_"));
}

/* Counts two products for forward (the scores, and the weighted sum of the values) and five for backward. Each tensor
 * is moved once. */
static CudaWork work_of(const AttentionLibrary *l, AttentionPass pass, int images)
{
    const AttentionShape *s = &l->shape;
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(s, pass, name);
    const double lines = (double)images * s->heads, width = s->head_dim;
    const double q = lines * (double)s->q_tokens, kv = lines * (double)s->kv_tokens;
    /* Backward also reads out and dout, and writes dq, dk and dv. */
    const bool back = pass == ATTENTION_BACKWARD;
    return (CudaWork){.name = cuda_compute_name(cuda_compute(l->device), name),
                      .bytes = 2 * width * (back ? 4 * q + 4 * kv : 2 * q + 2 * kv) + 4 * q,
                      .flop = (back ? 10 : 4) * width * q * (double)s->kv_tokens};
}

/* Makes one pass from its entry in the plans. On a device that makes plans, a pass without an entry gets the plan that
 * attention_tune() finds. */
static int make_pass(AttentionLibrary *l, const AttentionTarget *target, AttentionPass pass,
                     Error *err)
{
    const CudaCompute *compute = cuda_compute(l->device);
    AttentionChoice *choice = &l->passes[pass].choice;
    AttentionGraph **graph = &l->passes[pass].graph;
    char name[ATTENTION_NAME_MAX];
    const json_t *entry;
    int r;
    l->passes[pass].usec = -1;
    attention_pass_name(&l->shape, pass, name);
    if (compute->tune && cuda_plans_take(compute->plans, name, &entry, NULL) < 0) {
        r = attention_tune(cuda_compute(l->device), target, &l->shape, pass,
                           ATTENTION_WORKSPACE_MAX, choice, graph, &l->passes[pass].usec, err);
    } else {
        r = cuda_plans_take(compute->plans, name, &entry, err);
        if (r == 0)
            r = attention_choice_read(name, l->shape.n, entry, choice, err);
        if (r == 0)
            r = attention_choice_graph(target, &l->shape, pass, choice, graph, err);
    }
    if (r == 0)
        l->workspace_bytes =
            MAX(l->workspace_bytes, (size_t)attention_graph_workspace_bytes(*graph));
    if (r == 0)
        l->passes[pass].work = work_of(l, pass, choice->images);
    if (r == 0 && attention_graph_has_mask(*graph) && !l->lengths.of[ATTENTION_Q_LENGTHS])
        r = attention_lengths_new(l->device, &l->shape, &l->lengths, err);
    return r;
}

static bool has_entry(const AttentionLibrary *l, AttentionPass pass)
{
    char name[ATTENTION_NAME_MAX];
    const json_t *entry;
    attention_pass_name(&l->shape, pass, name);
    return cuda_plans_take(cuda_compute(l->device)->plans, name, &entry, NULL) == 0;
}

/* Reports whether a pass lacks its entry and the device makes plans. */
static bool must_tune(const AttentionLibrary *l)
{
    bool lacks = false;
    for (AttentionPass pass = 0; pass < passes_of(l); pass++)
        lacks |= !has_entry(l, pass);
    return lacks && cuda_compute(l->device)->tune;
}

/* Adds an entry for each pass that has none. Entries that the set already has stay unchanged. */
static void give_entries(const AttentionLibrary *l)
{
    for (AttentionPass pass = 0; pass < passes_of(l); pass++) {
        char name[ATTENTION_NAME_MAX];
        if (has_entry(l, pass))
            continue;
        attention_pass_name(&l->shape, pass, name);
        cuda_plans_give(cuda_compute(l->device)->plans, name,
                        attention_choice_entry(&l->passes[pass].choice,
                                               attention_graph_workspace_bytes(
                                                   l->passes[pass].graph)));
    }
}

static void report_kernels(const AttentionLibrary *l, const char *why)
{
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(&l->shape, ATTENTION_FORWARD, name);
    if (attention_tile_serves(l->device, &l->shape))
        log_info("our own kernels compute %s: %s", name, why);
    else
        log_warning("our own kernels, which are slow, compute %s: %s", name, why);
}

/* Compares the times of all passes together, because cuDNN or our own kernels must compute all passes. Returns 1 if our
 * own kernels are faster, 0 if not or if a pass was not measured, and -errno on an error. */
static int own_is_quicker(const AttentionLibrary *l, Error *err)
{
    double of_library = 0, of_kernels = 0, usec;
    char why[100];
    if (!attention_tile_serves(l->device, &l->shape))
        return 0;
    for (AttentionPass pass = 0; pass < passes_of(l); pass++) {
        if (l->passes[pass].usec < 0)
            return 0;
        of_library += l->passes[pass].usec;
    }
    for (AttentionPass pass = 0; pass < passes_of(l); pass++) {
        int r = attention_tune_tile(cuda_compute(l->device), &l->shape, pass, &usec, err);
        if (r < 0)
            return r;
        if (usec < 0)
            return 0;
        of_kernels += usec;
    }
    (void)snprintf(why, sizeof(why), "all passes take %.1f us, by cuDNN %.1f us", of_kernels,
                   of_library);
    if (of_kernels < of_library)
        report_kernels(l, why);
    return of_kernels < of_library;
}

/* Gives every pass the entry of our own kernels, also in place of an entry that the set has. cuDNN's forward saves
 * other values than our own forward, so both passes must be computed by cuDNN or both by our own kernels. */
static void give_own_entries(const AttentionLibrary *l)
{
    for (AttentionPass pass = 0; pass < passes_of(l); pass++) {
        char name[ATTENTION_NAME_MAX];
        attention_pass_name(&l->shape, pass, name);
        cuda_plans_give(cuda_compute(l->device)->plans, name, attention_own_entry());
    }
}

/* Returns 1 if the plans leave the shape to our own kernels, 0 if they leave it to cuDNN, or -errno. Every pass must
 * have an entry. */
static int left_to_kernels(const AttentionLibrary *l, Error *err)
{
    int n_own = 0;
    char name[ATTENTION_NAME_MAX];
    for (AttentionPass pass = 0; pass < passes_of(l); pass++) {
        const json_t *entry;
        attention_pass_name(&l->shape, pass, name);
        int r = cuda_plans_take(cuda_compute(l->device)->plans, name, &entry, err);
        if (r < 0)
            return r;
        const bool own = attention_entry_is_own(entry);
        if (pass > 0 && own != (n_own > 0))
            return error_set(err, -EINVAL, "%s: own_kernels: %s, unlike forward's", name,
                             own ? "there" : "missing");
        n_own += own;
    }
    return n_own > 0;
}

/* Reports whether the plans already leave the shape to our own kernels. */
static bool was_refused(const AttentionLibrary *l)
{
    char name[ATTENTION_NAME_MAX];
    const json_t *entry;
    attention_pass_name(&l->shape, ATTENTION_FORWARD, name);
    return cuda_plans_take(cuda_compute(l->device)->plans, name, &entry, NULL) == 0 &&
           attention_entry_is_own(entry);
}

/* Returns 1 if our own kernels compute the shape, 0 if cuDNN does, or -errno. `tunes` is true if the device makes plans
 * and a pass has no entry yet. */
static int make(AttentionLibrary *l, bool tunes, Error *err)
{
    CudaCompute *compute = cuda_compute(l->device);
    AttentionTarget target = {.architecture = architecture_of(compute)};
    int r = tunes ? was_refused(l) : left_to_kernels(l, err);
    if (r > 0)
        report_kernels(l, "the plans leave it to them");
    if (r != 0)
        return r;
    r = cuda_compute_cudnn(compute, &target.handle, err);
    l->handle = target.handle;
    for (AttentionPass pass = 0; r == 0 && pass < passes_of(l); pass++)
        r = make_pass(l, &target, pass, err);
    if (tunes && (r == -EINVAL || r == -ENOENT)) {
        report_kernels(l, err->text);
        return 1;
    }
    return r == 0 && tunes ? own_is_quicker(l, err) : r;
}

int attention_library_new(Device *device, const AttentionShape *shape, AttentionLibrary **ret,
                          Error *err)
{
    CudaCompute *compute = cuda_compute(device);
    AttentionLibrary *l = find_shared(compute, shape);
    if (l) {
        l->users++;
        *ret = l;
        return 0;
    }
    l = memory_new(AttentionLibrary);
    l->device = device;
    l->shape = *shape;
    l->users = 1;
    const bool tunes = must_tune(l);
    int r = make(l, tunes, err);
    if (r >= 0 && tunes)
        (r == 0 ? give_entries : give_own_entries)(l);
    if (r == 0)
        share(compute, l);
    else
        l = attention_library_free(l);
    if (r >= 0)
        *ret = l;
    return MIN(r, 0);
}

AttentionLibrary *attention_library_free(AttentionLibrary *l)
{
    if (!l || --l->users > 0)
        return NULL;
    unshare(cuda_compute(l->device), l);
    for (int pass = 0; pass < N_ATTENTION_PASSES; pass++)
        (void)attention_graph_free(l->passes[pass].graph);
    attention_lengths_free(l->device, &l->lengths);
    free(l);
    return NULL;
}

size_t attention_library_workspace_bytes(const AttentionLibrary *l) { return l->workspace_bytes; }

size_t attention_library_saved_bytes(const AttentionLibrary *l)
{
    return (size_t)l->shape.n * (size_t)l->shape.heads * (size_t)l->shape.q_tokens * sizeof(float);
}

void attention_library_plan_text(const AttentionLibrary *l, KernelPass pass, char *text,
                                 size_t size)
{
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(&l->shape, pass == KERNEL_FORWARD ? ATTENTION_FORWARD : ATTENTION_BACKWARD,
                        name);
    cuda_plan_text(cuda_compute(l->device), "cuDNN", name, text, size);
}

/* ---- running ---- */

/* Runs the pass for one group of images after the other. All groups use the same workspace. */
static void run(AttentionLibrary *l, AttentionPass pass, const AttentionTensors *tensors,
                void *workspace)
{
    (void)cuda_compute_stream(l->device); /* makes the device's GPU current */
    for (int first = 0; first < l->shape.n; first += l->passes[pass].choice.images) {
        Error err = ERROR_INIT;
        AttentionGraph *graph = l->passes[pass].graph;
        AttentionTensors part = attention_images(&l->shape, tensors, first);
        for (AttentionTensor i = ATTENTION_Q_LENGTHS; i < N_ATTENTION_TENSORS; i++)
            part.of[i] = l->lengths.of[i];
        if (attention_graph_execute(graph, l->handle, &part, workspace, &err) < 0) {
            cuda_compute_break(cuda_compute(l->device), attention_graph_name(graph), "cuDNN",
                               err.text);
            return;
        }
        cuda_launched(l->device, &l->passes[pass].work);
    }
}

/* Casts const away: AttentionTensors has one type for the tensors that a pass reads and for those that it writes. */
static void *tensor(const void *memory) { return (void *)(uintptr_t)memory; }

void attention_library_forward(AttentionLibrary *l, const void *q, const void *k, const void *v,
                               void *out, void *saved, void *workspace)
{
    const AttentionTensors tensors = {.of = {[ATTENTION_Q] = tensor(q),
                                             [ATTENTION_K] = tensor(k),
                                             [ATTENTION_V] = tensor(v),
                                             [ATTENTION_OUT] = out,
                                             [ATTENTION_SUMS] = saved}};
    run(l, ATTENTION_FORWARD, &tensors, workspace);
}

void attention_library_backward(AttentionLibrary *l, const void *q, const void *k, const void *v,
                                const void *out, const void *saved, const void *dout, void *dq,
                                void *dk, void *dv, void *workspace)
{
    const AttentionTensors tensors = {.of = {[ATTENTION_Q] = tensor(q),
                                             [ATTENTION_K] = tensor(k),
                                             [ATTENTION_V] = tensor(v),
                                             [ATTENTION_OUT] = tensor(out),
                                             [ATTENTION_SUMS] = tensor(saved),
                                             [ATTENTION_DOUT] = tensor(dout),
                                             [ATTENTION_DQ] = dq,
                                             [ATTENTION_DK] = dk,
                                             [ATTENTION_DV] = dv}};
    run(l, ATTENTION_BACKWARD, &tensors, workspace);
}
