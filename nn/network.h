/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - the SD2 U-Net as a static tape for one grain shape.
 *
 * network_new() emits the operations once, plans every activation and gradient into one arena, and makes the kernels'
 * plans. Then the caller calls network_set_weights() after each weight update, and network_forward() and
 * network_backward() for each grain.
 *
 * Ownership: network_new() gives the caller a Network; it borrows the Device. Buffers are device
 * memory.
 * Units:     latents NHWC in the device's compute type; timesteps int32; text
 * [grain][tokens][dim] compute type.
 * Errors:    -EINVAL for shapes that the config does not allow (see shapes_check()), -ENOMEM.
 */
#pragma once

#include "kernels/kernels.h"
#include "nn/parameters.h"

typedef struct Network Network;
struct Tape;

typedef struct NetworkShape {
    int grain, height, width; /* shape of the latents of one grain */
    int text_tokens;
    bool backward; /* false: inference only, a smaller arena */
} NetworkShape;

int network_new(Device *device, const UnetConfig *config, const NetworkShape *shape, Network **ret,
                Error *err);
/* The two halves of network_new(): network_plan() computes all sizes; network_allocate() allocates the memory, which
 * every function below that runs the network needs. */
int network_plan(Device *device, const UnetConfig *config, const NetworkShape *shape, Network **ret,
                 Error *err);
int network_allocate(Network *network, Error *err);
Network *network_free(Network *network);
DEFINE_CLEANUP(Network, network_free)

Device *network_device(const Network *network);
const UnetConfig *network_config(const Network *network);
const NetworkShape *network_shape(const Network *network);
const ParameterList *network_parameters(const Network *network);
/* Returns the bytes of device memory that the network uses without its parameters: for activations, workspace and
 * packed weights. */
size_t network_arena_bytes(const Network *network);
size_t network_packed_bytes(const Network *network); /* bytes of only the packed weights */
size_t network_workspace_bytes(const Network *network);
/* Returns the policy of fusion and recomputing, for the numerics record; static text. */
const char *network_policy(const Network *network);
/* Returns the tape for profiles and tests; see tape.h. */
struct Tape *network_tape(Network *network);

/* flat: all parameters, fp32, device memory; it must stay valid and unchanged until the next call. */
void network_set_weights(Network *network, const float *flat);
/* prediction: [grain][h][w][out_channels] in the compute type. All four buffers must stay in place
 * and unchanged until the backward that follows is done. */
void network_forward(Network *network, const void *latents, const int32_t *timesteps,
                     const void *text, void *prediction);
/* Called after a forward. Writes the gradient of every parameter into the sink. Tensors become final in an order that
 * the tape fixes; on_ready (may be NULL) is called once for each range of final tensors, so that a reduction can
 * begin. */
typedef void (*NetworkGradientReady)(int64_t offset, int64_t n_elements, void *userdata);
void network_backward(Network *network, const void *dprediction, const GradientSink *sink,
                      NetworkGradientReady on_ready, void *userdata);
