/* SPDX-License-Identifier: Apache-2.0 */
/* plans.h - a plan set: which of the libraries' algorithms each operation uses, on one model of GPU.
 *
 * The libraries choose by what they measured and by their version, so the same shape may get other bits on another
 * day. A plan set fixes the choice: for each operation, named with its type and shape, an entry states what to request
 * from the library. A plain set has no entries: all operations are this project's own kernels.
 *
 * Its text is canonical JSON (sorted keys, no blanks):
 *     {"architecture":"sm_90","cublaslt":130200,"cudnn":91900,"device":"NVIDIA H200","operations":
 *     {"linear bf16 131072x320->320 forward":{"algorithm":{"cluster_shape":2,"custom":0,"id":66,"inner_shape":0,
 *     "opaque":"<128 hexadecimal digits>","reduction":0,"split_k":1,"stages":36,"swizzling":0,"tile":20},
 *     "workspace":0}},"sms":132,"version":1}
 * or {"plain":true,"version":1}. Entries that nobody timed on a GPU make a set with "tuned":false.
 *
 * In an entry of a convolution or a linear layer, "variant" says how much of what follows the sums the library
 * does: "plain", which is also meant where it is left out, or "fused", which no module has yet. "dw" is the type of
 * a weight's gradient. "linear bf16 131072x640 of 960->320 backward_weight" is the gradient of 640 of a weight's
 * 960 columns: where x is in two tensors. All other products of such a layer are those of a layer that has only these
 * columns.
 *
 * In an entry of an attention, "images" says how many images are taken at once, all where it is left out, and
 * "padding_mask":true that the graph reads how many tokens there are; without that key it has no such mask.
 *
 * An attention or a product of a linear layer that its library refused when the plans were made, or none of whose
 * algorithms gave finite results, has {"own_kernels":true}. People write the same into the entry of such an operation,
 * or of a convolution's pass, where a library gives results that are not finite; for an attention, into the entries of
 * both passes.
 *
 * "opaque" is cuBLASLt's own form of the algorithm, which it documents to hold for one version. That is what runs; the
 * attributes beside it are for people, and must be those that the library reads in it. An entry without it is made of
 * the attributes, which may tell less than the library knows.
 *
 * Ownership: *_new(), *_parse() and *_find() give the caller the set; cuda_plans_free() accepts NULL. Entries are
 *            borrowed from their set.
 * Units:     workspace in bytes.
 * Errors:    -EINVAL: a bad text, with its source, key and value; a set for another GPU. -EPROTO: a set for another
 *            version of a library. -ENOENT: no such entry or set.
 * Threads:   one at a time.
 */
#pragma once

#include "base/json/json.h"

enum { CUDA_PLANS_VERSION = 1, CUDA_PLANS_OPERATIONS_MAX = 4096, CUDA_PLANS_OPAQUE_BYTES = 64 };

/* The machine that plans hold for. */
typedef struct CudaMachine {
    char architecture[16]; /* "sm_90" */
    char device[256];      /* the GPU's name */
    int sms;               /* multiprocessors */
    int cudnn, cublaslt;   /* versions, as the libraries report them */
} CudaMachine;

/* The "variant" of the entries that are made here, and the only one that can be replayed. */
#define CUDA_PLAN_VARIANT "plain"

typedef struct CudaPlans CudaPlans;

/* Makes a set for the machine that has no entries yet; NULL: a plain one. */
CudaPlans *cuda_plans_new(const CudaMachine *machine);
CudaPlans *cuda_plans_free(CudaPlans *plans);
DEFINE_CLEANUP(CudaPlans, cuda_plans_free)
/* source names the text in errors. */
int cuda_plans_parse(const char *source, const char *text, CudaPlans **ret, Error *err);
/* Reads a folder's set for the machine: the file of the GPU's name, its blanks as '-' (NVIDIA-H200.json), else the
 * first by name of a GPU with the same architecture and number of multiprocessors. -ENOENT: none. A file of the GPU's
 * own name that is bad or does not fit is an error; others are passed over. */
int cuda_plans_find(const char *folder, const CudaMachine *machine, CudaPlans **ret, Error *err);

/* Reports whether the folder may have a set that cuda_plans_find() would take, before the libraries' versions are
 * known: 0 if there is a file of the GPU's own name, or a set for a GPU with the same architecture and number of
 * multiprocessors; -ENOENT: none. */
int cuda_plans_look(const char *folder, const CudaMachine *machine, Error *err);

/* Checks that the machine may use the set: architecture, multiprocessors and libraries must be equal. The GPU's name
 * may differ. A plain set fits every machine. */
int cuda_plans_check(const CudaPlans *plans, const CudaMachine *machine, Error *err);
bool cuda_plans_plain(const CudaPlans *plans);
/* Finds the entry of an operation, such as "linear bf16 77x1024->320 forward". */
int cuda_plans_take(const CudaPlans *plans, const char *operation, const json_t **ret, Error *err);
/* Adds an entry, or puts it in the place of the operation's one; takes the reference. */
void cuda_plans_give(CudaPlans *plans, const char *operation, json_t *entry);
/* Adds the entries that another set has. Those of a set with "tuned":false make this one such a set, too. */
void cuda_plans_keep(CudaPlans *plans, const CudaPlans *from);
/* Returns the canonical text of the set with all its entries, which the caller frees. */
char *cuda_plans_text(const CudaPlans *plans);
