/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the one list of numeric operations, which every kind of device implements (backend.h).
 *
 * Layout:    activations are NHWC, so that an image is also its tokens: [N][H*W][C]. They have
 *            the device's compute type (fp32 on CPUs; bf16 or fp16 on GPUs). Parameters are
 *            fp32 in diffusers' layout (OIHW, [out][in]), all in one flat buffer, the state's order;
 *            what a kernel wants instead is packed once per weight update. The gradient of a weight
 *            has the GradientForm of its operation; gradient_take() brings it back to the
 *            state's order. Operations with shapes that need planning
 *            (Conv, Linear, Attention, StatePlan) are objects made once; running them neither
 *            allocates nor synchronises. All operations of one stream may share a workspace.
 * Ownership: *_new() gives the caller the object, *_free() accepts NULL and returns NULL;
 *            objects borrow their Device. All data pointers are device memory, borrowed,
 *            DEVICE_ALIGNMENT aligned where they are activations, packed weights or workspace. A host may
 *            not read device memory, whatever the device.
 * Units:     shapes in elements, workspace in bytes.
 * Errors:    *_new(): 0 or -errno with text. Running returns nothing: an error of a GPU is sticky,
 *            and device_synchronise() and device_await() return it.
 * Order:     a call is put on one of the device's lanes and may return before it is done. Calls of one
 *            lane run in the order in which they were made. An operation is on LANE_COMPUTE unless its
 *            comment says otherwise.
 * Threads:   each lane is one thread's at a time; different lanes may be different threads'.
 *            device_reached(), device_await() and device_host_*() are any thread's.
 * Exactness: the same inputs give the same bits on every run, for the same numerics
 *            (device_numerics()). No result depends on neighbours in memory, alignment or time;
 *            sums have a fixed tree.
 *
 * Both C and nvcc read this file: no restrict, a[static N], _Atomic, _Static_assert, designators out
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
    int index;     /* of the GPU */
    int threads;   /* CPU: OpenMP threads, 1 or more */
    DataType type; /* of activations */
    /* CUDA: which GPU, as "0000:3b:00"; NULL: the one of `index`. A CPU ignores it. */
    const char *pci_address;
    /* CUDA: makes plans: each object that is made tries its libraries' algorithms, and device_plans() then has the best
     * ones. A CPU ignores it. */
    bool tune;
    int tune_sec; /* how long algorithms are timed in all; 0: as SDTRAIN_CUDA_TUNE_SEC says */
    bool keep_installed; /* tuning keeps the plans of the set that is installed for the GPU */
} DeviceOptions;

/* Errors say whose fault it is that there is no device (trainer/session/device-exit.h makes an exit code of it):
 *   -ENODEV     no module, driver, device node or GPU of that address here
 *   -EPROTO     the module, the driver or a library is of another version
 *   -ENOTSUP    this machine's device cannot compute it: MIG, a driver too old, a CPU without AVX2
 *   -ENOMEM     the device's memory is too small, whoever uses it
 *   -EAGAIN     other processes hold memory of the device that is needed
 *   -EINVAL     no device has such options
 *   -EIO        the device is broken or lost
 * A device that breaks later gives -EIO, -EFAULT (a trap or an illegal address: the program is wrong there) or
 * -ETIMEDOUT (it does not answer) to whoever waits for it, then for ever. */
int device_open(const DeviceOptions *options, Device **ret, Error *err);
Device *device_free(Device *device);
DEFINE_CLEANUP(Device, device_free)
DeviceKind device_kind(const Device *device);
DataType device_type(const Device *device);
/* Returns all memory that the device has, in use or not; for a CPU the machine's memory and swap. */
uint64_t device_memory_bytes(const Device *device);

/* Returns everything that results' bits depend on, as canonical JSON text; the caller frees it. GPU: device
 * model, library versions, plan choices. CPU: only the version of the kernels' bits, since neither
 * threads nor ISA nor compiler change a bit. */
int device_numerics(const Device *device, char **ret);

/* A plan set says which of its libraries' algorithms each operation uses: a library may choose another one on
 * another day, with other bits. The text has at most so many bytes. */
enum { DEVICE_PLANS_MAX = 4 << 20 };
/* Returns the plans in use, as canonical JSON text, which the caller frees; device_numerics() has its hash under
 * "plans". -ENOENT: this device, such as a CPU, has no plans. */
int device_plans(const Device *device, char **ret);
/* Uses those plans, a text of device_plans(), instead of choosing; called before the first object is made on the
 * device. One that makes plans (DeviceOptions) keeps all of them, and tries algorithms only for what they lack.
 * -EINVAL: the device cannot replay the plan of an operation, which the error's text names; or the device makes plans,
 * and the set is plain. -ENOENT: the device has no plans. */
int device_use_plans(Device *device, const char *text, Error *err);

/* ---- memory, lanes, fences ---- */

/* Alignment of device_allocate() and of what a planner lays out. */
enum { DEVICE_ALIGNMENT = 256 };

/* The memory is zeroed. */
int device_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
void device_release(Device *device, void *memory);

/* Allocates host memory that device_send() and device_fetch() need in order to return at once: page-locked where
 * that matters, and zeroed. */
int device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err);
void device_host_release(Device *device, void *memory);

/* Returns where the host may read device memory itself, while no lane writes it; NULL: nowhere, and the host fetches
 * it. A CPU's device memory is host memory. It is called only where it saves a copy. */
const void *device_host_view(Device *device, const void *memory);

/* device_upload() and device_download() are for cold paths: they run after what LANE_COMPUTE holds, and are done when
 * they return. */
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
    LANE_IN,      /* input of the grains to come */
    LANE_OUT,     /* copies of a snapshot, losses, maxima */
    LANE_COMM,    /* sums and weights on their way to and from other ranks */
    N_LANES
} Lane;

/* Copies between host and device on the lane. The host's memory belongs to the device until a fence that is
 * made on the lane afterwards is reached: the source of a send is not written, the target of a fetch neither
 * read nor written. */
void device_send(Device *device, Lane lane, void *to, const void *from, size_t n_bytes);
void device_fetch(Device *device, Lane lane, void *to, const void *from, size_t n_bytes);

/* A place in a lane: everything that was put there before. {0} is reached from the start. */
typedef struct Fence {
    Lane lane;
    uint64_t serial;
} Fence;

Fence device_fence(Device *device, Lane lane);
/* Makes the work that is put on the lane from now on run after the fence is reached. The host does not wait (on a CPU,
 * whose compute lane is the calling thread, it does). */
void device_wait(Device *device, Lane lane, Fence fence);
bool device_reached(Device *device, Fence fence);
/* Waits for the fence. -ETIMEDOUT: not reached in timeout_usec. -EIO: the device is broken, now and
 * for ever. */
int device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err);

/* ---- what launches take ---- */

/* A kernel, or an operation of a library, that was put on LANE_COMPUTE. */
typedef struct DeviceLaunch {
    const char
        *name;   /* the kernel's, or the operation's in the plans; lives as long as the device */
    double usec; /* from the end of what came before it to its own */
    double bytes, flop; /* the least that the shape of a library's operation needs; 0: a kernel's */
} DeviceLaunch;

/* Times each of the next n_max launches; 0: no more. Times that were kept before are forgotten. A CPU times nothing:
 * -ENOTSUP. Timing makes a launch about a microsecond longer. */
int device_time_launches(Device *device, size_t n_max, Error *err);
/* Returns how many launches have been timed so far, done or not. */
size_t device_timed_launches(const Device *device);
/* Waits until these launches are done; *ret is the device's until the next device_time_launches(). -ENOSPC: there were
 * more than n_max; the errors of a broken device. */
int device_read_launches(Device *device, const DeviceLaunch **ret, Error *err);
/* Records the work that put() puts on LANE_COMPUTE as one graph instead of running it, and runs the graph `times`
 * times. Returns how long one run takes, and how many nodes the graph has. Work that cannot be recorded breaks the
 * device, and the error names it. Only a GPU has graphs: else -ENOTSUP. */
int device_time_graph(Device *device, void (*put)(void *userdata), void *userdata, int times,
                      double *ret_usec, size_t *ret_nodes, Error *err);

/* ---- gradients of parameters ---- */

/* The order of a weight's gradient where its operation leaves it. */
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
    SINK_PLAIN,  /* to[i] = g; no maxima */
    SINK_MAXIMA, /* only maxima */
    SINK_COUNT,  /* maxima, and to[i] += rint(g * 2^exponent), wrapping; rounds half to even */
    SINK_ADD,    /* maxima, and to[i] += g */
} SinkKind;

/* The sink of the gradients of one backward. SINK_COUNT's caller must keep |g * 2^exponent| < 2^31 (2^62 for 64 bits):
 * larger values saturate, and values that are not finite count as 0 (the maxima show both). */
typedef struct GradientSink {
    SinkKind kind;
    int bits;      /* of SINK_COUNT: 32 or 64 */
    void *to;      /* float, int32_t or int64_t; element 0 is the state's element `first` */
    int64_t first; /* see `to` */
    const int32_t *exponents; /* of tensors, device memory; SINK_COUNT */
    uint32_t *maxima; /* of tensors, device memory, only raised: the largest sign-cleared bit
                                 pattern of g (so NaN > infinity > finite) */
    const uint32_t
        *fresh; /* a word in device memory; while it is not 0, SINK_COUNT and SINK_ADD begin
                                 with 0 instead of to[i] */
} GradientSink;

/* The weights of one operation: elements [offset, offset + n) of the state. They are n_tensors tensors of equally
 * many output rows (q, k and v are one weight and three tensors); the first is number `tensor` of the state's. */
typedef struct GradientPlace {
    int64_t offset, n;
    int tensor, n_tensors;
} GradientPlace;

size_t gradient_form_bytes(const GradientForm *form);
/* Brings a gradient of out * in * taps elements in that form to the state's order, then into the sink. */
void gradient_take(Device *device, const GradientForm *form, const void *gradient,
                   const GradientPlace *place, const GradientSink *sink);

/* ---- what an operation did, for callers that compare two runs or look for numbers that are not finite ---- */

/* *sum (device memory) += the fingerprint of n_bytes of memory, which is aligned to 4 bytes: equal bytes have equal
 * fingerprints on every device, and others differ except for one pair in 2^64 or so. */
void fingerprint(Device *device, size_t n_bytes, const void *data, uint64_t *sum);

/* *count (device memory) += how many of n elements are infinite or NaN. data is aligned to 4 bytes. */
void count_non_finite(Device *device, DataType type, int64_t n, const void *data, uint64_t *count);

typedef enum KernelPass {
    KERNEL_FORWARD,
    KERNEL_BACKWARD_DATA, /* of an attention: all of its backward */
    KERNEL_BACKWARD_WEIGHT
} KernelPass;

/* conv_plan_text() and its like write for people which algorithm of a library computes a pass, with its entry in
 * the device's plans; "": this project's own kernels do. Text that does not fit is cut. */

/* ---- convolution, 3x3 (padding 1, stride 1 or 2; or pad_end) and 1x1 ---- */

typedef struct ConvShape {
    int n, h, w; /* of the input */
    int c_in, c_out;
    int kernel; /* 3 or 1 */
    int stride; /* 1 or 2 */
    /* Zeros lie only at the right and the bottom, one column and one row, and the sides become h / 2 and w / 2,
     * rounded down: the downsampling of diffusers' AutoencoderKL, F.pad(x, (0, 1, 0, 1)) and no padding. Kernel 3,
     * stride 2. */
    bool pad_end;
    bool
        forward_only; /* none of the backward operations is called: they get no workspace and need no plan */
    bool own_kernels; /* this project's own kernels compute it, whatever the device's plans say */
} ConvShape;

/* Returns the rows (columns) of y where x has `side`. */
static inline int conv_output_side(const ConvShape *shape, int side)
{
    return shape->pad_end ? side / 2 : (side - 1) / shape->stride + 1;
}

/* Returns the rows (columns) of zeros before x. */
static inline int conv_padding(const ConvShape *shape)
{
    return shape->pad_end ? 0 : shape->kernel / 2;
}

/* Reports whether the shape is valid; every device refuses one that is not. */
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
/* Packs weight [c_out][c_in][k][k]; called after each weight update, before the next forward. */
void conv_pack(Conv *conv, const float *weight, void *packed);
/* y[n][h'][w'][c_out] = conv(x) + bias[c_out] + per_image[n][c_out] + residual (like y). The last
 * two may be NULL. residual may be y itself. */
void conv_forward(Conv *conv, const void *x, const void *packed, const float *bias,
                  const void *per_image, const void *residual, void *y, void *workspace);
/* dx = (accumulate: +=) the gradient of x. weight: the one that was packed; a backend reads either. */
void conv_backward_data(Conv *conv, const void *dy, const float *weight, const void *packed,
                        void *dx, bool accumulate, void *workspace);
GradientForm conv_gradient_form(const Conv *conv);
/* Overwrites dweight, in conv_gradient_form(), and, unless NULL, dbias [c_out] fp32. */
void conv_backward_weight(Conv *conv, const void *x, const void *dy, void *dweight, float *dbias,
                          void *workspace);
void conv_plan_text(const Conv *conv, KernelPass pass, char *text, size_t size);

/* ---- linear: y[rows][out] = x[rows][in] * weight[out][in]^T ---- */

typedef struct LinearShape {
    int64_t rows;
    int in, out;
    bool forward_only, own_kernels; /* as in ConvShape; so in the shapes below */
    /* The layer is the columns [first, first + in) of a weight that has `columns` of them: linear_pack() reads them,
     * and linear_backward_weight() writes those of dweight. columns 0: the weight has `in`. Only where
     * reads_joined(). */
    int first, columns;
} LinearShape;

typedef struct Linear Linear;

int linear_new(Device *device, const LinearShape *shape, Linear **ret, Error *err);
Linear *linear_free(Linear *linear);
DEFINE_CLEANUP(Linear, linear_free)
size_t linear_packed_bytes(const Linear *linear); /* may be 0: the weight is used as it lies */
size_t linear_workspace_bytes(const Linear *linear);
void linear_pack(Linear *linear, const float *weight, void *packed);
/* bias and residual [rows][out] may be NULL; residual may be y. weight is the fp32 parameter; a
 * backend uses it or packed. */
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
    int q_stride, kv_stride; /* elements from token to token, inside which heads lie side by side:
                                heads * head_dim, or more when q, k, v share rows */
    /* Token i sees only the tokens 0 to i, as in CLIP's text encoder: the scores of later ones are -infinity before
     * the softmax. There are as many keys as queries. */
    bool causal;
    bool forward_only, own_kernels;
} AttentionShape;

typedef struct Attention Attention;

int attention_new(Device *device, const AttentionShape *shape, Attention **ret, Error *err);
Attention *attention_free(Attention *attention);
DEFINE_CLEANUP(Attention, attention_free)
size_t attention_workspace_bytes(const Attention *attention);
size_t attention_saved_bytes(const Attention *attention); /* that forward saves for backward */
/* out: [n][q_tokens][heads * head_dim], dense. */
void attention_forward(Attention *attention, const void *q, const void *k, const void *v, void *out,
                       void *saved, void *workspace);
/* dq has q's strides, dk and dv have k's; all overwritten. */
void attention_backward(Attention *attention, const void *q, const void *k, const void *v,
                        const void *out, const void *saved, const void *dout, void *dq, void *dk,
                        void *dv, void *workspace);
void attention_plan_text(const Attention *attention, KernelPass pass, char *text, size_t size);

/* ---- normalisation ---- */

/* Reports whether a GroupNorm's x may be two tensors, and a linear layer some columns of a weight: then a concatenation
 * that only such operations read is not needed. */
bool reads_joined(const Device *device);

typedef struct GroupNormShape {
    int n, h, w, c, groups;
    double eps;
    bool silu; /* y = silu(norm(x)) */
    int c_second; /* of c, the last ones are a tensor of their own, `second`; 0: all are x's. Only where
                     reads_joined() */
} GroupNormShape;

/* saved: mean and 1/sqrt(var + eps), [n][groups][2] floats. second: NULL where c_second is 0. */
void group_norm_forward(Device *device, const GroupNormShape *shape, const void *x,
                        const void *second, const float *gamma, const float *beta, void *y,
                        float *saved);
/* dgamma, dbeta [c] overwritten. workspace: group_norm_workspace_bytes(). */
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

/* saved: [rows][2] floats. dsums: c floats, unless NULL: the sums of dx's columns over the rows, with what it was added
 * to, which are the gradient of the bias of the linear layer that made x. */
void layer_norm_forward(Device *device, const LayerNormShape *shape, const void *x,
                        const float *gamma, const float *beta, void *y, float *saved);
void layer_norm_backward(Device *device, const LayerNormShape *shape, const void *x,
                         const float *gamma, const float *saved, const void *dy, void *dx,
                         bool accumulate, float *dgamma, float *dbeta, float *dsums,
                         void *workspace);
size_t layer_norm_workspace_bytes(const Device *device, const LayerNormShape *shape);

/* ---- elementwise and data movement ---- */

/* y = hidden * gelu(gate), f wide, for rows x = [hidden | gate], 2 * f wide; gelu by erf. */
void geglu_forward(Device *device, int64_t rows, int f, const void *x, void *y);
/* dsums: 2 * f floats, unless NULL: the sums of dx's columns over the rows, which are the gradient of the bias of the
 * linear layer that made x. */
void geglu_backward(Device *device, int64_t rows, int f, const void *x, const void *dy, void *dx,
                    float *dsums, void *workspace);
size_t geglu_workspace_bytes(const Device *device, int64_t rows, int f);

/* y = x * (1 + erf(x / sqrt(2))) / 2: torch.nn.GELU() without approximation, which is geglu_forward()'s gelu. */
void gelu_forward(Device *device, int64_t n, const void *x, void *y);

/* y[n][tokens][c] = words[ids[n][tokens]][c] + positions[tokens][c], as CLIPTextEmbeddings: the sum in fp32, rounded
 * once. words and positions are parameters, of `c` wide rows. ids: device memory; that each has a row of words is the
 * caller's promise. */
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

/* Nearest neighbour: x[n][(to_h + 1) / 2][(to_w + 1) / 2][c] to y[n][to_h][to_w][c]. A side that is odd
 * lacks the last copy; PyTorch's interpolation to such a size takes the same neighbours. */
void upsample_forward(Device *device, int n, int to_h, int to_w, int c, const void *x, void *y);
void upsample_backward(Device *device, int n, int to_h, int to_w, int c, const void *dy, void *dx,
                       bool accumulate);

/* dper_image[n][c] = the sum of dy over h and w: the gradient of conv_forward's per_image. */
void spatial_sum(Device *device, int n, int64_t pixels, int c, const void *dy, void *dper_image);

/* The sinusoid of diffusers' Timesteps: y[n][c], [cos | sin] when flip, fp32 frequencies by exact
 * functions. */
void time_embedding(Device *device, int n, int c, bool flip_sin_to_cos, double freq_shift,
                    const int32_t *timesteps, void *y);

/* fp32 <-> compute type. */
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

/* *loss = mean (prediction - target)^2 over n as one double by a fixed tree; dprediction = scale *
 * 2 / n * (prediction - target). */
void mse_loss(Device *device, int64_t n, const void *prediction, const float *target, float scale,
              double *loss, void *dprediction, void *workspace);
size_t mse_loss_workspace_bytes(const Device *device, int64_t n);

/* ---- training state: whole-range operations ---- */

/* One tensor in the flat state. */
typedef struct TensorSpan {
    int64_t offset, n;
} TensorSpan;

/* The state is n_elements long, its tensors lie one after the other without gaps, and it is cut into chunks of
 * chunk_elements (the last one may be shorter). */
typedef struct StatePlanShape {
    const TensorSpan *tensors; /* read only by state_plan_new() */
    int n_tensors;
    int64_t n_elements, chunk_elements;
    int n_ranks, rank; /* the squares of chunk c are those of rank c mod n_ranks */
    int n_shards,
        shard; /* a shard holds the chunks c with c mod n_shards == shard, one after another,
                            chunk_elements each: m, v and EMA */
} StatePlanShape;

typedef struct StatePlan StatePlan;

int state_plan_new(Device *device, const StatePlanShape *shape, StatePlan **ret, Error *err);
StatePlan *state_plan_free(StatePlan *plan);
DEFINE_CLEANUP(StatePlan, state_plan_free)

typedef enum SumType { SUM_I32, SUM_I64, SUM_F32 } SumType;

/* Reduced sums of gradients. The gradient of element i is data[i] * 2^-exponent * scale, computed in double and
 * rounded once; with SUM_F32 it is data[i]. */
typedef struct GradientSums {
    const void *data;
    SumType type;
    bool is_shard;            /* `data` is this rank's shard; else the whole flat state */
    const int32_t *exponents; /* of tensors, device memory */
    double scale;
} GradientSums;

/* Brings elements [begin, end) of a flat fp32 gradient into the sink; `gradient` is element `begin`. */
void state_count(StatePlan *plan, const float *gradient, int64_t begin, int64_t end,
                 const GradientSink *sink);

/* squares[c / n_ranks] (device memory) = the sum of squares of the gradient of each chunk c that is this rank's, in
 * double, by a tree that only the chunk's length determines. */
void state_squares(StatePlan *plan, const GradientSums *sums, double *squares);

typedef struct AdamW {
    float lr, eps, weight_decay;
    double beta1, beta2;            /* double, as 1 - beta is taken of them before rounding */
    float gradient_scale;           /* clipping: g is multiplied by it first */
    float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t; the caller computes in double */
} AdamW;

/* Updates the chunks of this rank's shard. torch.optim.AdamW: w -= lr * weight_decay * w; m, v moments; w -= lr /
 * correction1 * m / (sqrt(v / correction2) + eps). Then, unless ema is NULL, ema = ema_decay * ema + (1 -
 * ema_decay) * w. weights: flat; m, v, ema: the shard. */
void state_update(StatePlan *plan, const AdamW *adamw, double ema_decay, const GradientSums *sums,
                  float *weights, float *m, float *v, float *ema);

#ifdef __cplusplus
}
#endif
