/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h - the network's parameters as one flat buffer in walk order, named as diffusers
 * names them.
 *
 * The walk: conv_in, time embedding, then the blocks as data flows through them (a resnet, its
 * attention, the next resnet, ...), inside a module in diffusers' order. So to_q, to_k and to_v lie
 * side by side, and backward finishes the buffer roughly from its end to its start.
 *
 * Ownership: unet_parameters() gives the caller a ParameterList; parameter_list_free() accepts
 * NULL.
 * Units:     elements of fp32; offsets count from the start of the flat buffer, without gaps.
 * Errors:    -ENOMEM; -EINVAL where unet_emit() refuses the config.
 * Threads:   immutable after creation; any.
 * Source:    diffusers UNet2DConditionModel: names, shapes (OIHW, [out][in]) and default
 * initialisation.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "kernels/kernels.h"
#include "protocol/unet-config.h"

enum { PARAMETER_NAME_MAX = 128, PARAMETER_DIMS_MAX = 4 };

typedef enum ParameterKind {
    PARAMETER_WEIGHT,
    PARAMETER_BIAS,
    PARAMETER_NORM_WEIGHT,
    PARAMETER_NORM_BIAS
} ParameterKind;

typedef struct Parameter {
    char name[PARAMETER_NAME_MAX]; /* "down_blocks.0.resnets.0.conv1.weight" */
    ParameterKind kind;
    int n_dims;
    int64_t dims[PARAMETER_DIMS_MAX];
    int64_t n_elements;
    int64_t offset;
    int64_t fan_in; /* of the layer, for the default initialisation of weight and bias */
} Parameter;

typedef struct ParameterList {
    Parameter *items;
    size_t n_items;
    int64_t n_elements;
} ParameterList;

int unet_parameters(const UnetConfig *config, ParameterList **ret, Error *err);
ParameterList *parameter_list_free(ParameterList *list);
DEFINE_CLEANUP(ParameterList, parameter_list_free)

/* Building a list: an empty one, then one more parameter at its end. The name is prefix + suffix;
 * dims ends with the first 0. -ENAMETOOLONG, -ENOMEM. */
int parameter_list_new(ParameterList **ret);
int parameter_list_add(ParameterList *list, ParameterKind kind, const char *prefix,
                       const char *suffix, const int64_t dims[PARAMETER_DIMS_MAX], int64_t fan_in);

/* Fills `to` (host memory) with elements [begin, end) of PyTorch's defaults: uniform(-1/sqrt(fan_in),
 * 1/sqrt(fan_in)) for weights and biases of layers, 1 and 0 for norms. Draws are Philox's at counter (tensor
 * index, block), key hash("initial weights", seed). */
void parameters_initialise_range(const ParameterList *list, uint64_t seed, int64_t begin,
                                 int64_t end, float *to);
/* All elements. */
static inline void parameters_initialise(const ParameterList *list, uint64_t seed, float *flat)
{
    parameters_initialise_range(list, seed, 0, list->n_elements, flat);
}

/* The plan of the state that the list lays out. cut: how it is cut and whose the parts are; its tensors and
 * n_elements are the list's, and chunk_elements of 0 make one chunk of it. */
int parameter_list_plan(const ParameterList *list, Device *device, StatePlanShape cut,
                        StatePlan **ret, Error *err);
