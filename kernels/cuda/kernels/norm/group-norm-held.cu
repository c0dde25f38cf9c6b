/* SPDX-License-Identifier: Apache-2.0 */
/* group-norm-held.cu - GroupNorm where a cluster's shared memory has room for an image's groups: x and dy are read
 * once.
 *
 * A cluster processes some whole groups of an image, and its blocks share the image's chunks. A thread has a pack of
 * channels and a line of a chunk, as in group-norm.cu. A thread stores each pack that it reads in shared memory, for
 * its own use. Each block adds up the sums of its chunks, and then those of the groups, from the sums of all blocks.
 * The tree is that of group-norm.cuh, so the bits are the same as those of group-norm.cu, which reads x
 * and dy twice. */
#include "kernels/cuda/kernels/norm/group-norm.cuh"

enum {
    RANKS_MAX = 8,          /* the most blocks of a cluster that every GPU allows */
    CHUNKS_ENOUGH = 4,      /* clusters get more blocks until a block has at most so many chunks */
    HALF_BYTES = 112 << 10, /* shared memory of a block, two on an SM: one loads, one stores */
    HELD_BYTES = 226 << 10, /* shared memory of a block that has an SM by itself */
    FORWARD_THREADS = 320,  /* the most threads of a block */
    BACKWARD_THREADS = 192, /* the most threads of a block, so that two tensors fit HALF_BYTES */
    WARP_THREADS = 32,
    GRID_Y_MAX = 65535,
};

/* How a shape is distributed over clusters. */
struct Held {
    int width;      /* packs of a cluster, side by side; they form whole groups */
    int groups;     /* groups of a cluster */
    int ranks;      /* blocks of a cluster */
    int at_once;    /* chunks that a block processes at once */
    int pixels;     /* the most pixels of a block */
    Divisor each;   /* chunks of a block */
    size_t n_bytes; /* bytes of shared memory */
};

/* Returns the number of floats in shared memory, behind the packs: the sums of lines for the chunks processed at once,
 * the sums of all chunks, two floats for each group, and one pixel of the image. */
static size_t floats_of(const Held &h, int n)
{
    const size_t channels = (size_t)(h.width * n);
    return ((size_t)h.at_once * LINES + (size_t)h.each.by) * 2 * channels + 2 * (size_t)h.groups +
           channels;
}

static size_t bytes_of(const Held &h, int tensors, int n)
{
    return (size_t)tensors * (size_t)(h.pixels * h.width) * ACCESS_BYTES +
           floats_of(h, n) * sizeof(float);
}

/* Returns the distribution over clusters that process `units` times the smallest number of groups whose channels are
 * whole packs. */
static Held held_of(const Groups &g, int units, int ranks, int tensors, int n, int threads)
{
    int64_t unit = g.size.by; /* the packs of a unit of whole groups */
    while (unit % 2 == 0 && unit / 2 * n % g.size.by == 0)
        unit /= 2;
    Held h = {};
    h.width = units * (int)unit;
    h.groups = (int)(h.width * n / g.size.by);
    h.ranks = ranks;
    h.each = divisor(DIV_ROUND_UP(g.chunks, (int64_t)ranks));
    h.at_once = (int)MIN((int64_t)(threads / (h.width * LINES)), h.each.by);
    h.pixels = (int)MIN(h.each.by * CHUNK, g.pixels);
    h.n_bytes = bytes_of(h, tensors, n);
    return h;
}

/* Chooses a distribution. Returns false if the shape does not fit into the shared memory of a cluster. */
static bool fit(const Groups &g, int tensors, int n, int threads, Held *ret)
{
    Held h;
    if (g.chunks > RANKS_MAX * CHUNK || g.size.by > CHUNK * CHUNK || g.n > GRID_Y_MAX)
        return false; /* the shape is far too large; the products of smaller shapes fit an int */
    for (int ranks = 1; ranks <= RANKS_MAX; ranks *= 2) {
        h = held_of(g, 1, ranks, tensors, n, threads);
        if (h.each.by <= CHUNKS_ENOUGH && h.n_bytes <= HALF_BYTES)
            break;
    }
    const int groups = h.groups;
    /* Widens the clusters while threads are free. */
    for (int units = 2; units * groups <= g.groups; units++) {
        const Held wider = held_of(g, units, h.ranks, tensors, n, threads);
        if (g.groups % wider.groups == 0 && wider.n_bytes <= HALF_BYTES &&
            wider.at_once == wider.each.by)
            h = wider;
    }
    *ret = h;
    return h.n_bytes <= HELD_BYTES && h.width * LINES * h.at_once >= WARP_THREADS;
}

static dim3 grid_of(const Groups &g, const Held &h)
{
    return dim3((unsigned)(g.groups / h.groups * h.ranks), (unsigned)g.n);
}

static dim3 block_of(const Held &h) { return dim3((unsigned)h.width, LINES, (unsigned)h.at_once); }

/* ---- the work of a block ---- */

/* The parts of a block's shared memory, and the position of the block and of this thread. */
template <int N> struct Place {
    Words<ACCESS_BYTES> *held; /* [tensor][pixel][width] */
    float *lines;              /* [at_once][LINES][2 N][width] */
    float *parts;              /* [each][2][channels] */
    float *moments;            /* [groups][2] */
    float *pixel;              /* [channels]: first pixel of the image */
    unsigned rank;
    int64_t image, first_chunk;
    int channels, first_channel, first_group; /* the channels and groups of the cluster */
    int thread, threads, place; /* place: index of this thread's channels in the cluster */

    __device__ Place(const Held &h, int tensors, Words<ACCESS_BYTES> *memory)
    {
        channels = h.width * N;
        held = memory;
        lines = (float *)(held + (int64_t)tensors * h.pixels * h.width);
        parts = lines + h.at_once * LINES * 2 * channels;
        moments = parts + h.each.by * 2 * channels;
        pixel = moments + 2 * h.groups;
        rank = cluster_rank();
        image = blockIdx.y;
        first_chunk = (int64_t)rank * h.each.by;
        first_channel = (int)(blockIdx.x / (unsigned)h.ranks) * channels;
        first_group = (int)(blockIdx.x / (unsigned)h.ranks) * h.groups;
        thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
        threads = (int)(blockDim.x * blockDim.y * blockDim.z);
        place = (int)threadIdx.x * N;
    }
    __device__ int channel() const { return first_channel + place; }
    __device__ int slot(int64_t pixel_) const
    {
        return (int)(pixel_ - first_chunk * CHUNK) * (int)blockDim.x + (int)threadIdx.x;
    }
    __device__ float part(const Held &h, int channel_, int64_t chunk, int which) const
    {
        const Quotient at = divide(chunk, h.each);
        return cluster_read(parts + (at.rest * 2 + which) * channels + channel_ - first_channel,
                            (unsigned)at.whole);
    }
};

/* Calls use(pixels) for each of this thread's lines. */
template <int N, typename Use>
__device__ static inline void for_chunks(const Groups &g, const Held &h, const Place<N> &p, Use use)
{
    for (int64_t i = threadIdx.z; i < h.each.by && p.first_chunk + i < g.chunks; i += h.at_once)
        use(Pixels{p.image, p.first_chunk + i, (int)threadIdx.y});
}

/* Adds up the lines of each of the at_once chunks from chunk `first` on, and writes the parts of these chunks. */
template <int N>
__device__ static inline void add_lines(const Held &h, const Place<N> &p, int64_t first,
                                        const Sums<N> &sums)
{
    const int width = (int)blockDim.x, x = (int)threadIdx.x;
    float *lines = p.lines + (int)threadIdx.z * LINES * 2 * p.channels;
    for (int k = 0; k < N; k++) {
        lines[((int)threadIdx.y * 2 * N + k) * width + x] = sums.plain.at[k];
        lines[((int)threadIdx.y * 2 * N + N + k) * width + x] = sums.scaled.at[k];
    }
    __syncthreads();
    const int64_t chunk = first + threadIdx.z;
    for (int i = (int)threadIdx.y; i < 2 * N && chunk < h.each.by; i += LINES) {
        double sum = 0;
        for (int line = 0; line < LINES; line++)
            sum += (double)lines[(line * 2 * N + i) * width + x];
        p.parts[(chunk * 2 + i / N) * p.channels + p.place + i % N] = (float)sum;
    }
    __syncthreads();
}

/* Calls use(i) for each group of the cluster; a whole warp makes each call. */
template <int N, typename Use>
__device__ static inline void for_groups(const Held &h, const Place<N> &p, Use use)
{
    const int warps = p.threads / WARP_THREADS, warp = p.thread / WARP_THREADS;
    for (int i = warp; i < h.groups && warp < warps; i += warps)
        use(i);
}

/* Waits until all blocks of the cluster see the parts that all of them wrote. */
__device__ static inline void share_parts(const Held &h)
{
    if (h.ranks > 1)
        cluster_sync();
    else
        __syncthreads();
}

/* Waits until all threads of the block see the groups' floats, and signals that this block no longer reads parts of
 * other blocks. */
__device__ static inline void share_groups(const Held &h)
{
    if (h.ranks > 1)
        cluster_arrive();
    __syncthreads();
}

/* Waits until no other block reads the parts of this block, which may then end. */
__device__ static inline void end_block(const Held &h)
{
    if (h.ranks > 1)
        cluster_wait();
}

/* ---- forward ---- */

template <bool SILU, typename T>
__global__ void __launch_bounds__(FORWARD_THREADS, 2)
    group_held_forward_kernel(Groups g, Held h, Joined<const T> x, const float *gamma,
                              const float *beta, T *y, float *saved)
{
    constexpr int N = pack_elements<T>();
    SHARED_ARRAY(Words<ACCESS_BYTES>, memory);
    const Place<N> p(h, 1, memory);
    const Rows<const T> rows(x, p.channel());
    T *const out = y + p.channel();
    const Pack<N> pivot = load<N>(rows.at((int)(p.image * g.pixels)));
    if (threadIdx.y == 0 && threadIdx.z == 0)
        for (int k = 0; k < N; k++)
            p.pixel[p.place + k] = pivot.at[k];
    for (int64_t first = 0; first < h.each.by; first += h.at_once) {
        const int64_t chunk = first + threadIdx.z;
        Sums<N> sums = {};
        if (chunk < h.each.by && p.first_chunk + chunk < g.chunks)
            for_pixels<8>(
                g, Pixels{p.image, p.first_chunk + chunk, (int)threadIdx.y},
                [=](int row, int64_t) { return load_words<ACCESS_BYTES>(rows.at(row)); },
                [&](int64_t, int64_t pixel, const Words<ACCESS_BYTES> &words) {
                    p.held[p.slot(pixel)] = words;
                    add_pixel(unpack<T>(words), pivot, &sums);
                });
        add_lines(h, p, first, sums);
    }
    share_parts(h);
    for_groups(h, p, [&](int i) {
        const int group = p.first_group + i;
        const Moments mine = moments_of(
            g, group,
            [&](int channel, int64_t chunk, int which) { return p.part(h, channel, chunk, which); },
            [&](int channel) { return p.pixel[channel - p.first_channel]; });
        if (p.thread % WARP_THREADS == 0) {
            p.moments[2 * i] = mine.mean;
            p.moments[2 * i + 1] = mine.inverse;
        }
    });
    share_groups(h);
    if (p.rank == 0)
        for (int i = p.thread; i < 2 * h.groups; i += p.threads)
            saved[2 * (p.image * g.groups + p.first_group) + i] = p.moments[i];
    const Line<N> line = line_of<N>(g, p.channel(), gamma, beta, p.moments, p.first_group);
    for_chunks(g, h, p, [&](const Pixels &pixels) {
        for_pixels<2>(
            g, pixels, [&](int64_t, int64_t pixel) { return p.held[p.slot(pixel)]; },
            [&](int row, int64_t, const Words<ACCESS_BYTES> &words) {
                store(out + (int64_t)row * g.c, normalised<SILU>(unpack<T>(words), line));
            });
    });
    end_block(h);
}

template <typename T>
bool group_norm_held_forward(Device *device, const GroupNormShape *shape, const Joined<const T> &x,
                             const float *gamma, const float *beta, T *y, float *saved)
{
    const Groups g = groups_of(shape);
    Held h;
    if (!fit(g, 1, pack_elements<T>(), FORWARD_THREADS, &h))
        return false;
    WITH_SILU(shape, LAUNCH_CLUSTERS(device, (unsigned)h.ranks, grid_of(g, h), block_of(h),
                                     h.n_bytes, (group_held_forward_kernel<SILU, T>), g, h, x,
                                     gamma, beta, y, saved));
    return true;
}

template bool group_norm_held_forward(Device *, const GroupNormShape *, const Joined<const Bf16> &,
                                      const float *, const float *, Bf16 *, float *);
template bool group_norm_held_forward(Device *, const GroupNormShape *, const Joined<const float> &,
                                      const float *, const float *, float *, float *);

/* ---- backward ---- */

struct HeldSlopes {
    Words<ACCESS_BYTES> x, dy;
};

/* Writes the block's parts, for the gradients of gamma and beta. */
template <int N>
__device__ static inline void write_parts(const Groups &g, const Held &h, const Place<N> &p,
                                          float *parts)
{
    for (int64_t i = 0; i < h.each.by && p.first_chunk + i < g.chunks; i++)
        for (int which = 0; which < 2; which++)
            for (int k = p.thread; k < p.channels; k += p.threads)
                parts[part_at(g, p.image, p.first_chunk + i, which) + p.first_channel + k] =
                    p.parts[(i * 2 + which) * p.channels + k];
}

template <bool SILU, typename T>
__global__ void __launch_bounds__(THREADS, 2)
    group_held_backward_kernel(Groups g, Held h, Joined<const T> x, const float *gamma,
                               const float *beta, const float *saved, const T *dy, Joined<T> dx,
                               Adds adds, float *parts)
{
    constexpr int N = pack_elements<T>();
    SHARED_ARRAY(Words<ACCESS_BYTES>, memory);
    const Place<N> p(h, 2, memory);
    Words<ACCESS_BYTES> *held_dy = p.held + (int64_t)h.pixels * h.width;
    const Rows<const T> rows(x, p.channel());
    const T *const slopes = dy + p.channel();
    const float *moments = saved + 2 * p.image * g.groups;
    const Line<N> line = line_of<N>(g, p.channel(), gamma, beta, moments, 0);
    const Pack<N> mean = means_of<N>(g, p.channel(), moments);
    for (int64_t first = 0; first < h.each.by; first += h.at_once) {
        const int64_t chunk = first + threadIdx.z;
        Sums<N> sums = {};
        if (chunk < h.each.by && p.first_chunk + chunk < g.chunks)
            for_pixels<4>(
                g, Pixels{p.image, p.first_chunk + chunk, (int)threadIdx.y},
                [=](int row, int64_t) {
                    return HeldSlopes{load_words<ACCESS_BYTES>(rows.at(row)),
                                      load_words<ACCESS_BYTES>(slopes + (int64_t)row * g.c)};
                },
                [&](int64_t, int64_t pixel, const HeldSlopes &in) {
                    p.held[p.slot(pixel)] = in.x;
                    held_dy[p.slot(pixel)] = in.dy;
                    add_slopes<SILU>(unpack<T>(in.x), unpack<T>(in.dy), line, mean, &sums);
                });
        add_lines(h, p, first, sums);
    }
    share_parts(h);
    for_groups(h, p, [&](int i) {
        const int group = p.first_group + i;
        const Moments mine = slope_means_of(g, group, gamma, moments[2 * group + 1],
                                            [&](int channel, int64_t chunk, int which) {
                                                return p.part(h, channel, chunk, which);
                                            });
        if (p.thread % WARP_THREADS == 0) {
            p.moments[2 * i] = mine.mean;
            p.moments[2 * i + 1] = mine.inverse;
        }
    });
    share_groups(h);
    write_parts(g, h, p, parts);
    const Line<N> rest = rest_of<N>(g, p.channel(), moments, p.moments, p.first_group);
    const Rows<T> out(dx, p.channel());
    const bool add = out.behind ? adds.second : adds.first;
    for_chunks(g, h, p, [&](const Pixels &pixels) {
        for_pixels<4>(
            g, pixels,
            [&](int row, int64_t) {
                return add ? load_words<ACCESS_BYTES>(out.at(row)) : Words<ACCESS_BYTES>{};
            },
            [&](int row, int64_t pixel, const Words<ACCESS_BYTES> &before) {
                const int slot = p.slot(pixel);
                store(out.at(row), gradient<SILU>(unpack<T>(p.held[slot]), unpack<T>(held_dy[slot]),
                                                  unpack<T>(before), line, rest));
            });
    });
    end_block(h);
}

template <typename T>
bool group_norm_held_backward(Device *device, const GroupNormShape *shape, const Joined<const T> &x,
                              const float *gamma, const float *beta, const float *saved,
                              const T *dy, const Joined<T> &dx, const Adds &add, float *parts)
{
    const Groups g = groups_of(shape);
    Held h;
    if (!fit(g, 2, pack_elements<T>(), BACKWARD_THREADS, &h))
        return false;
    WITH_SILU(shape, LAUNCH_CLUSTERS(device, (unsigned)h.ranks, grid_of(g, h), block_of(h),
                                     h.n_bytes, (group_held_backward_kernel<SILU, T>), g, h, x,
                                     gamma, beta, saved, dy, dx, add, parts));
    return true;
}

template bool group_norm_held_backward(Device *, const GroupNormShape *, const Joined<const Bf16> &,
                                       const float *, const float *, const float *, const Bf16 *,
                                       const Joined<Bf16> &, const Adds &, float *);
template bool group_norm_held_backward(Device *, const GroupNormShape *,
                                       const Joined<const float> &, const float *, const float *,
                                       const float *, const float *, const Joined<float> &,
                                       const Adds &, float *);
