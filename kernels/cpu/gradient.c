/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - moves gradients of parameters into a sink; computes fingerprints and counts values that are not
 * finite. */
#include "kernels/cpu/ranges.h"
#include "kernels/fingerprint.h"

/* The part of a sink that receives one range of a tensor. */
typedef struct Target {
    SinkKind kind;
    int bits, exponent;
    bool fresh;
    char *to;
} Target;

static size_t sink_element_bytes(const GradientSink *sink)
{
    return sink->kind == SINK_COUNT && sink->bits == 64 ? sizeof(int64_t) : sizeof(float);
}

static Target target_of(const GradientSink *sink, int64_t offset, int tensor)
{
    Target target = {.kind = sink->kind, .bits = sink->bits};
    if (sink->kind == SINK_MAXIMA)
        return target;
    assert(offset >= sink->first);
    target.to = (char *)sink->to + (size_t)(offset - sink->first) * sink_element_bytes(sink);
    target.fresh = sink->fresh && *sink->fresh != 0;
    if (sink->kind == SINK_COUNT) {
        assert(sink->bits == 32 || sink->bits == 64);
        target.exponent = sink->exponents[tensor];
    }
    return target;
}

/* Moves n elements into the target: g[0] goes to element `first` of the target's range. Returns the largest
 * magnitude_bits() of g, or 0 for SINK_PLAIN. */
static uint32_t take(const Target *target, const float *g, int64_t first, int64_t n)
{
    float *floats = (float *)target->to + first;
    switch (target->kind) {
    case SINK_MAXIMA:
        return range_maximum(n, g);
    case SINK_ADD:
        return range_add(n, g, target->fresh, floats);
    case SINK_COUNT:
        return target->bits == 64
                   ? range_count64(n, g, target->exponent, target->fresh,
                                   (int64_t *)target->to + first)
                   : range_count(n, g, target->exponent, target->fresh, (int32_t *)floats);
    case SINK_PLAIN:
        break;
    }
    memmove(floats, g, (size_t)n * sizeof(*g));
    return 0;
}

void sink_range(const Device *device, const float *g, int64_t n, int64_t offset, int tensor,
                const GradientSink *sink)
{
    const int team = device_team(device, n);
    const Target target = target_of(sink, offset, tensor);
    uint32_t largest = 0;

#pragma omp parallel for num_threads(team) schedule(static) reduction(max : largest)
    for (int64_t first = 0; first < n; first += RANGE) {
        const uint32_t mine = take(&target, g + first, first, MIN((int64_t)RANGE, n - first));
        largest = MAX(largest, mine);
    }
    if (sink->kind != SINK_PLAIN)
        sink->maxima[tensor] = MAX(sink->maxima[tensor], largest);
}

/* Copies elements [begin, begin + n) of the order [out][in][taps] out of `from`, whose order is [out][taps][in]. */
static void gather_channels(const GradientForm *form, const float *from, int64_t begin, int64_t n,
                            float *to)
{
    const int64_t row_elements = (int64_t)form->in * form->taps;
    for (int64_t i = begin; i < begin + n; i++) {
        const int64_t row = i / row_elements, rest = i % row_elements;
        const int64_t channel = rest / form->taps, tap = rest % form->taps;
        to[i - begin] = from[row * row_elements + tap * form->in + channel];
    }
}

/* Takes a gradient in the order [out][taps][in]. No operation of the CPU device leaves its gradient in this order, but
 * an operation of a device that wraps the CPU device may. */
static void sink_channels_last(const Device *device, const GradientForm *form, const float *from,
                               const GradientPlace *place, const GradientSink *sink)
{
    const int64_t each = place->n / place->n_tensors;
    float piece[1024];
    for (int64_t i = 0, n; i < place->n; i += n) {
        n = MIN((int64_t)ELEMENTSOF(piece), (i / each + 1) * each - i);
        gather_channels(form, from, i, n, piece);
        sink_range(device, piece, n, place->offset + i, place->tensor + (int)(i / each), sink);
    }
}

void cpu_gradient_take(Device *device, const GradientForm *form, const void *gradient,
                       const GradientPlace *place, const GradientSink *sink)
{
    assert(form->type == DATA_F32);
    assert(place->n == (int64_t)form->out * form->in * form->taps);
    assert(place->n_tensors > 0 && form->out % place->n_tensors == 0);
    if (form->order == GRADIENT_CHANNELS_LAST && form->taps > 1) {
        sink_channels_last(device, form, gradient, place, sink);
        return;
    }
    const int64_t each = place->n / place->n_tensors;
    for (int i = 0; i < place->n_tensors; i++)
        sink_range(device, (const float *)gradient + i * each, each, place->offset + i * each,
                   place->tensor + i, sink);
}

void cpu_fingerprint(Device *device, size_t n_bytes, const void *data, uint64_t *sum)
{
    const int64_t n = (int64_t)(n_bytes / sizeof(uint32_t));
    const int team = device_team(device, n);
    uint64_t all = 0;
#pragma omp parallel for num_threads(team) schedule(static) reduction(+ : all)
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, (const char *)data + i * (int64_t)sizeof(word), sizeof(word));
        all += mixed_word((uint64_t)i, word);
    }
    const char *left = (const char *)data + n * (int64_t)sizeof(uint32_t);
    if (n_bytes % sizeof(uint32_t) != 0)
        all += mixed_word((uint64_t)n, partial_word(left, n_bytes % sizeof(uint32_t)));
    *sum += all;
}

static bool is_non_finite(DataType type, const void *data, int64_t i)
{
    if (type == DATA_F32)
        return magnitude_bits(((const float *)data)[i]) >= 0x7f800000;
    const uint16_t mask = type == DATA_BF16 ? 0x7f80 : 0x7c00;
    return (((const uint16_t *)data)[i] & mask) == mask;
}

void cpu_count_non_finite(Device *device, DataType type, int64_t n, const void *data,
                          uint64_t *count)
{
    const int team = device_team(device, n);
    uint64_t all = 0;
#pragma omp parallel for num_threads(team) schedule(static) reduction(+ : all)
    for (int64_t i = 0; i < n; i++)
        all += is_non_finite(type, data, i);
    *count += all;
}
