/* SPDX-License-Identifier: Apache-2.0 */
/* operations.c - the shadow device's operations: each is the CPU's operation, queued on LANE_COMPUTE with a copy of its
 * arguments.
 *
 * An argument is (kind, type, name). VALUE is copied; DATA is an address of the device; SHAPE, SINK and SUMS point to a
 * struct of the host, which is copied. The structs of SINK and SUMS contain addresses of the device. */
#include "kernels/test/shadow/device.h"

#include <stdlib.h>

/* EACH(m, a, b...) is m a m b... */
#define EACH_1(m, a) m a
#define EACH_2(m, a, ...) m a EACH_1(m, __VA_ARGS__)
#define EACH_3(m, a, ...) m a EACH_2(m, __VA_ARGS__)
#define EACH_4(m, a, ...) m a EACH_3(m, __VA_ARGS__)
#define EACH_5(m, a, ...) m a EACH_4(m, __VA_ARGS__)
#define EACH_6(m, a, ...) m a EACH_5(m, __VA_ARGS__)
#define EACH_7(m, a, ...) m a EACH_6(m, __VA_ARGS__)
#define EACH_8(m, a, ...) m a EACH_7(m, __VA_ARGS__)
#define EACH_9(m, a, ...) m a EACH_8(m, __VA_ARGS__)
#define EACH_10(m, a, ...) m a EACH_9(m, __VA_ARGS__)
#define EACH_11(m, a, ...) m a EACH_10(m, __VA_ARGS__)
#define EACH_12(m, a, ...) m a EACH_11(m, __VA_ARGS__)
#define EACH_13(m, a, ...) m a EACH_12(m, __VA_ARGS__)
#define EACH_14(m, a, ...) m a EACH_13(m, __VA_ARGS__)
#define EACH_15(m, a, ...) m a EACH_14(m, __VA_ARGS__)
#define NTH(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, n, ...) n
#define EACH_N(n) EACH_##n
#define EACH_OF(n) EACH_N(n)
#define EACH(m, ...)                                                                               \
    EACH_OF(NTH(__VA_ARGS__, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0))(m, __VA_ARGS__)

#define PARAMETER(kind, type, name) PARAMETER_##kind(type, name)
#define PARAMETER_VALUE(type, name) , type name
#define PARAMETER_DATA(type, name) , type name
#define PARAMETER_SHAPE(type, name) , const type *name
#define PARAMETER_SINK PARAMETER_SHAPE
#define PARAMETER_SUMS PARAMETER_SHAPE

#define FIELD(kind, type, name) type name;

#define STORE(kind, type, name) STORE_##kind(type, name)
#define STORE_VALUE(type, name) c->name = name;
#define STORE_DATA(type, name) c->name = shadow_call_memory(device, call, name, 0);
#define STORE_SHAPE(type, name) c->name = *name;
#define STORE_SINK(type, name) c->name = sink_below(device, call, name);
#define STORE_SUMS(type, name) c->name = sums_below(device, call, name);

#define PASS(kind, type, name) PASS_##kind(name)
#define PASS_VALUE(name) , c->name
#define PASS_DATA(name) , c->name
#define PASS_SHAPE(name) , &c->name
#define PASS_SINK PASS_SHAPE
#define PASS_SUMS PASS_SHAPE

/* The closure of one operation: the arguments that it keeps, the function that runs it, and the function that queues
 * it. */
#define CLOSURE(Subject, name, own_device, own_subject, ...)                                       \
    typedef struct {                                                                               \
        Subject *inner;                                                                            \
        EACH(FIELD, __VA_ARGS__)                                                                   \
    } name##_call;                                                                                 \
    static_assert(sizeof(name##_call) <= SHADOW_ARGUMENT_BYTES, "a call has room for them");       \
    static void name##_run(const void *arguments)                                                  \
    {                                                                                              \
        const name##_call *c = arguments;                                                          \
        cpu_backend.name(c->inner EACH(PASS, __VA_ARGS__));                                        \
    }                                                                                              \
    static void shadow_##name(Subject *subject EACH(PARAMETER, __VA_ARGS__))                       \
    {                                                                                              \
        Device *device = own_device;                                                               \
        ShadowCall *call = shadow_call_new(device, #name, name##_run);                             \
        name##_call *c = (name##_call *)call->arguments;                                           \
        call->is_operation = true;                                                                 \
        c->inner = own_subject;                                                                    \
        EACH(STORE, __VA_ARGS__)                                                                   \
        shadow_call_put(device, LANE_COMPUTE, call);                                               \
    }

#define OPERATION(name, ...) CLOSURE(Device, name, subject, shadow_of(subject)->inner, __VA_ARGS__)

#define OBJECT_OPERATION(Type, name, ...)                                                          \
    CLOSURE(Type, name, ((ShadowObject *)subject)->device, shadow_call_object(call, subject),      \
            __VA_ARGS__)

#define OBJECT(Type, Shape, stem)                                                                  \
    static int shadow_##stem##_new(Device *device, const Shape *shape, Type **ret, Error *err)     \
    {                                                                                              \
        Type *inner;                                                                               \
        int r = cpu_backend.stem##_new(shadow_of(device)->inner, shape, &inner, err);              \
        if (r < 0)                                                                                 \
            return r;                                                                              \
        shadow_object_new(device, inner, (void **)ret);                                            \
        return 0;                                                                                  \
    }                                                                                              \
    static Type *shadow_##stem##_free(Type *object)                                                \
    {                                                                                              \
        return cpu_backend.stem##_free(shadow_object_free((ShadowObject *)object, #stem "_free")); \
    }

/* Defines a query of an object, which is answered at once, without a lane. */
#define OBJECT_ANSWER(Answer, Type, name)                                                          \
    static Answer shadow_##name(const Type *object)                                                \
    {                                                                                              \
        return cpu_backend.name(((const ShadowObject *)object)->inner);                            \
    }

static GradientSink sink_below(Device *device, ShadowCall *call, const GradientSink *sink)
{
    GradientSink below = *sink;
    below.to = shadow_call_memory(device, call, sink->to, 0);
    below.exponents = shadow_call_memory(device, call, sink->exponents, 0);
    below.maxima = shadow_call_memory(device, call, sink->maxima, 0);
    below.fresh = shadow_call_memory(device, call, sink->fresh, 0);
    return below;
}

static GradientSums sums_below(Device *device, ShadowCall *call, const GradientSums *sums)
{
    GradientSums below = *sums;
    below.data = shadow_call_memory(device, call, sums->data, 0);
    below.exponents = shadow_call_memory(device, call, sums->exponents, 0);
    return below;
}

#define ON_CPU(device) (((const ShadowDevice *)(device))->inner)

OPERATION(device_copy, (DATA, void *, to), (DATA, const void *, from), (VALUE, size_t, n_bytes))
OPERATION(device_clear, (DATA, void *, memory), (VALUE, size_t, n_bytes))

OPERATION(gradient_take, (SHAPE, GradientForm, form), (DATA, const void *, gradient),
          (SHAPE, GradientPlace, place), (SINK, GradientSink, sink))

OPERATION(fingerprint, (VALUE, size_t, n_bytes), (DATA, const void *, data),
          (DATA, uint64_t *, sum))

OPERATION(count_non_finite, (VALUE, DataType, type), (VALUE, int64_t, n),
          (DATA, const void *, data), (DATA, uint64_t *, count))

/* Defines *_plan_text() of a kind of object, which calls the CPU's function; a CPU has no plans. */
#define PLAN_TEXT(Type, stem)                                                                      \
    static void shadow_##stem##_plan_text(const Type *object, KernelPass pass, char *text,         \
                                          size_t size)                                             \
    {                                                                                              \
        cpu_backend.stem##_plan_text(((const ShadowObject *)object)->inner, pass, text, size);     \
    }

OBJECT(Conv, ConvShape, conv)
PLAN_TEXT(Conv, conv)
OBJECT_ANSWER(size_t, Conv, conv_packed_bytes)
OBJECT_ANSWER(size_t, Conv, conv_workspace_bytes)
OBJECT_OPERATION(Conv, conv_pack, (DATA, const float *, weight), (DATA, void *, packed))
OBJECT_OPERATION(Conv, conv_forward, (DATA, const void *, x), (DATA, const void *, packed),
                 (DATA, const float *, bias), (DATA, const void *, per_image),
                 (DATA, const void *, residual), (DATA, void *, y), (DATA, void *, workspace))
OBJECT_OPERATION(Conv, conv_backward_data, (DATA, const void *, dy), (DATA, const float *, weight),
                 (DATA, const void *, packed), (DATA, void *, dx), (VALUE, bool, accumulate),
                 (DATA, void *, workspace))
OBJECT_ANSWER(GradientForm, Conv, conv_gradient_form)
OBJECT_OPERATION(Conv, conv_backward_weight, (DATA, const void *, x), (DATA, const void *, dy),
                 (DATA, void *, dweight), (DATA, float *, dbias), (DATA, void *, workspace))

OBJECT(Linear, LinearShape, linear)
PLAN_TEXT(Linear, linear)
OBJECT_ANSWER(size_t, Linear, linear_packed_bytes)
OBJECT_ANSWER(size_t, Linear, linear_workspace_bytes)
OBJECT_OPERATION(Linear, linear_pack, (DATA, const float *, weight), (DATA, void *, packed))
OBJECT_OPERATION(Linear, linear_forward, (DATA, const void *, x), (DATA, const float *, weight),
                 (DATA, const void *, packed), (DATA, const float *, bias),
                 (DATA, const void *, residual), (DATA, void *, y), (DATA, void *, workspace))
OBJECT_OPERATION(Linear, linear_backward_data, (DATA, const void *, dy),
                 (DATA, const float *, weight), (DATA, const void *, packed), (DATA, void *, dx),
                 (VALUE, bool, accumulate), (DATA, void *, workspace))
OBJECT_ANSWER(GradientForm, Linear, linear_gradient_form)
OBJECT_OPERATION(Linear, linear_backward_weight, (DATA, const void *, x), (DATA, const void *, dy),
                 (DATA, void *, dweight), (DATA, float *, dbias), (DATA, void *, workspace))

OBJECT(Attention, AttentionShape, attention)
PLAN_TEXT(Attention, attention)
OBJECT_ANSWER(size_t, Attention, attention_workspace_bytes)
OBJECT_ANSWER(size_t, Attention, attention_saved_bytes)
OBJECT_OPERATION(Attention, attention_forward, (DATA, const void *, q), (DATA, const void *, k),
                 (DATA, const void *, v), (DATA, void *, out), (DATA, void *, saved),
                 (DATA, void *, workspace))
OBJECT_OPERATION(Attention, attention_backward, (DATA, const void *, q), (DATA, const void *, k),
                 (DATA, const void *, v), (DATA, const void *, out), (DATA, const void *, saved),
                 (DATA, const void *, dout), (DATA, void *, dq), (DATA, void *, dk),
                 (DATA, void *, dv), (DATA, void *, workspace))

OPERATION(group_norm_forward, (SHAPE, GroupNormShape, shape), (DATA, const void *, x),
          (DATA, const void *, second), (DATA, const float *, gamma), (DATA, const float *, beta),
          (DATA, void *, y), (DATA, float *, saved))
OPERATION(group_norm_backward, (SHAPE, GroupNormShape, shape), (DATA, const void *, x),
          (DATA, const void *, second), (DATA, const float *, gamma), (DATA, const float *, beta),
          (DATA, const float *, saved), (DATA, const void *, dy), (DATA, void *, dx),
          (VALUE, bool, accumulate), (DATA, void *, dsecond), (VALUE, bool, accumulate_second),
          (DATA, float *, dgamma), (DATA, float *, dbeta), (DATA, void *, workspace))
OPERATION(layer_norm_forward, (SHAPE, LayerNormShape, shape), (DATA, const void *, x),
          (DATA, const float *, gamma), (DATA, const float *, beta), (DATA, void *, y),
          (DATA, float *, saved))
OPERATION(layer_norm_backward, (SHAPE, LayerNormShape, shape), (DATA, const void *, x),
          (DATA, const float *, gamma), (DATA, const float *, saved), (DATA, const void *, dy),
          (DATA, void *, dx), (VALUE, bool, accumulate), (DATA, float *, dgamma),
          (DATA, float *, dbeta), (DATA, float *, dsums), (DATA, void *, workspace))

OPERATION(geglu_forward, (VALUE, int64_t, rows), (VALUE, int, f), (DATA, const void *, x),
          (DATA, void *, y))
OPERATION(geglu_backward, (VALUE, int64_t, rows), (VALUE, int, f), (DATA, const void *, x),
          (DATA, const void *, dy), (DATA, void *, dx), (DATA, float *, dsums),
          (DATA, void *, workspace))
OPERATION(gelu_forward, (VALUE, int64_t, n), (DATA, const void *, x), (DATA, void *, y))
OPERATION(embedding_forward, (VALUE, int, n), (VALUE, int, tokens), (VALUE, int, c_),
          (DATA, const float *, words), (DATA, const float *, positions),
          (DATA, const int32_t *, ids), (DATA, void *, y))
OPERATION(silu_forward, (VALUE, int64_t, n), (DATA, const void *, x), (DATA, void *, y))
OPERATION(silu_backward, (VALUE, int64_t, n), (DATA, const void *, x), (DATA, const void *, dy),
          (DATA, void *, dx), (VALUE, bool, accumulate))
OPERATION(accumulate, (VALUE, int64_t, n), (DATA, const void *, x), (DATA, void *, y))
OPERATION(concat_forward, (VALUE, int64_t, rows), (VALUE, int, ca), (VALUE, int, cb),
          (DATA, const void *, a), (DATA, const void *, b), (DATA, void *, y))
OPERATION(concat_backward, (VALUE, int64_t, rows), (VALUE, int, ca), (VALUE, int, cb),
          (DATA, const void *, dy), (DATA, void *, da), (VALUE, bool, accumulate_a),
          (DATA, void *, db), (VALUE, bool, accumulate_b))
OPERATION(upsample_forward, (VALUE, int, n), (VALUE, int, to_h), (VALUE, int, to_w),
          (VALUE, int, c_), (DATA, const void *, x), (DATA, void *, y))
OPERATION(upsample_backward, (VALUE, int, n), (VALUE, int, to_h), (VALUE, int, to_w),
          (VALUE, int, c_), (DATA, const void *, dy), (DATA, void *, dx), (VALUE, bool, accumulate))
OPERATION(spatial_sum, (VALUE, int, n), (VALUE, int64_t, pixels), (VALUE, int, c_),
          (DATA, const void *, dy), (DATA, void *, dper_image))
OPERATION(time_embedding, (VALUE, int, n), (VALUE, int, c_), (VALUE, bool, flip_sin_to_cos),
          (VALUE, double, freq_shift), (DATA, const int32_t *, timesteps), (DATA, void *, y))
OPERATION(cast_from_f32, (VALUE, int64_t, n), (DATA, const float *, x), (DATA, void *, y))
OPERATION(cast_to_f32, (VALUE, int64_t, n), (DATA, const void *, x), (DATA, float *, y))

OPERATION(normal_noise, (VALUE, uint64_t, key), (VALUE, int, n), (VALUE, int64_t, n_each),
          (DATA, const int64_t *, positions), (DATA, float *, noise))
OPERATION(diffuse, (VALUE, int, n), (VALUE, int64_t, n_each), (DATA, const float *, x0),
          (DATA, const float *, noise), (DATA, const int32_t *, timesteps),
          (DATA, const float *, a), (DATA, const float *, b), (VALUE, bool, v_prediction),
          (DATA, float *, x_t), (DATA, float *, target))
OPERATION(mse_loss, (VALUE, int64_t, n), (DATA, const void *, prediction),
          (DATA, const float *, target), (VALUE, float, scale), (DATA, double *, loss),
          (DATA, void *, dprediction), (DATA, void *, workspace))

OBJECT(StatePlan, StatePlanShape, state_plan)
OBJECT_OPERATION(StatePlan, state_count, (DATA, const float *, gradient), (VALUE, int64_t, begin),
                 (VALUE, int64_t, end), (SINK, GradientSink, sink))
OBJECT_OPERATION(StatePlan, state_squares, (SUMS, GradientSums, sums), (DATA, double *, squares))
OBJECT_OPERATION(StatePlan, state_update, (SHAPE, AdamW, adamw), (VALUE, double, ema_decay),
                 (SUMS, GradientSums, sums), (DATA, float *, weights), (DATA, float *, m),
                 (DATA, float *, v), (DATA, float *, ema))

/* ---- queries that need no lane ---- */

static uint64_t shadow_device_memory_bytes(const Device *device)
{
    return cpu_backend.device_memory_bytes(ON_CPU(device));
}

static size_t shadow_group_norm_workspace_bytes(const Device *device, const GroupNormShape *shape)
{
    return cpu_backend.group_norm_workspace_bytes(ON_CPU(device), shape);
}

static bool shadow_reads_joined(const Device *device)
{
    return cpu_backend.reads_joined(ON_CPU(device));
}

static size_t shadow_layer_norm_workspace_bytes(const Device *device, const LayerNormShape *shape)
{
    return cpu_backend.layer_norm_workspace_bytes(ON_CPU(device), shape);
}

static size_t shadow_geglu_workspace_bytes(const Device *device, int64_t rows, int f)
{
    return cpu_backend.geglu_workspace_bytes(ON_CPU(device), rows, f);
}

static size_t shadow_mse_loss_workspace_bytes(const Device *device, int64_t n)
{
    return cpu_backend.mse_loss_workspace_bytes(ON_CPU(device), n);
}

static const void *shadow_device_host_view(Device *device, const void *memory)
{
    (void)device; /* the host cannot read device memory */
    (void)memory;
    return NULL;
}

static int shadow_open_environment(const DeviceOptions *options, Device **ret, Error *err)
{
    ShadowOptions shadow;
    int r = shadow_options_parse(getenv("SDTRAIN_SHADOW"), &shadow, err);
    return r < 0 ? r : shadow_open(options, &shadow, ret, err);
}

#define TABLE_ENTRY(name) .name = shadow_##name,
const KernelsBackend shadow_backend = {.interface = KERNELS_INTERFACE,
                                       .open = shadow_open_environment,
                                       KERNELS_OPERATIONS(TABLE_ENTRY)};
