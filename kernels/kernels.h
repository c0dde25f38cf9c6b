/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the list of all numeric operations, which every kind of device implements (backend.h).
 *
 * Layout:    activations are NHWC, so that an image is also its tokens: [N][H*W][C]. They have the device's compute
 *            type (fp32 on CPUs; bf16 or fp16 on GPUs). Parameters are fp32 in diffusers' layout (OIHW, [out][in]), all
 *            in one flat buffer, in the state's order. If a kernel needs another layout, the weight is packed once per
 *            weight update. The gradient of a weight has the GradientForm of its operation; gradient_take() converts it
 *            to the state's order. Operations with shapes that need planning (Conv, Linear, Attention, StatePlan) are
 *            objects made once; running them neither allocates nor synchronises. All operations of one stream may share
 *            a workspace.
 * Ownership: *_new() gives the caller the object, *_free() accepts NULL and returns NULL; objects borrow their Device.
 *            All data pointers are device memory, borrowed, DEVICE_ALIGNMENT aligned where they are activations, packed
 *            weights or workspace. The host must not read device memory directly, on any device.
 * Units:     shapes in elements, workspace in bytes.
 * Errors:    *_new(): 0 or -errno with text. Running returns nothing: an error of a GPU is sticky, and
 *            device_synchronise() and device_await() return it.
 * Order:     a call is queued on one of the device's lanes and may return before it is done. Calls of one lane run in
 *            the order in which they were made. An operation is on LANE_COMPUTE unless its comment says otherwise.
 * Threads:   one thread at a time may use a lane; different threads may use different lanes. device_reached(),
 *            device_await() and device_host_*() may be called from any thread.
 * Exactness: the same inputs give the same bits on every run, for the same numerics (device_numerics()). No result
 *            depends on neighbours in memory, alignment or time; sums have a fixed tree.
 *
 * Both C and nvcc read this file, so it must not use restrict, a[static N], _Atomic, _Static_assert, or designators out
 * of order.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <limits.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum DataType { DATA_F32, DATA_BF16, DATA_F16 } DataType;

size_t data_type_bytes(DataType type);

/* ---- device ---- */

typedef struct Device Device;

typedef enum DeviceKind { DEVICE_CPU, DEVICE_CUDA } DeviceKind;

typedef struct DeviceOptions {
    DeviceKind kind;
    int index;     /* the number of the GPU */
    int threads;   /* CPU: OpenMP threads, 1 or more */
    DataType type; /* the type of activations */
    /* CUDA: the GPU's address, such as "0000:3b:00"; NULL: the GPU with number `index`. A CPU ignores this. */
    const char *pci_address;
    /* CUDA: makes plans. Each new object tries the algorithms of its libraries, and device_plans() then returns the
     * best ones. A CPU ignores this. */
    bool tune;
    int tune_sec; /* how long algorithms are timed in all; 0: as SDTRAIN_CUDA_TUNE_SEC says */
    bool keep_installed; /* tuning starts with the plan set that is installed for the GPU */
} DeviceOptions;

/* Opens a device. The error says why there is none, and whose fault it is (trainer/session/device-exit.h makes an exit
 * code of it):
 *     -ENODEV     no module, driver, device node or GPU of that address on this machine
 *     -EPROTO     the module, the driver or a library has another version
 *     -ENOTSUP    this machine's device is not supported: MIG, a driver too old, a CPU without AVX2
 *     -ENOMEM     the device's memory is too small, even if no other process uses it
 *     -EAGAIN     other processes hold memory of the device that is needed
 *     -EINVAL     no device has such options
 *     -EIO        the device is broken or lost
 * If a device breaks later, every call that waits for the device returns -EIO, -EFAULT (a trap or an illegal address:
 * the program is wrong there) or -ETIMEDOUT (the device does not respond), from then on. */
int device_open(const DeviceOptions *options, Device **ret, Error *err);
Device *device_free(Device *device);
DEFINE_CLEANUP(Device, device_free)
DeviceKind device_kind(const Device *device);
DataType device_type(const Device *device);
/* Returns the total memory of the device, used or not; for a CPU the machine's memory and swap. */
uint64_t device_memory_bytes(const Device *device);

/* Returns everything on which the bits of results depend, as canonical JSON text, which the caller frees. GPU: device
 * model, library versions, plan choices. CPU: only the version of the kernels' bits, because neither threads nor ISA
 * nor compiler change a bit. */
int device_numerics(const Device *device, char **ret);

/* A plan set says which algorithm of the device's libraries each operation uses: without a plan set a library may
 * choose another algorithm on another day, with other bits. DEVICE_PLANS_MAX is the maximum size of its text in
 * bytes. */
enum { DEVICE_PLANS_MAX = 4 << 20 };
/* Returns the plans in use, as canonical JSON text, which the caller frees; device_numerics() has its hash under
 * "plans". -ENOENT: this device, such as a CPU, has no plans. */
int device_plans(const Device *device, char **ret);
/* Uses the plans in `text`, a result of device_plans(), instead of choosing plans. Call this before the first object is
 * made on the device. A device that makes plans (DeviceOptions) keeps all of these plans, and tries algorithms only
 * for missing plans. -EINVAL: the device cannot replay the plan of an operation, which the error's text names; or the
 * device makes plans, and the set is plain. -ENOENT: the device has no plans. */
int device_use_plans(Device *device, const char *text, Error *err);

/* ---- memory, lanes, fences ---- */

/* Alignment of the results of device_allocate(), and of the ranges that a planner lays out. */
enum { DEVICE_ALIGNMENT = 256 };

/* The memory is zeroed. */
int device_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
void device_release(Device *device, void *memory);

/* Allocates host memory that device_send() and device_fetch() need in order to return at once: page-locked where
 * that matters, and zeroed. */
int device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
void device_host_release(Device *device, void *memory);

/* Returns the address at which the host may read device memory directly, while no lane writes to it; NULL: there is no
 * such address, and the host must fetch the memory. The device memory of a CPU is host memory. Use the address only
 * where it saves a copy. */
const void *device_host_view(Device *device, const void *memory);

/* device_upload() and device_download() are for code that is rarely run. They run after everything queued on
 * LANE_COMPUTE, and are done when they return. */
void device_upload(Device *device, void *to, const void *from, size_t n_bytes);
void device_download(Device *device, void *to, const void *from, size_t n_bytes);
/* Copies from device memory to device memory. */
void device_copy(Device *device, void *to, const void *from, size_t n_bytes);
void device_clear(Device *device, void *memory, size_t n_bytes);
/* Waits until all lanes are empty. */
int device_synchronise(Device *device, Error *err);

/* In-order queues of the device. */
typedef enum Lane {
    LANE_COMPUTE, /* operations */
    LANE_IN,      /* input of future grains */
    LANE_OUT,     /* copies of a snapshot, losses, maxima */
    LANE_COMM,    /* sums and weights sent to and received from other ranks */
    N_LANES
} Lane;

/* Copies between host and device on the lane. The device uses the host's memory until a fence made on the lane
 * afterwards is reached. Until then the caller must not write the source of a send, and must neither read nor write the
 * target of a fetch. */
void device_send(Device *device, Lane lane, void *to, const void *from, size_t n_bytes);
void device_fetch(Device *device, Lane lane, void *to, const void *from, size_t n_bytes);

/* A position in a lane. A fence is reached when everything that was queued on the lane before it is done. {0} is always
 * reached. */
typedef struct Fence {
    Lane lane;
    uint64_t serial;
} Fence;

Fence device_fence(Device *device, Lane lane);
/* Makes work that is queued on the lane from now on wait for the fence. The host does not wait, except on a CPU, whose
 * compute lane is the calling thread. */
void device_wait(Device *device, Lane lane, Fence fence);
bool device_reached(Device *device, Fence fence);
/* Waits for the fence. -ETIMEDOUT: not reached in timeout_usec. -EIO: the device is broken, permanently. */
int device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err);

/* ---- how long launches take ---- */

/* A kernel, or an operation of a library, that was queued on LANE_COMPUTE. */
typedef struct DeviceLaunch {
    /* the kernel's name, or the operation's name in the plans; the text exists as long as the device */
    const char *name;
    double usec; /* the time from the end of the previous launch to the end of this launch */
    /* The fewest bytes and floating-point operations that a library's operation of this shape needs; 0: a kernel. */
    double bytes, flop;
} DeviceLaunch;

/* Times each of the next n_max launches; with 0 stops timing. Times recorded before are discarded. A CPU times nothing:
 * -ENOTSUP. Timing makes a launch about a microsecond longer. */
int device_time_launches(Device *device, size_t n_max, Error *err);
/* Returns how many launches are timed so far, whether they are done or not. */
size_t device_timed_launches(const Device *device);
/* Waits until the timed launches are done. *ret belongs to the device and is valid until the next
 * device_time_launches(). -ENOSPC: there were more than n_max launches; other errors are those of a broken device. */
int device_read_launches(Device *device, const DeviceLaunch **ret, Error *err);
/* Records the work that put() queues on LANE_COMPUTE as one graph instead of running it, and runs the graph `times`
 * times. Returns how long one run takes, and how many nodes the graph has. Work that cannot be recorded breaks the
 * device, and the error names this work. Only a GPU has graphs; other devices return -ENOTSUP. */
int device_time_graph(Device *device, void (*put)(void *userdata), void *userdata, int times,
                      double *ret_usec, size_t *ret_nodes, Error *err);

/* ---- gradients of parameters ---- */

/* The order in which an operation stores the elements of a weight's gradient. */
typedef enum GradientOrder {
    GRADIENT_AS_STATE,      /* [out][in][taps], as the parameter in the state */
    GRADIENT_CHANNELS_LAST, /* [out][taps][in] */
} GradientOrder;

typedef struct GradientForm {
    DataType type;
    GradientOrder order;
    int out, in, taps;
} GradientForm;

typedef enum SinkKind {
    SINK_PLAIN,  /* to[i] = g, without maxima */
    SINK_MAXIMA, /* raises the maxima, and stores nothing */
    SINK_COUNT,  /* raises the maxima; to[i] += rint(g * 2^exponent), wrapping, half to even */
    SINK_ADD,    /* raises the maxima, and to[i] += g */
} SinkKind;

/* The sink for the gradients of one backward pass. The caller of SINK_COUNT must keep |g * 2^exponent| < 2^31 (2^62 for
 * 64 bits): larger values saturate, and values that are not finite count as 0 (the maxima show both). */
typedef struct GradientSink {
    SinkKind kind;
    int bits;      /* bits of an integer of SINK_COUNT: 32 or 64 */
    void *to;      /* float, int32_t or int64_t; element 0 is the state's element `first` */
    int64_t first; /* the index of element to[0] in the state */
    const int32_t *exponents; /* for SINK_COUNT: one for each tensor, in device memory */
    /* In device memory: for each tensor the largest bit pattern of |g| so far. NaN > infinity > finite. */
    uint32_t *maxima;
    /* A word in device memory. While the word is not 0, SINK_COUNT and SINK_ADD start from 0 instead of to[i]. */
    const uint32_t *fresh;
} GradientSink;

/* The weights of one operation: elements [offset, offset + n) of the state. They consist of n_tensors tensors with
 * equal numbers of output rows (q, k and v are one weight and three tensors); `tensor` is the index of the first one in
 * the state. */
typedef struct GradientPlace {
    int64_t offset, n;
    int tensor, n_tensors;
} GradientPlace;

size_t gradient_form_bytes(const GradientForm *form);
/* Converts a gradient, which has the form `form`, to the state's order, and moves it into the sink. */
void gradient_take(Device *device, const GradientForm *form, const void *gradient,
                   const GradientPlace *place, const GradientSink *sink);

/* ---- checks of results, for callers that compare two runs or search for numbers that are not finite ---- */

/* *sum (device memory) += the fingerprint of n_bytes of memory, which is aligned to 4 bytes. Equal bytes have equal
 * fingerprints on every device; different bytes have equal ones with a probability of about 2^-64. */
void fingerprint(Device *device, size_t n_bytes, const void *data, uint64_t *sum);

/* *count (device memory) += how many of n elements are infinite or NaN. data is aligned to 4 bytes. */
void count_non_finite(Device *device, DataType type, int64_t n, const void *data, uint64_t *count);

typedef enum KernelPass {
    KERNEL_FORWARD,
    KERNEL_BACKWARD_DATA, /* for an attention: the whole backward pass */
    KERNEL_BACKWARD_WEIGHT
} KernelPass;

/* conv_plan_text() and similar functions write, for people, which algorithm of a library computes a pass, with its
 * entry in the device's plans, or "" if this project's own kernels compute it. Text that does not fit is cut off. */

/* ---- convolution, 3x3 (padding 1, stride 1 or 2; or pad_end) and 1x1 ---- */

typedef struct ConvShape {
    int n, h, w; /* the number, the height and the width of the input images */
    int c_in, c_out;
    int kernel; /* 3 or 1 */
    int stride; /* 1 or 2 */
    /* true: only one column of zeros at the right and one row of zeros at the bottom are added, and the sides are
     * halved and rounded down. This is the downsampling of diffusers' AutoencoderKL, F.pad(x, (0, 1, 0, 1)) without
     * padding. It needs kernel 3 and stride 2. */
    bool pad_end;
    bool forward_only; /* no backward operation is called, so none gets workspace or needs a plan */
    bool own_kernels;  /* our own kernels compute the shape, regardless of the device's plans */
} ConvShape;

/* Returns the number of rows (columns) of y if x has `side` rows (columns). */
static inline int conv_output_side(const ConvShape *shape, int side)
{
    return shape->pad_end ? side / 2 : (side - 1) / shape->stride + 1;
}

/* Returns the number of rows (columns) of zeros before x. */
static inline int conv_padding(const ConvShape *shape)
{
    return shape->pad_end ? 0 : shape->kernel / 2;
}

/* Reports whether the shape is valid. Every device refuses an invalid shape. */
static inline bool conv_shape_valid(const ConvShape *s)
{
    return s->n >= 1 && s->h >= 1 && s->w >= 1 && s->c_in >= 1 && s->c_out >= 1 &&
           (s->kernel == 1 || s->kernel == 3) && (s->stride == 1 || s->stride == 2) &&
           (int64_t)s->n * s->h <= INT_MAX / s->w &&
           (!s->pad_end || (s->kernel == 3 && s->stride == 2 && s->h >= 2 && s->w >= 2));
}

typedef struct Conv Conv;

int conv_new(Device *device, const ConvShape *shape, Conv **ret, Error *err);
Conv *conv_free(Conv *conv);
DEFINE_CLEANUP(Conv, conv_free)
size_t conv_packed_bytes(const Conv *conv);
size_t conv_workspace_bytes(const Conv *conv);
/* Packs weight [c_out][c_in][k][k]. Call this after each weight update, before the next forward. */
void conv_pack(Conv *conv, const float *weight, void *packed);
/* y[n][h'][w'][c_out] = conv(x) + bias[c_out] + per_image[n][c_out] + residual (like y). per_image and residual may be
 * NULL. residual may be y itself. */
void conv_forward(Conv *conv, const void *x, const void *packed, const float *bias,
                  const void *per_image, const void *residual, void *y, void *workspace);
/* Stores the gradient of x in dx, or adds it to dx if accumulate is true. weight: the weight that was packed; a backend
 * reads either weight or packed. */
void conv_backward_data(Conv *conv, const void *dy, const float *weight, const void *packed,
                        void *dx, bool accumulate, void *workspace);
GradientForm conv_gradient_form(const Conv *conv);
/* Overwrites dweight, which has conv_gradient_form(), and dbias [c_out] fp32 unless dbias is NULL. */
void conv_backward_weight(Conv *conv, const void *x, const void *dy, void *dweight, float *dbias,
                          void *workspace);
void conv_plan_text(const Conv *conv, KernelPass pass, char *text, size_t size);

/* ---- linear: y[rows][out] = x[rows][in] * weight[out][in]^T ---- */

typedef struct LinearShape {
    int64_t rows;
    int in, out;
    bool forward_only, own_kernels; /* as in ConvShape; also in the shapes below */
    /* The layer uses the columns [first, first + in) of a weight that has `columns` columns: linear_pack() reads these
     * columns, and linear_backward_weight() writes them in dweight. columns 0: the weight has `in` columns. Other
     * values of `columns` are allowed only where reads_joined() is true. */
    int first, columns;
} LinearShape;

typedef struct Linear Linear;

int linear_new(Device *device, const LinearShape *shape, Linear **ret, Error *err);
Linear *linear_free(Linear *linear);
DEFINE_CLEANUP(Linear, linear_free)
size_t linear_packed_bytes(const Linear *linear); /* may be 0: the weight is used unpacked */
size_t linear_workspace_bytes(const Linear *linear);
void linear_pack(Linear *linear, const float *weight, void *packed);
/* bias and residual [rows][out] may be NULL; residual may be y. weight is the fp32 parameter; a backend reads either
 * weight or packed. */
void linear_forward(Linear *linear, const void *x, const float *weight, const void *packed,
                    const float *bias, const void *residual, void *y, void *workspace);
void linear_backward_data(Linear *linear, const void *dy, const float *weight, const void *packed,
                          void *dx, bool accumulate, void *workspace);
GradientForm linear_gradient_form(const Linear *linear);
void linear_backward_weight(Linear *linear, const void *x, const void *dy, void *dweight,
                            float *dbias, void *workspace);
void linear_plan_text(const Linear *linear, KernelPass pass, char *text, size_t size);

/* ---- attention: softmax(q k^T / sqrt(d)) v, for heads of up to 512 and more ---- */

typedef struct AttentionShape {
    int n, heads, head_dim;
    int64_t q_tokens, kv_tokens;
    int q_stride, kv_stride; /* elements from one token to the next: heads * head_dim, or more
                                where q, k and v share rows; heads are side by side */
    /* Token i sees only the tokens 0 to i, as in CLIP's text encoder: the scores of later tokens are -infinity before
     * the softmax. The numbers of keys and queries are equal. */
    bool causal;
    bool forward_only, own_kernels;
} AttentionShape;

typedef struct Attention Attention;

int attention_new(Device *device, const AttentionShape *shape, Attention **ret, Error *err);
Attention *attention_free(Attention *attention);
DEFINE_CLEANUP(Attention, attention_free)
size_t attention_workspace_bytes(const Attention *attention);
size_t attention_saved_bytes(const Attention *attention); /* size of `saved` */
/* out: [n][q_tokens][heads * head_dim], dense. */
void attention_forward(Attention *attention, const void *q, const void *k, const void *v, void *out,
                       void *saved, void *workspace);
/* dq has q's strides, dk and dv have k's; all are overwritten. */
void attention_backward(Attention *attention, const void *q, const void *k, const void *v,
                        const void *out, const void *saved, const void *dout, void *dq, void *dk,
                        void *dv, void *workspace);
void attention_plan_text(const Attention *attention, KernelPass pass, char *text, size_t size);

/* ---- normalisation ---- */

/* Reports whether a GroupNorm may read x from two tensors, and whether a linear layer may use some columns of a weight.
 * If so, a concatenation that only such operations would read is not needed. */
bool reads_joined(const Device *device);

typedef struct GroupNormShape {
    int n, h, w, c, groups;
    double eps;
    bool silu;    /* y = silu(norm(x)) */
    int c_second; /* the last c_second of the c channels are in a separate tensor, `second`; 0: all are
                     in x. Other values: only where reads_joined() is true */
} GroupNormShape;

/* saved: mean and 1/sqrt(var + eps), [n][groups][2] floats. second: NULL where c_second is 0. */
void group_norm_forward(Device *device, const GroupNormShape *shape, const void *x,
                        const void *second, const float *gamma, const float *beta, void *y,
                        float *saved);
/* dgamma and dbeta [c] are overwritten. workspace: group_norm_workspace_bytes(). */
void group_norm_backward(Device *device, const GroupNormShape *shape, const void *x,
                         const void *second, const float *gamma, const float *beta,
                         const float *saved, const void *dy, void *dx, bool accumulate,
                         void *dsecond, bool accumulate_second, float *dgamma, float *dbeta,
                         void *workspace);
size_t group_norm_workspace_bytes(const Device *device, const GroupNormShape *shape);

typedef struct LayerNormShape {
    int64_t rows;
    int c;
    double eps;
} LayerNormShape;

/* saved: [rows][2] floats. dsums: c floats, or NULL. dsums gets the sums of dx's columns over the rows, including the
 * values that dx was added to. They are the gradient of the bias of the linear layer that made x. */
void layer_norm_forward(Device *device, const LayerNormShape *shape, const void *x,
                        const float *gamma, const float *beta, void *y, float *saved);
void layer_norm_backward(Device *device, const LayerNormShape *shape, const void *x,
                         const float *gamma, const float *saved, const void *dy, void *dx,
                         bool accumulate, float *dgamma, float *dbeta, float *dsums,
                         void *workspace);
size_t layer_norm_workspace_bytes(const Device *device, const LayerNormShape *shape);

/* ---- elementwise and data movement ---- */

/* y = hidden * gelu(gate), rows of f elements, from rows x = [hidden | gate] of 2 * f elements; gelu is computed with
 * erf. */
void geglu_forward(Device *device, int64_t rows, int f, const void *x, void *y);
/* dsums: 2 * f floats, or NULL. dsums gets the sums of dx's columns over the rows, which are the gradient of the bias
 * of the linear layer that made x. */
void geglu_backward(Device *device, int64_t rows, int f, const void *x, const void *dy, void *dx,
                    float *dsums, void *workspace);
size_t geglu_workspace_bytes(const Device *device, int64_t rows, int f);

/* y = x * (1 + erf(x / sqrt(2))) / 2: torch.nn.GELU() without approximation, the same gelu as in geglu_forward(). */
void gelu_forward(Device *device, int64_t n, const void *x, void *y);

/* y[n][tokens][c] = words[ids[n][tokens]][c] + positions[tokens][c], as CLIPTextEmbeddings: the sum is in fp32 and
 * rounded once. words and positions are parameters with rows of `c` elements. ids is in device memory; the caller
 * guarantees that words has a row for each id. */
void embedding_forward(Device *device, int n, int tokens, int c, const float *words,
                       const float *positions, const int32_t *ids, void *y);

void silu_forward(Device *device, int64_t n, const void *x, void *y);
void silu_backward(Device *device, int64_t n, const void *x, const void *dy, void *dx,
                   bool accumulate);

void accumulate(Device *device, int64_t n, const void *x, void *y); /* y += x */

/* y[rows][ca + cb] = [a | b]. Backward overwrites da and db, or adds to them. */
void concat_forward(Device *device, int64_t rows, int ca, int cb, const void *a, const void *b,
                    void *y);
void concat_backward(Device *device, int64_t rows, int ca, int cb, const void *dy, void *da,
                     bool accumulate_a, void *db, bool accumulate_b);

/* Nearest neighbour: from x[n][(to_h + 1) / 2][(to_w + 1) / 2][c] to y[n][to_h][to_w][c]. An odd side lacks the last
 * copy; PyTorch's interpolation to such a size uses the same neighbours. */
void upsample_forward(Device *device, int n, int to_h, int to_w, int c, const void *x, void *y);
void upsample_backward(Device *device, int n, int to_h, int to_w, int c, const void *dy, void *dx,
                       bool accumulate);

/* dper_image[n][c] = the sum of dy over h and w: the gradient of conv_forward's per_image. */
void spatial_sum(Device *device, int n, int64_t pixels, int c, const void *dy, void *dper_image);

/* The sinusoid of diffusers' Timesteps: y[n][c], [cos | sin] if flip_sin_to_cos is true. Frequencies are fp32, computed
 * by exact functions. */
void time_embedding(Device *device, int n, int c, bool flip_sin_to_cos, double freq_shift,
                    const int32_t *timesteps, void *y);

/* Casts from fp32 to the compute type, and back. */
void cast_from_f32(Device *device, int64_t n, const float *x, void *y);
void cast_to_f32(Device *device, int64_t n, const void *x, float *y);

/* ---- diffusion ---- */

/* noise[n][n_each]: sample i's element j is draw j % 4 of Philox block j / 4 at counter
 * (position_i, block) under key, through exact_normal_pair. positions: device memory. */
void normal_noise(Device *device, uint64_t key, int n, int64_t n_each, const int64_t *positions,
                  float *noise);

/* x_t = a[t] x0 + b[t] noise; target = noise (epsilon) or a[t] noise - b[t] x0 (v). a, b: [n_steps]
 * floats. */
void diffuse(Device *device, int n, int64_t n_each, const float *x0, const float *noise,
             const int32_t *timesteps, const float *a, const float *b, bool v_prediction,
             float *x_t, float *target);

/* *loss = mean (prediction - target)^2 over n as one double, summed by a fixed tree; dprediction = scale * 2 / n *
 * (prediction - target). */
void mse_loss(Device *device, int64_t n, const void *prediction, const float *target, float scale,
              double *loss, void *dprediction, void *workspace);
size_t mse_loss_workspace_bytes(const Device *device, int64_t n);

/* ---- training state: operations over whole ranges ---- */

/* One tensor in the flat state. */
typedef struct TensorSpan {
    int64_t offset, n;
} TensorSpan;

/* The state has n_elements elements. Its tensors follow each other without gaps, and it is cut into chunks of
 * chunk_elements (the last chunk may be shorter). */
typedef struct StatePlanShape {
    const TensorSpan *tensors; /* read only by state_plan_new() */
    int n_tensors;
    int64_t n_elements, chunk_elements;
    int n_ranks, rank; /* rank c mod n_ranks computes the squares of chunk c */
    /* m, v and EMA are shards: the chunks c with c mod n_shards == shard, one after another, chunk_elements each */
    int n_shards, shard;
} StatePlanShape;

typedef struct StatePlan StatePlan;

int state_plan_new(Device *device, const StatePlanShape *shape, StatePlan **ret, Error *err);
StatePlan *state_plan_free(StatePlan *plan);
DEFINE_CLEANUP(StatePlan, state_plan_free)

typedef enum SumType { SUM_I32, SUM_I64, SUM_F32 } SumType;

/* Reduced sums of gradients. The gradient of element i is data[i] * 2^-exponent * scale, computed in double and rounded
 * once; with SUM_F32 it is data[i]. */
typedef struct GradientSums {
    const void *data;
    SumType type;
    bool is_shard;            /* `data` is this rank's shard; otherwise the whole flat state */
    const int32_t *exponents; /* one for each tensor, in device memory */
    double scale;
} GradientSums;

/* Moves elements [begin, end) of a flat fp32 gradient into the sink; `gradient` points to element `begin`. */
void state_count(StatePlan *plan, const float *gradient, int64_t begin, int64_t end,
                 const GradientSink *sink);

/* squares[c / n_ranks] (device memory) = the sum of squares of the gradient of chunk c, for each chunk c of this rank,
 * in double, by a tree that depends only on the chunk's length. */
void state_squares(StatePlan *plan, const GradientSums *sums, double *squares);

typedef struct AdamW {
    float lr, eps, weight_decay;
    double beta1, beta2;            /* double, because 1 - beta is computed before rounding */
    float gradient_scale;           /* for clipping: g is multiplied by gradient_scale first */
    float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t; the caller computes in double */
} AdamW;

/* Updates the chunks of this rank's shard, as torch.optim.AdamW: w -= lr * weight_decay * w; m and v are the moments; w
 * -= lr / correction1 * m / (sqrt(v / correction2) + eps). Then, unless ema is NULL, ema = ema_decay * ema + (1 -
 * ema_decay) * w. weights is the flat state; m, v and ema are the shard. */
void state_update(StatePlan *plan, const AdamW *adamw, double ema_decay, const GradientSums *sums,
                  float *weights, float *m, float *v, float *ema);

#ifdef __cplusplus
}
#endif
