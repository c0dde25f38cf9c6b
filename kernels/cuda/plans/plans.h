/* SPDX-License-Identifier: Apache-2.0 */
/* plans.h - a plan set: the algorithms of the libraries that each operation uses, on one model of GPU.
 *
 * The libraries choose algorithms by their own measurements and by their version, so the same shape may get other bits
 * on another day. A plan set fixes the choice: for each operation, named with its type and shape, an entry states what
 * to request from the library. A plain set has no entries: all operations are this project's own kernels.
 *
 * The text of a set is canonical JSON (sorted keys, no blanks):
 *     {"architecture":"sm_90","cublaslt":130200,"cudnn":91900,"device":"NVIDIA H200","operations":
 *     {"linear bf16 131072x320->320 forward":{"algorithm":{"cluster_shape":2,"custom":0,"id":66,"inner_shape":0,
 *     "opaque":"<128 hexadecimal digits>","reduction":0,"split_k":1,"stages":36,"swizzling":0,"tile":20},
 *     "workspace":0}},"sms":132,"version":1}
 * or {"plain":true,"version":1}. A set with entries that were never timed on a GPU has "tuned":false.
 *
 * In an entry of a convolution or a linear layer, "variant" says how much of the work after the sums the library does:
 * "plain", which is also the default, or "fused", which no module supports yet. "dw" is the type of a weight's
 * gradient. "linear bf16 131072x640 of 960->320 backward_weight" is the gradient of 640 of a weight's 960 columns, for
 * a layer whose x is in two tensors. The other products of such a layer are named as those of a layer with only these
 * columns.
 *
 * In an entry of an attention, "images" says how many images are processed at once; the default is all.
 * "padding_mask":true says that the graph reads the number of tokens; without that key the graph has no such mask.
 *
 * If a library refused an attention or a product of a linear layer when the plans were made, or none of its algorithms
 * gave finite results, the entry is {"own_kernels":true}. People write the same into the entry of such an operation, or
 * of a convolution's pass, if a library gives results that are not finite; for an attention, into the entries of both
 * passes.
 *
 * "opaque" is cuBLASLt's own form of the algorithm, which is documented to be valid for one version only. This form is
 * what runs; the attributes beside it are for people, and must be equal to those that the library reads from it. If
 * an entry has no "opaque", the algorithm is made from the attributes, which may contain less than the library knows.
 *
 * Units: workspace in bytes. Threads: one at a time.
 * Ownership: *_new(), *_parse() and *_find() give the caller the set; cuda_plans_free() accepts NULL. Entries are
 *            borrowed from their set.
 * Errors:    -EINVAL: a bad text, with its source, key and value; a set for another GPU. -EPROTO: a set for another
 *            version of a library. -ENOENT: no such entry or set.
 */
#pragma once

#include "base/json/json.h"

enum { CUDA_PLANS_VERSION = 1, CUDA_PLANS_OPERATIONS_MAX = 4096, CUDA_PLANS_OPAQUE_BYTES = 64 };

/* The machine for which plans are valid. */
typedef struct CudaMachine {
    char architecture[16]; /* such as "sm_90" */
    char device[256];      /* the GPU's name */
    int sms;               /* multiprocessors */
    int cudnn, cublaslt;   /* versions, as the libraries report them */
} CudaMachine;

/* The "variant" of the entries that this module makes, and the only one that it can replay. */
#define CUDA_PLAN_VARIANT "plain"

typedef struct CudaPlans CudaPlans;

/* Makes a set without entries for the machine, or a plain set if machine is NULL. */
CudaPlans *cuda_plans_new(const CudaMachine *machine);
CudaPlans *cuda_plans_free(CudaPlans *plans);
DEFINE_CLEANUP(CudaPlans, cuda_plans_free)
/* Reads a set from its text. `source` names the text in errors. */
int cuda_plans_parse(const char *source, const char *text, CudaPlans **ret, Error *err);
/* Reads the set for the machine from a folder: the file of the GPU's name, with '-' for blanks (NVIDIA-H200.json), or
 * else the first file by name whose GPU has the same architecture and number of multiprocessors. -ENOENT: no such file.
 * A bad or unfit file of the GPU's own name is an error; a bad or unfit file of another name is skipped. */
int cuda_plans_find(const char *folder, const CudaMachine *machine, CudaPlans **ret, Error *err);

/* Reports whether the folder may have a set for cuda_plans_find(), before the versions of the libraries are known.
 * Returns 0 if there is a file of the GPU's own name, or a set for a GPU with the same architecture and number of
 * multiprocessors; otherwise -ENOENT. */
int cuda_plans_look(const char *folder, const CudaMachine *machine, Error *err);

/* Checks that the machine may use the set: architecture, multiprocessors and libraries must be equal. The GPU's name
 * may differ. A plain set fits every machine. */
int cuda_plans_check(const CudaPlans *plans, const CudaMachine *machine, Error *err);
bool cuda_plans_plain(const CudaPlans *plans);
/* Finds the entry of an operation, such as "linear bf16 77x1024->320 forward". */
int cuda_plans_take(const CudaPlans *plans, const char *operation, const json_t **ret, Error *err);
/* Adds an entry, or replaces the operation's entry. Takes the reference. */
void cuda_plans_give(CudaPlans *plans, const char *operation, json_t *entry);
/* Adds the entries of another set. If that set has "tuned":false, this set gets it, too. */
void cuda_plans_keep(CudaPlans *plans, const CudaPlans *from);
/* Returns the canonical text of the set with all its entries, which the caller frees. */
char *cuda_plans_text(const CudaPlans *plans);
