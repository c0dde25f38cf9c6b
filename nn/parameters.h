/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h - the network's parameters as one flat buffer in walk order, with the names that diffusers uses.
 *
 * The walk: conv_in, time embedding, then the blocks as data flows through them (a resnet, its attention, the next
 * resnet, ...), and inside a module in diffusers' order. So to_q, to_k and to_v lie side by side, and backward finishes
 * the buffer roughly from its end to its start.
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
    /* fan-in of the layer, for the default initialisation of the layer's weight and bias */
    int64_t fan_in;
} Parameter;

typedef struct ParameterList {
    Parameter *items;
    size_t n_items;
    int64_t n_elements;
} ParameterList;

int unet_parameters(const UnetConfig *config, ParameterList **ret, Error *err);
ParameterList *parameter_list_free(ParameterList *list);
DEFINE_CLEANUP(ParameterList, parameter_list_free)

/* parameter_list_new() makes an empty list; parameter_list_add() adds one parameter at its end. The parameter's name is
 * prefix + suffix; dims ends with the first 0. Errors: -ENAMETOOLONG, -ENOMEM. */
int parameter_list_new(ParameterList **ret);
int parameter_list_add(ParameterList *list, ParameterKind kind, const char *prefix,
                       const char *suffix, const int64_t dims[PARAMETER_DIMS_MAX], int64_t fan_in);

/* Fills `to` (host memory) with elements [begin, end) of PyTorch's defaults: uniform(-1/sqrt(fan_in), 1/sqrt(fan_in))
 * for weights and biases of layers, 1 and 0 for the weights and biases of norms. Draws are Philox numbers with counter
 * (tensor index, block) and key hash("initial weights", seed). */
void parameters_initialise_range(const ParameterList *list, uint64_t seed, int64_t begin,
                                 int64_t end, float *to);
/* Fills `flat` with all elements. */
static inline void parameters_initialise(const ParameterList *list, uint64_t seed, float *flat)
{
    parameters_initialise_range(list, seed, 0, list->n_elements, flat);
}

/* Makes the plan of a state with the list's tensors. cut: how the state is cut, and which rank owns which part. The
 * function sets cut's tensors and n_elements from the list; chunk_elements of 0 make one chunk of the whole state. */
int parameter_list_plan(const ParameterList *list, Device *device, StatePlanShape cut,
                        StatePlan **ret, Error *err);
