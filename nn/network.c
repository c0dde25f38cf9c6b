/* SPDX-License-Identifier: Apache-2.0 */
/* network.c - see network.h: the U-Net's tape and the buffers that are bound to it. */
#include "nn/network.h"

#include "nn/unet.h"

struct Network {
    Device *device;
    UnetConfig config;
    NetworkShape shape;
    Tape *tape;
    UnetValues values;
};

Network *network_free(Network *network)
{
    if (!network)
        return NULL;
    (void)tape_free(network->tape);
    free(network);
    return NULL;
}

int network_plan(Device *device, const UnetConfig *config, const NetworkShape *shape, Network **ret,
                 Error *err)
{
    _cleanup_(network_freep) Network *network = calloc(1, sizeof(*network));
    if (!network)
        return error_errno(err, -ENOMEM, "U-Net");
    network->device = device;
    network->config = *config;
    network->shape = *shape;

    int r = tape_new(&network->tape);
    if (r < 0)
        return error_errno(err, r, "U-Net");
    UnetShape unet_shape = {.n = shape->grain,
                            .height = shape->height,
                            .width = shape->width,
                            .text_tokens = shape->text_tokens};
    r = unet_emit(network->tape, config, &unet_shape, &network->values, err);
    if (r < 0)
        return r;
    r = tape_measure(network->tape, device, shape->backward, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(network);
    return 0;
}

int network_allocate(Network *network, Error *err) { return tape_allocate(network->tape, err); }

int network_new(Device *device, const UnetConfig *config, const NetworkShape *shape, Network **ret,
                Error *err)
{
    _cleanup_(network_freep) Network *network = NULL;
    int r = network_plan(device, config, shape, &network, err);
    if (r == 0)
        r = network_allocate(network, err);
    if (r == 0)
        *ret = TAKE_PTR(network);
    return r;
}

Device *network_device(const Network *network) { return network->device; }

const UnetConfig *network_config(const Network *network) { return &network->config; }

const NetworkShape *network_shape(const Network *network) { return &network->shape; }

const ParameterList *network_parameters(const Network *network)
{
    return network->tape->parameters;
}

size_t network_arena_bytes(const Network *network)
{
    const Tape *tape = network->tape;
    return tape->arena_bytes + tape->workspace_bytes + tape->packed_bytes;
}

size_t network_packed_bytes(const Network *network) { return network->tape->packed_bytes; }

size_t network_workspace_bytes(const Network *network) { return network->tape->workspace_bytes; }

const char *network_policy(const Network *network)
{
    (void)network; /* there is only one policy so far */
    return "fused: conv+bias+time+residual, linear+bias+residual, group_norm+silu, qkv, text kv; "
           "residual gradients in place; recompute: none";
}

struct Tape *network_tape(Network *network) { return network->tape; }

void network_set_weights(Network *network, const float *flat)
{
    tape_set_weights(network->tape, flat);
}

void network_forward(Network *network, const void *latents, const int32_t *timesteps,
                     const void *text, void *prediction)
{
    Tape *tape = network->tape;
    tape_bind(tape, network->values.latents, latents);
    tape_bind(tape, network->values.timesteps, timesteps);
    tape_bind(tape, network->values.text, text);
    tape_bind_output(tape, network->values.prediction, prediction);
    tape_forward(tape);
}

void network_backward(Network *network, const void *dprediction, const GradientSink *sink,
                      NetworkGradientReady on_ready, void *userdata)
{
    assert(network->shape.backward);
    tape_bind_gradient(network->tape, network->values.prediction, dprediction);
    tape_backward(network->tape, sink, on_ready, userdata);
}
