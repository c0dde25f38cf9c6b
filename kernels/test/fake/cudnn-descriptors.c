/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn-descriptors.c - the fake cuDNN's handles, descriptors and attributes; see fake-cudnn.h. */
#include "kernels/test/fake/fake-cudnn.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x63646e6e };

struct cudnnContext {
    cudaStream_t stream;
};

static char last_error[256];

cudnnStatus_t fake_refuse(cudnnStatus_t status, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(last_error, sizeof(last_error), format, ap); /* a long text is cut off */
    va_end(ap);
    return status;
}

void cudnnGetLastErrorString(char *message, size_t size)
{
    (void)snprintf(message, size, "%s", last_error);
    last_error[0] = '\0';
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static const struct {
        cudnnStatus_t status;
        const char *name;
    } names[] = {
        {CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"},
        {CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
        {CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
        {CUDNN_STATUS_INTERNAL_ERROR, "CUDNN_STATUS_INTERNAL_ERROR"},
        {CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].status == CUDNN_STATUS_CATEGORY(status) || names[i].status == status)
            return names[i].name;
    return "CUDNN_STATUS_UNKNOWN";
}

/* ---- handles ---- */

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = calloc(1, sizeof(**handle));
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream)
{
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- the attributes that a descriptor accepts ---- */

typedef struct Rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type, or_type;
    int64_t min, max; /* the fewest and the most values of the attribute */
    bool is_required;
} Rule;

#define OF(kind) CUDNN_BACKEND_##kind##_DESCRIPTOR
#define TAKES(kind, name, type, min, max, required)                                                \
    {                                                                                              \
        OF(kind), CUDNN_ATTR_##name, CUDNN_TYPE_##type, CUDNN_TYPE_##type, min, max, required      \
    }
#define OPERATION_RULES(kind, prefix, x, w, y)                                                     \
    TAKES(kind, OPERATION_CONVOLUTION_##prefix##_CONV_DESC, BACKEND_DESCRIPTOR, 1, 1, true),       \
        TAKES(kind, OPERATION_CONVOLUTION_##prefix##_##x, BACKEND_DESCRIPTOR, 1, 1, true),         \
        TAKES(kind, OPERATION_CONVOLUTION_##prefix##_##w, BACKEND_DESCRIPTOR, 1, 1, true),         \
        TAKES(kind, OPERATION_CONVOLUTION_##prefix##_##y, BACKEND_DESCRIPTOR, 1, 1, true),         \
        {OF(kind),                                                                                 \
         CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA,                                        \
         CUDNN_TYPE_DOUBLE,                                                                        \
         CUDNN_TYPE_FLOAT,                                                                         \
         1,                                                                                        \
         1,                                                                                        \
         true},                                                                                    \
    {                                                                                              \
        OF(kind), CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA, CUDNN_TYPE_DOUBLE,             \
            CUDNN_TYPE_FLOAT, 1, 1, true                                                           \
    }

static const Rule rules[] = {
    TAKES(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1, true),
    TAKES(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1, true),
    TAKES(TENSOR, TENSOR_DIMENSIONS, INT64, 1, 8, true),
    TAKES(TENSOR, TENSOR_STRIDES, INT64, 1, 8, true),
    TAKES(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1, true),
    TAKES(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, 1, true),
    TAKES(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, 1, true),
    TAKES(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1, true),
    TAKES(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2, 2, true),
    TAKES(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2, 2, true),
    TAKES(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2, 2, true),
    TAKES(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2, 2, true),
    OPERATION_RULES(OPERATION_CONVOLUTION_FORWARD, FORWARD, X, W, Y),
    OPERATION_RULES(OPERATION_CONVOLUTION_BACKWARD_DATA, BWD_DATA, DX, W, DY),
    OPERATION_RULES(OPERATION_CONVOLUTION_BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
    TAKES(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, 8, true),
    TAKES(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1, false),
    TAKES(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, 1, true),
    TAKES(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1, true),
    TAKES(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1, 1, false),
    TAKES(ENGINE, ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, 1, true),
    TAKES(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1, 1, true),
    TAKES(ENGINE, ENGINE_DEVICEPROP, BACKEND_DESCRIPTOR, 1, 1, false),
    TAKES(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1, 1, true),
    TAKES(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64, 1, 1, true),
    TAKES(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, 1, true),
    TAKES(ENGINECFG, ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR, 1, 64, false),
    TAKES(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, 1, true),
    TAKES(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, 1, false),
    TAKES(EXECUTION_PLAN, EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1, 1, false),
    TAKES(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, 64, true),
    TAKES(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, 64, true),
    TAKES(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1, true),
    TAKES(DEVICEPROP, DEVICEPROP_JSON_REPRESENTATION, CHAR, 2, 1 << 20, true),
};

static size_t type_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    default: /* an enum, or float */
        return 4;
    }
}

/* ---- descriptors ---- */

void fake_drop(FakeDescriptor *d)
{
    if (--d->n_references > 0)
        return;
    for (int i = 0; i < d->n_attributes; i++) {
        FakeAttribute *a = &d->attributes[i];
        if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
            for (int64_t j = 0; j < a->n; j++)
                fake_drop(((FakeDescriptor **)a->values)[j]);
        free(a->values);
    }
    d->magic = 0;
    free(d);
}

/* Finds a descriptor that exists and was not destroyed. */
static cudnnStatus_t look_at(cudnnBackendDescriptor_t descriptor, FakeDescriptor **ret)
{
    FakeDescriptor *d = descriptor;
    if (!d)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is NULL");
    if (d->magic != MAGIC || d->is_destroyed)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor was destroyed");
    *ret = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *ret)
{
    bool known = type == CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        known |= rules[i].of == type;
    if (!known)
        return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "no descriptor of type %d", (int)type);
    FakeDescriptor *d = calloc(1, sizeof(*d));
    assert(d);
    *d = (FakeDescriptor){.magic = MAGIC, .type = type, .n_references = 1};
    *ret = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    FakeDescriptor *d = NULL;
    cudnnStatus_t status = look_at(descriptor, &d);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    d->is_destroyed = true;
    fake_drop(d);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- attributes ---- */

const FakeAttribute *fake_attribute(const FakeDescriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n_attributes; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    return NULL;
}

int64_t fake_int64(const FakeDescriptor *d, cudnnBackendAttributeName_t name, int64_t i)
{
    const FakeAttribute *a = fake_attribute(d, name);
    assert(a && i < a->n);
    return type_bytes(a->type) == 4 ? ((const int32_t *)a->values)[i]
                                    : ((const int64_t *)a->values)[i];
}

double fake_real(const FakeDescriptor *d, cudnnBackendAttributeName_t name)
{
    const FakeAttribute *a = fake_attribute(d, name);
    assert(a);
    /* As was observed of the library: an engine that computes in fp32 reads an fp32, even if a double was set. */
    return (double)*(const float *)a->values;
}

FakeDescriptor *fake_child(const FakeDescriptor *d, cudnnBackendAttributeName_t name, int64_t i)
{
    const FakeAttribute *a = fake_attribute(d, name);
    assert(a && i < a->n);
    return ((FakeDescriptor *const *)a->values)[i];
}

cudnnStatus_t fake_set(FakeDescriptor *d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (d->n_attributes == FAKE_ATTRIBUTES_MAX || fake_attribute(d, name))
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                           "attribute %d of descriptor %d is set twice", (int)name, (int)d->type);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++) {
        FakeDescriptor *child = NULL;
        cudnnStatus_t status = look_at(((void *const *)values)[i], &child);
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
        if (!child->is_finalised)
            return fake_refuse(
                CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                "attribute %d of descriptor %d is a descriptor that is not finalised", (int)name,
                (int)d->type);
    }
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
        ((FakeDescriptor *const *)values)[i]->n_references++;
    FakeAttribute *a = &d->attributes[d->n_attributes++];
    const size_t size = (size_t)n * type_bytes(type);
    *a = (FakeAttribute){.name = name, .type = type, .n = n, .values = malloc(size)};
    assert(a->values);
    memcpy(a->values, values, size);
    return CUDNN_STATUS_SUCCESS;
}

static const Rule *rule_of(const FakeDescriptor *d, cudnnBackendAttributeName_t name)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].of == d->type && rules[i].name == name)
            return &rules[i];
    return NULL;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    FakeDescriptor *d = NULL;
    cudnnStatus_t status = look_at(descriptor, &d);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    const Rule *rule = rule_of(d, name);
    if (!rule)
        return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptor %d has no attribute %d",
                           (int)d->type, (int)name);
    if (d->is_finalised)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "descriptor %d is finalised", (int)d->type);
    if (type != rule->type && type != rule->or_type)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                           "attribute %d is of type %d, not %d", (int)name, (int)rule->type,
                           (int)type);
    if (n < rule->min || n > rule->max || !values)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "attribute %d has %lld values",
                           (int)name, (long long)n);
    return fake_set(d, name, type, n, values);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    FakeDescriptor *d = NULL;
    cudnnStatus_t status = look_at(descriptor, &d);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (d->is_finalised)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "descriptor %d is finalised already",
                           (int)d->type);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].of == d->type && rules[i].is_required && !fake_attribute(d, rules[i].name))
            return fake_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d of descriptor %d is not set",
                               (int)rules[i].name, (int)d->type);
    status = fake_check(d);
    d->is_finalised = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
                                       void *values)
{
    FakeDescriptor *d = NULL;
    cudnnStatus_t status = look_at(descriptor, &d);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!d->is_finalised)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "descriptor %d is not finalised",
                           (int)d->type);
    const FakeAttribute *a = fake_attribute(d, name);
    if (!a || a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return fake_get_found(d, name, type, room, n, values);
    if (type != a->type)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                           "attribute %d is of type %d, not %d", (int)name, (int)a->type,
                           (int)type);
    if (n)
        *n = a->n;
    if (values)
        memcpy(values, a->values, (size_t)(room < a->n ? room : a->n) * type_bytes(type));
    return CUDNN_STATUS_SUCCESS;
}
