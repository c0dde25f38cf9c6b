/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - forwards each call of kernels.h to the backend of its device. */
#include "kernels/kernels.h"

#include "kernels/backend.h"

size_t data_type_bytes(DataType type) { return type == DATA_F32 ? 4 : 2; }

size_t gradient_form_bytes(const GradientForm *form)
{
    return (size_t)form->out * (size_t)form->in * (size_t)form->taps * data_type_bytes(form->type);
}

DeviceKind device_kind(const Device *device) { return device->kind; }

DataType device_type(const Device *device) { return device->type; }

/* Returns the backend of a Conv, Linear, Attention or StatePlan, which begin with their device. */
static const KernelsBackend *backend_of(const void *object)
{
    return (*(Device *const *)object)->backend;
}

Device *device_free(Device *device) { return device ? device->backend->device_free(device) : NULL; }

uint64_t device_memory_bytes(const Device *device)
{
    return device->backend->device_memory_bytes(device);
}

int device_numerics(const Device *device, char **ret)
{
    return device->backend->device_numerics(device, ret);
}

int device_plans(const Device *device, char **ret)
{
    return device->backend->device_plans(device, ret);
}

int device_use_plans(Device *device, const char *text, Error *err)
{
    return device->backend->device_use_plans(device, text, err);
}

int device_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    return device->backend->device_allocate(device, n_bytes, ret, err);
}

void device_release(Device *device, void *memory)
{
    if (memory)
        device->backend->device_release(device, memory);
}

int device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    return device->backend->device_host_allocate(device, n_bytes, ret, err);
}

void device_host_release(Device *device, void *memory)
{
    if (memory)
        device->backend->device_host_release(device, memory);
}

const void *device_host_view(Device *device, const void *memory)
{
    return device->backend->device_host_view(device, memory);
}

void device_upload(Device *device, void *to, const void *from, size_t n_bytes)
{
    device->backend->device_upload(device, to, from, n_bytes);
}

void device_download(Device *device, void *to, const void *from, size_t n_bytes)
{
    device->backend->device_download(device, to, from, n_bytes);
}

void device_copy(Device *device, void *to, const void *from, size_t n_bytes)
{
    device->backend->device_copy(device, to, from, n_bytes);
}

void device_clear(Device *device, void *memory, size_t n_bytes)
{
    device->backend->device_clear(device, memory, n_bytes);
}

int device_synchronise(Device *device, Error *err)
{
    return device->backend->device_synchronise(device, err);
}

void device_send(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    device->backend->device_send(device, lane, to, from, n_bytes);
}

void device_fetch(Device *device, Lane lane, void *to, const void *from, size_t n_bytes)
{
    device->backend->device_fetch(device, lane, to, from, n_bytes);
}

Fence device_fence(Device *device, Lane lane)
{
    return device->backend->device_fence(device, lane);
}

void device_wait(Device *device, Lane lane, Fence fence)
{
    device->backend->device_wait(device, lane, fence);
}

bool device_reached(Device *device, Fence fence)
{
    return device->backend->device_reached(device, fence);
}

int device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err)
{
    return device->backend->device_await(device, fence, timeout_usec, err);
}

int device_time_launches(Device *device, size_t n_max, Error *err)
{
    return device->backend->device_time_launches(device, n_max, err);
}

size_t device_timed_launches(const Device *device)
{
    return device->backend->device_timed_launches(device);
}

int device_read_launches(Device *device, const DeviceLaunch **ret, Error *err)
{
    return device->backend->device_read_launches(device, ret, err);
}

int device_time_graph(Device *device, void (*put)(void *userdata), void *userdata, int times,
                      double *ret_usec, size_t *ret_nodes, Error *err)
{
    assert(times > 0);
    return device->backend->device_time_graph(device, put, userdata, times, ret_usec, ret_nodes,
                                              err);
}

void gradient_take(Device *device, const GradientForm *form, const void *gradient,
                   const GradientPlace *place, const GradientSink *sink)
{
    device->backend->gradient_take(device, form, gradient, place, sink);
}

void fingerprint(Device *device, size_t n_bytes, const void *data, uint64_t *sum)
{
    device->backend->fingerprint(device, n_bytes, data, sum);
}

void count_non_finite(Device *device, DataType type, int64_t n, const void *data, uint64_t *count)
{
    device->backend->count_non_finite(device, type, n, data, count);
}

int conv_new(Device *device, const ConvShape *shape, Conv **ret, Error *err)
{
    return device->backend->conv_new(device, shape, ret, err);
}

Conv *conv_free(Conv *conv) { return conv ? backend_of(conv)->conv_free(conv) : NULL; }

size_t conv_packed_bytes(const Conv *conv) { return backend_of(conv)->conv_packed_bytes(conv); }

size_t conv_workspace_bytes(const Conv *conv)
{
    return backend_of(conv)->conv_workspace_bytes(conv);
}

void conv_pack(Conv *conv, const float *weight, void *packed)
{
    backend_of(conv)->conv_pack(conv, weight, packed);
}

void conv_forward(Conv *conv, const void *x, const void *packed, const float *bias,
                  const void *per_image, const void *residual, void *y, void *workspace)
{
    backend_of(conv)->conv_forward(conv, x, packed, bias, per_image, residual, y, workspace);
}

void conv_backward_data(Conv *conv, const void *dy, const float *weight, const void *packed,
                        void *dx, bool accumulate, void *workspace)
{
    backend_of(conv)->conv_backward_data(conv, dy, weight, packed, dx, accumulate, workspace);
}

GradientForm conv_gradient_form(const Conv *conv)
{
    return backend_of(conv)->conv_gradient_form(conv);
}

void conv_backward_weight(Conv *conv, const void *x, const void *dy, void *dweight, float *dbias,
                          void *workspace)
{
    backend_of(conv)->conv_backward_weight(conv, x, dy, dweight, dbias, workspace);
}

void conv_plan_text(const Conv *conv, KernelPass pass, char *text, size_t size)
{
    backend_of(conv)->conv_plan_text(conv, pass, text, size);
}

int linear_new(Device *device, const LinearShape *shape, Linear **ret, Error *err)
{
    return device->backend->linear_new(device, shape, ret, err);
}

Linear *linear_free(Linear *linear)
{
    return linear ? backend_of(linear)->linear_free(linear) : NULL;
}

size_t linear_packed_bytes(const Linear *linear)
{
    return backend_of(linear)->linear_packed_bytes(linear);
}

size_t linear_workspace_bytes(const Linear *linear)
{
    return backend_of(linear)->linear_workspace_bytes(linear);
}

void linear_pack(Linear *linear, const float *weight, void *packed)
{
    backend_of(linear)->linear_pack(linear, weight, packed);
}

void linear_forward(Linear *linear, const void *x, const float *weight, const void *packed,
                    const float *bias, const void *residual, void *y, void *workspace)
{
    backend_of(linear)->linear_forward(linear, x, weight, packed, bias, residual, y, workspace);
}

void linear_backward_data(Linear *linear, const void *dy, const float *weight, const void *packed,
                          void *dx, bool accumulate, void *workspace)
{
    backend_of(linear)->linear_backward_data(linear, dy, weight, packed, dx, accumulate, workspace);
}

GradientForm linear_gradient_form(const Linear *linear)
{
    return backend_of(linear)->linear_gradient_form(linear);
}

void linear_backward_weight(Linear *linear, const void *x, const void *dy, void *dweight,
                            float *dbias, void *workspace)
{
    backend_of(linear)->linear_backward_weight(linear, x, dy, dweight, dbias, workspace);
}

void linear_plan_text(const Linear *linear, KernelPass pass, char *text, size_t size)
{
    backend_of(linear)->linear_plan_text(linear, pass, text, size);
}

int attention_new(Device *device, const AttentionShape *shape, Attention **ret, Error *err)
{
    return device->backend->attention_new(device, shape, ret, err);
}

Attention *attention_free(Attention *attention)
{
    return attention ? backend_of(attention)->attention_free(attention) : NULL;
}

size_t attention_workspace_bytes(const Attention *attention)
{
    return backend_of(attention)->attention_workspace_bytes(attention);
}

size_t attention_saved_bytes(const Attention *attention)
{
    return backend_of(attention)->attention_saved_bytes(attention);
}

void attention_forward(Attention *attention, const void *q, const void *k, const void *v, void *out,
                       void *saved, void *workspace)
{
    backend_of(attention)->attention_forward(attention, q, k, v, out, saved, workspace);
}

void attention_backward(Attention *attention, const void *q, const void *k, const void *v,
                        const void *out, const void *saved, const void *dout, void *dq, void *dk,
                        void *dv, void *workspace)
{
    backend_of(attention)->attention_backward(attention, q, k, v, out, saved, dout, dq, dk, dv,
                                              workspace);
}

void attention_plan_text(const Attention *attention, KernelPass pass, char *text, size_t size)
{
    backend_of(attention)->attention_plan_text(attention, pass, text, size);
}

bool reads_joined(const Device *device) { return device->backend->reads_joined(device); }

void group_norm_forward(Device *device, const GroupNormShape *shape, const void *x,
                        const void *second, const float *gamma, const float *beta, void *y,
                        float *saved)
{
    device->backend->group_norm_forward(device, shape, x, second, gamma, beta, y, saved);
}

void group_norm_backward(Device *device, const GroupNormShape *shape, const void *x,
                         const void *second, const float *gamma, const float *beta,
                         const float *saved, const void *dy, void *dx, bool accumulate,
                         void *dsecond, bool accumulate_second, float *dgamma, float *dbeta,
                         void *workspace)
{
    device->backend->group_norm_backward(device, shape, x, second, gamma, beta, saved, dy, dx,
                                         accumulate, dsecond, accumulate_second, dgamma, dbeta,
                                         workspace);
}

size_t group_norm_workspace_bytes(const Device *device, const GroupNormShape *shape)
{
    return device->backend->group_norm_workspace_bytes(device, shape);
}

void layer_norm_forward(Device *device, const LayerNormShape *shape, const void *x,
                        const float *gamma, const float *beta, void *y, float *saved)
{
    device->backend->layer_norm_forward(device, shape, x, gamma, beta, y, saved);
}

void layer_norm_backward(Device *device, const LayerNormShape *shape, const void *x,
                         const float *gamma, const float *saved, const void *dy, void *dx,
                         bool accumulate, float *dgamma, float *dbeta, float *dsums,
                         void *workspace)
{
    device->backend->layer_norm_backward(device, shape, x, gamma, saved, dy, dx, accumulate, dgamma,
                                         dbeta, dsums, workspace);
}

size_t layer_norm_workspace_bytes(const Device *device, const LayerNormShape *shape)
{
    return device->backend->layer_norm_workspace_bytes(device, shape);
}

void geglu_forward(Device *device, int64_t rows, int f, const void *x, void *y)
{
    device->backend->geglu_forward(device, rows, f, x, y);
}

void geglu_backward(Device *device, int64_t rows, int f, const void *x, const void *dy, void *dx,
                    float *dsums, void *workspace)
{
    device->backend->geglu_backward(device, rows, f, x, dy, dx, dsums, workspace);
}

size_t geglu_workspace_bytes(const Device *device, int64_t rows, int f)
{
    return device->backend->geglu_workspace_bytes(device, rows, f);
}

void gelu_forward(Device *device, int64_t n, const void *x, void *y)
{
    device->backend->gelu_forward(device, n, x, y);
}

void embedding_forward(Device *device, int n, int tokens, int c, const float *words,
                       const float *positions, const int32_t *ids, void *y)
{
    device->backend->embedding_forward(device, n, tokens, c, words, positions, ids, y);
}

void silu_forward(Device *device, int64_t n, const void *x, void *y)
{
    device->backend->silu_forward(device, n, x, y);
}

void silu_backward(Device *device, int64_t n, const void *x, const void *dy, void *dx,
                   bool accumulate)
{
    device->backend->silu_backward(device, n, x, dy, dx, accumulate);
}

void accumulate(Device *device, int64_t n, const void *x, void *y)
{
    device->backend->accumulate(device, n, x, y);
}

void concat_forward(Device *device, int64_t rows, int ca, int cb, const void *a, const void *b,
                    void *y)
{
    device->backend->concat_forward(device, rows, ca, cb, a, b, y);
}

void concat_backward(Device *device, int64_t rows, int ca, int cb, const void *dy, void *da,
                     bool accumulate_a, void *db, bool accumulate_b)
{
    device->backend->concat_backward(device, rows, ca, cb, dy, da, accumulate_a, db, accumulate_b);
}

void upsample_forward(Device *device, int n, int to_h, int to_w, int c, const void *x, void *y)
{
    device->backend->upsample_forward(device, n, to_h, to_w, c, x, y);
}

void upsample_backward(Device *device, int n, int to_h, int to_w, int c, const void *dy, void *dx,
                       bool accumulate)
{
    device->backend->upsample_backward(device, n, to_h, to_w, c, dy, dx, accumulate);
}

void spatial_sum(Device *device, int n, int64_t pixels, int c, const void *dy, void *dper_image)
{
    device->backend->spatial_sum(device, n, pixels, c, dy, dper_image);
}

void time_embedding(Device *device, int n, int c, bool flip_sin_to_cos, double freq_shift,
                    const int32_t *timesteps, void *y)
{
    device->backend->time_embedding(device, n, c, flip_sin_to_cos, freq_shift, timesteps, y);
}

void cast_from_f32(Device *device, int64_t n, const float *x, void *y)
{
    device->backend->cast_from_f32(device, n, x, y);
}

void cast_to_f32(Device *device, int64_t n, const void *x, float *y)
{
    device->backend->cast_to_f32(device, n, x, y);
}

void normal_noise(Device *device, uint64_t key, int n, int64_t n_each, const int64_t *positions,
                  float *noise)
{
    device->backend->normal_noise(device, key, n, n_each, positions, noise);
}

void diffuse(Device *device, int n, int64_t n_each, const float *x0, const float *noise,
             const int32_t *timesteps, const float *a, const float *b, bool v_prediction,
             float *x_t, float *target)
{
    device->backend->diffuse(device, n, n_each, x0, noise, timesteps, a, b, v_prediction, x_t,
                             target);
}

void mse_loss(Device *device, int64_t n, const void *prediction, const float *target, float scale,
              double *loss, void *dprediction, void *workspace)
{
    device->backend->mse_loss(device, n, prediction, target, scale, loss, dprediction, workspace);
}

size_t mse_loss_workspace_bytes(const Device *device, int64_t n)
{
    return device->backend->mse_loss_workspace_bytes(device, n);
}

int state_plan_new(Device *device, const StatePlanShape *shape, StatePlan **ret, Error *err)
{
    return device->backend->state_plan_new(device, shape, ret, err);
}

StatePlan *state_plan_free(StatePlan *plan)
{
    return plan ? backend_of(plan)->state_plan_free(plan) : NULL;
}

void state_count(StatePlan *plan, const float *gradient, int64_t begin, int64_t end,
                 const GradientSink *sink)
{
    backend_of(plan)->state_count(plan, gradient, begin, end, sink);
}

void state_squares(StatePlan *plan, const GradientSums *sums, double *squares)
{
    backend_of(plan)->state_squares(plan, sums, squares);
}

void state_update(StatePlan *plan, const AdamW *adamw, double ema_decay, const GradientSums *sums,
                  float *weights, float *m, float *v, float *ema)
{
    backend_of(plan)->state_update(plan, adamw, ema_decay, sums, weights, m, v, ema);
}
