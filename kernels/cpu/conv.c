/* SPDX-License-Identifier: Apache-2.0 */
/* conv.c - convolution as a matrix product whose left rows are read in place.
 *
 * Forward and backward by data consist of passes. A pass is a lattice of target pixels; each pixel is the sum over
 * taps of (source pixel's channels) x (packed weights). The left rows are pointers into the NHWC source, or to a row of
 * zeros where the tap is outside the image, so no unfolded copy is made. The chain of additions of a pass runs over
 * blocks of channels, within a block over taps, and within a tap over channels.
 *
 * Backward by weight multiplies columns of dy with columns of x over runs of pixels. Both matrices are first copied
 * into panels: dy with a tile's height, x with a tile's width. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/sum.h"
#include "kernels/cpu/tile.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_TAPS = 9,
    MAX_PASSES = 4,
    CHUNK_TILES = 16,     /* tiles of one task, whose left rows stay in the cache for all panels */
    GROUP_PANELS = 4,     /* the fewest panels of the right side in one task */
    CACHE_FLOATS = 32768, /* floats of the right side that stay in the cache for all tiles */
    BLOCK_VALUES = 2304,  /* the most taps * channels of one chain */
    RUN_PIXELS = 1024,    /* pixels of one chain of the weights' gradient */
    RUN_ROWS = 64,
    PACK_PIXELS = 256,
    GROUP_SIXES = 16, /* blocks of six output channels in one task of the gradient */
};

typedef struct Tap {
    int index; /* the tap's index in the kernel, row by row */
    int dy, dx;
} Tap;

/* Target pixel (y0 + step * y, x0 + step * x), for y < h and x < w, reads at tap t the source pixel (source_step * y +
 * tap.dy, source_step * x + tap.dx). */
typedef struct Pass {
    int h, w;
    int y0, x0;
    int step, source_step;
    int n_taps;
    Tap tap[MAX_TAPS];
} Pass;

typedef struct Extent {
    int h, w, c;
} Extent;

struct Conv {
    Device *device;
    ConvShape shape;
    Extent in, out;
    int taps;
    int n_backward;
    Pass forward, backward[MAX_PASSES];
    float *zeros; /* the row of zeros for a pixel outside the image */
};

/* One pass's computation: target = (residual +) product + bias + per_image. */
typedef struct Product {
    const Conv *conv;
    const Pass *pass;
    Extent from, to;
    const float *source, *packed;
    const float *bias, *per_image, *residual;
    float *target;
} Product;

/* The target pixels of a tile's rows. */
typedef struct Rows {
    int n;
    size_t target[TILE_ROWS]; /* the offset of each row's target pixel */
    int image[TILE_ROWS];
} Rows;

static size_t panels(int c) { return (size_t)DIV_ROUND_UP(c, (int)TILE_COLUMNS); }
static size_t sixes(int c) { return (size_t)DIV_ROUND_UP(c, (int)TILE_ROWS); }
static size_t pixels(const Conv *conv, Extent e)
{
    return (size_t)conv->shape.n * (size_t)e.h * (size_t)e.w;
}

/* ---- plans ---- */

static Pass plan_forward(const ConvShape *shape, Extent out)
{
    const int pad = conv_padding(shape);
    Pass pass = {.h = out.h, .w = out.w, .step = 1, .source_step = shape->stride};
    for (int ky = 0; ky < shape->kernel; ky++)
        for (int kx = 0; kx < shape->kernel; kx++)
            pass.tap[pass.n_taps++] = (Tap){ky * shape->kernel + kx, ky - pad, kx - pad};
    return pass;
}

/* Plans the pass over those pixels of x whose coordinates are (y0, x0) modulo the stride. All these pixels use the same
 * taps of dy. */
static Pass plan_backward(const ConvShape *shape, int y0, int x0)
{
    const int pad = conv_padding(shape), stride = shape->stride;
    Pass pass = {.h = DIV_ROUND_UP(shape->h - y0, stride),
                 .w = DIV_ROUND_UP(shape->w - x0, stride),
                 .y0 = y0,
                 .x0 = x0,
                 .step = stride,
                 .source_step = 1};
    for (int ky = 0; ky < shape->kernel; ky++)
        for (int kx = 0; kx < shape->kernel; kx++) {
            int dy = y0 + pad - ky, dx = x0 + pad - kx;
            if (dy % stride == 0 && dx % stride == 0)
                pass.tap[pass.n_taps++] = (Tap){ky * shape->kernel + kx, dy / stride, dx / stride};
        }
    return pass;
}

static int check_shape(const ConvShape *s, Error *err)
{
    if (!conv_shape_valid(s))
        return error_set(err, -EINVAL,
                         "convolution %dx%dx%d, %d to %d channels, kernel %d, stride %d%s is not "
                         "supported",
                         s->n, s->h, s->w, s->c_in, s->c_out, s->kernel, s->stride,
                         s->pad_end ? ", padded at the end" : "");
    return 0;
}

DEFINE_CLEANUP(Conv, cpu_conv_free)

int cpu_conv_new(Device *device, const ConvShape *shape, Conv **ret, Error *err)
{
    int r = check_shape(shape, err);
    if (r < 0)
        return r;

    _cleanup_(cpu_conv_freep) Conv *conv = calloc(1, sizeof(*conv));
    if (!conv)
        return error_set(err, -ENOMEM, "no memory for a convolution");
    conv->device = device;
    conv->shape = *shape;
    conv->taps = shape->kernel * shape->kernel;
    conv->in = (Extent){shape->h, shape->w, shape->c_in};
    conv->out = (Extent){conv_output_side(shape, shape->h), conv_output_side(shape, shape->w),
                         shape->c_out};
    conv->zeros = calloc((size_t)MAX(shape->c_in, shape->c_out), sizeof(float));
    if (!conv->zeros)
        return error_set(err, -ENOMEM, "no memory for a convolution");

    conv->forward = plan_forward(shape, conv->out);
    for (int y0 = 0; y0 < shape->stride; y0++)
        for (int x0 = 0; x0 < shape->stride; x0++)
            conv->backward[conv->n_backward++] = plan_backward(shape, y0, x0);
    *ret = TAKE_PTR(conv);
    return 0;
}

Conv *cpu_conv_free(Conv *conv)
{
    if (!conv)
        return NULL;
    free(conv->zeros);
    free(conv);
    return NULL;
}

/* ---- packed weights: [panel of out][tap][in][16] for forward, kept between updates; [panel of in][tap][out][16] for
 * backward by data, made in the workspace at each call: a second copy of all weights would take memory, and packing
 * costs only as much as a few rows of the product ---- */

static size_t forward_panel(const Conv *conv)
{
    return (size_t)(conv->taps * conv->in.c) * TILE_COLUMNS;
}

static size_t backward_panel(const Conv *conv)
{
    return (size_t)(conv->taps * conv->out.c) * TILE_COLUMNS;
}

size_t cpu_conv_packed_bytes(const Conv *conv)
{
    return floats_bytes(panels(conv->out.c) * forward_panel(conv));
}

static size_t backward_packed_bytes(const Conv *conv)
{
    return floats_bytes(panels(conv->in.c) * backward_panel(conv));
}

static int pack_team(const Conv *conv)
{
    return device_team(conv->device, (int64_t)conv->taps * conv->in.c * conv->out.c);
}

static void pack_forward_panel(const Conv *conv, const float *weight, size_t panel, float *to)
{
    const size_t taps = (size_t)conv->taps, c_in = (size_t)conv->in.c;
    const size_t first = panel * TILE_COLUMNS;

    for (size_t j = 0; j < TILE_COLUMNS; j++) {
        const float *from = weight + (first + j) * c_in * taps;
        bool inside = first + j < (size_t)conv->out.c;
        for (size_t i = 0; i < c_in; i++)
            for (size_t t = 0; t < taps; t++)
                to[(t * c_in + i) * TILE_COLUMNS + j] = inside ? from[i * taps + t] : 0.0f;
    }
}

static void pack_backward_panel(const Conv *conv, const float *weight, size_t panel, float *to)
{
    const size_t taps = (size_t)conv->taps, c_in = (size_t)conv->in.c, c_out = (size_t)conv->out.c;
    const size_t first = panel * TILE_COLUMNS, n = MIN((size_t)TILE_COLUMNS, c_in - first);

    for (size_t o = 0; o < c_out; o++) {
        const float *from = weight + (o * c_in + first) * taps;
        for (size_t t = 0; t < taps; t++) {
            float *row = to + (t * c_out + o) * TILE_COLUMNS;
            for (size_t j = 0; j < TILE_COLUMNS; j++)
                row[j] = j < n ? from[j * taps + t] : 0.0f;
        }
    }
}

void cpu_conv_pack(Conv *conv, const float *weight, void *packed)
{
    const size_t n = panels(conv->out.c), panel = forward_panel(conv);
    const int team = pack_team(conv);
    float *to = packed;

#pragma omp parallel for num_threads(team) schedule(static)
    for (size_t i = 0; i < n; i++)
        pack_forward_panel(conv, weight, i, to + i * panel);
}

static void pack_backward(const Conv *conv, const float *weight, float *to)
{
    const size_t n = panels(conv->in.c), panel = backward_panel(conv);
    const int team = pack_team(conv);

#pragma omp parallel for num_threads(team) schedule(static)
    for (size_t i = 0; i < n; i++)
        pack_backward_panel(conv, weight, i, to + i * panel);
}

/* ---- forward, and backward by data ---- */

/* Finds the source rows of the tile whose first lattice point is `first`. Rows from `end` on point to zeros, and their
 * results are not stored. */
static void locate_rows(const Product *p, size_t first, size_t end, Segment *segments, Rows *rows)
{
    const Pass *pass = p->pass;
    const size_t per_image = (size_t)pass->h * (size_t)pass->w;
    int n = (int)(first / per_image), y = (int)(first % per_image) / pass->w;
    int x = (int)(first % per_image) % pass->w;

    for (int t = 0; t < pass->n_taps; t++)
        segments[t].b = (size_t)pass->tap[t].index * (size_t)p->from.c * TILE_COLUMNS;
    rows->n = (int)MIN((size_t)TILE_ROWS, end - first);
    for (int i = 0; i < TILE_ROWS; i++) {
        bool inside = i < rows->n;
        const float *image = p->source;
        if (inside) {
            image += (size_t)n * (size_t)p->from.h * (size_t)p->from.w * (size_t)p->from.c;
            rows->image[i] = n;
            rows->target[i] = (((size_t)n * (size_t)p->to.h + (size_t)(pass->y0 + pass->step * y)) *
                                   (size_t)p->to.w +
                               (size_t)(pass->x0 + pass->step * x)) *
                              (size_t)p->to.c;
        }
        for (int t = 0; t < pass->n_taps; t++) {
            int sy = pass->source_step * y + pass->tap[t].dy;
            int sx = pass->source_step * x + pass->tap[t].dx;
            bool valid = inside && sy >= 0 && sy < p->from.h && sx >= 0 && sx < p->from.w;
            segments[t].a[i] =
                valid ? image + ((size_t)sy * (size_t)p->from.w + (size_t)sx) * (size_t)p->from.c
                      : p->conv->zeros;
        }
        if (++x == pass->w) {
            x = 0;
            if (++y == pass->h) {
                y = 0;
                n++;
            }
        }
    }
}

/* target = (the target's old value, or residual) + product (+ bias + per_image). The first block of channels adds the
 * residual, the last block of channels the bias and per_image. */
static inline void store_tile(const Product *p, const Tile *tile, const Rows *rows, size_t column,
                              size_t columns, bool first_block, bool last_block)
{
    for (int i = 0; i < rows->n; i++) {
        float v[TILE_COLUMNS];
        float *to = p->target + rows->target[i] + column;
        const float *add = first_block ? NULL : to;
        if (first_block && p->residual)
            add = p->residual + rows->target[i] + column;
        memcpy(v, tile->at[i], sizeof(v));
        if (add)
            for (size_t j = 0; j < columns; j++)
                v[j] += add[j];
        if (last_block && p->bias)
            for (size_t j = 0; j < columns; j++)
                v[j] += p->bias[column + j];
        if (last_block && p->per_image) {
            const float *image = p->per_image + (size_t)rows->image[i] * (size_t)p->to.c + column;
            for (size_t j = 0; j < columns; j++)
                v[j] += image[j];
        }
        for (size_t j = 0; j < columns; j++)
            to[j] = v[j];
    }
}

/* Multiplies channels [at, at + n) of one tile by one panel of the right side. */
static inline void multiply_tile(const Product *p, const Segment *segments, const Rows *rows,
                                 size_t panel, size_t at, size_t n)
{
    const size_t depth = (size_t)p->from.c, column = panel * TILE_COLUMNS;
    const size_t columns = MIN((size_t)TILE_COLUMNS, (size_t)p->to.c - column);
    const float *right = p->packed + (panel * (size_t)p->conv->taps * depth + at) * TILE_COLUMNS;
    Tile tile;

    tile_multiply(segments, (size_t)p->pass->n_taps, at, 1, right, TILE_COLUMNS, n, &tile);
    if (columns == TILE_COLUMNS)
        store_tile(p, &tile, rows, column, TILE_COLUMNS, at == 0, at + n == depth);
    else
        store_tile(p, &tile, rows, column, columns, at == 0, at + n == depth);
}

/* One task: a chunk of tiles times a group of panels. If the group fits the cache, each tile is multiplied with all
 * panels in turn, so that target rows are written from end to end; otherwise each panel is multiplied with all tiles in
 * turn. */
static void multiply_chunk(const Product *p, size_t first_row, size_t end_row, size_t first_panel,
                           size_t end_panel)
{
    Segment segments[CHUNK_TILES][MAX_TAPS];
    Rows rows[CHUNK_TILES];
    const size_t tiles = DIV_ROUND_UP(end_row - first_row, (size_t)TILE_ROWS);
    const size_t depth = (size_t)p->from.c, taps = (size_t)p->conv->taps;
    const size_t block = (size_t)BLOCK_VALUES / taps;
    const bool fits = (end_panel - first_panel) * taps * depth * TILE_COLUMNS <= CACHE_FLOATS;

    for (size_t i = 0; i < tiles; i++)
        locate_rows(p, first_row + i * TILE_ROWS, end_row, segments[i], &rows[i]);
    for (size_t at = 0; at < depth; at += block) {
        const size_t n = MIN(block, depth - at);
        if (fits)
            for (size_t i = 0; i < tiles; i++)
                for (size_t panel = first_panel; panel < end_panel; panel++)
                    multiply_tile(p, segments[i], &rows[i], panel, at, n);
        else
            for (size_t panel = first_panel; panel < end_panel; panel++)
                for (size_t i = 0; i < tiles; i++)
                    multiply_tile(p, segments[i], &rows[i], panel, at, n);
    }
}

static void multiply(const Product *p)
{
    const size_t rows = (size_t)p->conv->shape.n * (size_t)p->pass->h * (size_t)p->pass->w;
    const size_t chunk = (size_t)CHUNK_TILES * TILE_ROWS, n_panels = panels(p->to.c);
    const size_t chunks = DIV_ROUND_UP(rows, chunk);
    const size_t panel_floats = (size_t)p->conv->taps * (size_t)p->from.c * TILE_COLUMNS;
    const size_t group = MAX((size_t)GROUP_PANELS, (size_t)CACHE_FLOATS / panel_floats);
    const size_t groups = DIV_ROUND_UP(n_panels, group);
    const int team = device_team(p->conv->device, (int64_t)rows * p->to.c * p->from.c);

#pragma omp parallel for collapse(2) num_threads(team) schedule(dynamic)
    for (size_t i = 0; i < chunks; i++)
        for (size_t j = 0; j < groups; j++)
            multiply_chunk(p, i * chunk, MIN((i + 1) * chunk, rows), j * group,
                           MIN((j + 1) * group, n_panels));
}

void cpu_conv_forward(Conv *conv, const void *x, const void *packed, const float *bias,
                      const void *per_image, const void *residual, void *y, void *workspace)
{
    (void)workspace; /* only the backward passes need a workspace */
    Product p = {.conv = conv,
                 .pass = &conv->forward,
                 .from = conv->in,
                 .to = conv->out,
                 .source = x,
                 .packed = packed,
                 .bias = bias,
                 .per_image = per_image,
                 .residual = residual,
                 .target = y};
    multiply(&p);
}

void cpu_conv_backward_data(Conv *conv, const void *dy, const float *weight, const void *packed,
                            void *dx, bool accumulate, void *workspace)
{
    (void)packed; /* these weights are packed for the forward pass */
    assert(!conv->shape.forward_only);
    pack_backward(conv, weight, workspace);
    for (int i = 0; i < conv->n_backward; i++) {
        if (conv->backward[i].h == 0 || conv->backward[i].w == 0)
            continue;
        Product p = {.conv = conv,
                     .pass = &conv->backward[i],
                     .from = conv->out,
                     .to = conv->in,
                     .source = dy,
                     .packed = workspace,
                     .residual = accumulate ? dx : NULL,
                     .target = dx};
        multiply(&p);
    }
}

/* ---- backward by weight ---- */

/* The stride between panels is one cache line more than a panel's size. Otherwise, with a power of two of pixels, all
 * panels would map to the same set of the cache. */
typedef struct Gradient {
    const Conv *conv;
    size_t x_stride, dy_stride; /* floats from one panel to the next */
    float *x;                   /* [panel of in][pixel of in][16] */
    float *dy;                  /* [six of out][pixel of out][6] */
    Tile *tiles;                /* [panel of in][six of out][tap] */
} Gradient;

static Gradient gradient_layout(const Conv *conv, void *workspace, size_t *ret_bytes)
{
    char *at = workspace;
    Gradient g = {.conv = conv,
                  .x_stride = (pixels(conv, conv->in) + 1) * TILE_COLUMNS,
                  .dy_stride = pixels(conv, conv->out) * TILE_ROWS + TILE_COLUMNS};
    const size_t x = floats_bytes(panels(conv->in.c) * g.x_stride);
    const size_t dy = floats_bytes(sixes(conv->out.c) * g.dy_stride);
    const size_t tiles = panels(conv->in.c) * sixes(conv->out.c) * (size_t)conv->taps;

    *ret_bytes = x + dy + tiles * sizeof(Tile);
    if (workspace) {
        g.x = (float *)at;
        g.dy = (float *)(at + x);
        g.tiles = (Tile *)(at + x + dy);
    }
    return g;
}

size_t cpu_conv_workspace_bytes(const Conv *conv)
{
    size_t bytes;
    if (conv->shape.forward_only)
        return 0;
    (void)gradient_layout(conv, NULL, &bytes);
    return MAX(bytes, backward_packed_bytes(conv));
}

static bool is_flat(const Conv *conv) { return conv->taps == 1 && conv->shape.stride == 1; }

/* Finds the runs of output pixels in block `block` for which tap t lies inside the image. Returns the number of runs,
 * and their common length in ret_depth. */
static size_t locate_runs(const Gradient *g, size_t block, int t, Segment *segments,
                          size_t *ret_depth)
{
    const Conv *conv = g->conv;
    const int stride = conv->shape.stride, pad = conv_padding(&conv->shape);
    const int dy = t / conv->shape.kernel - pad, dx = t % conv->shape.kernel - pad;
    size_t n = 0;

    if (is_flat(conv)) {
        size_t first = block * RUN_PIXELS;
        for (int i = 0; i < TILE_ROWS; i++)
            segments[0].a[i] = g->dy + first * TILE_ROWS + i;
        segments[0].b = first * TILE_COLUMNS;
        *ret_depth = MIN((size_t)RUN_PIXELS, pixels(conv, conv->out) - first);
        return 1;
    }

    const int per_block = CLAMP(RUN_PIXELS / conv->out.w, 1, (int)RUN_ROWS);
    const int first = (int)block * per_block;
    const int end = MIN(first + per_block, conv->shape.n * conv->out.h);
    const int left = dx < 0 ? DIV_ROUND_UP(-dx, stride) : 0;
    const int right =
        conv->in.w - dx > 0 ? MIN(conv->out.w, DIV_ROUND_UP(conv->in.w - dx, stride)) : 0;
    if (right <= left)
        return 0;
    for (int row = first; row < end; row++) {
        int y = row % conv->out.h * stride + dy;
        if (y < 0 || y >= conv->in.h)
            continue;
        size_t pixel = (size_t)row * (size_t)conv->out.w + (size_t)left;
        for (int i = 0; i < TILE_ROWS; i++)
            segments[n].a[i] = g->dy + pixel * TILE_ROWS + i;
        segments[n++].b =
            (((size_t)(row / conv->out.h) * (size_t)conv->in.h + (size_t)y) * (size_t)conv->in.w +
             (size_t)(left * stride + dx)) *
            TILE_COLUMNS;
    }
    *ret_depth = (size_t)(right - left);
    return n;
}

static size_t gradient_blocks(const Conv *conv)
{
    if (is_flat(conv))
        return DIV_ROUND_UP(pixels(conv, conv->out), (size_t)RUN_PIXELS);
    int per_block = CLAMP(RUN_PIXELS / conv->out.w, 1, (int)RUN_ROWS);
    return (size_t)DIV_ROUND_UP(conv->shape.n * conv->out.h, per_block);
}

static void scatter_tiles(const Gradient *g, size_t panel, size_t six, float *dweight)
{
    const Conv *conv = g->conv;
    const size_t taps = (size_t)conv->taps, c_in = (size_t)conv->in.c;
    const Tile *tiles = g->tiles + (panel * sixes(conv->out.c) + six) * taps;
    const size_t rows = MIN((size_t)TILE_ROWS, (size_t)conv->out.c - six * TILE_ROWS);
    const size_t columns = MIN((size_t)TILE_COLUMNS, c_in - panel * TILE_COLUMNS);

    for (size_t i = 0; i < rows; i++) {
        float *to = dweight + ((six * TILE_ROWS + i) * c_in + panel * TILE_COLUMNS) * taps;
        for (size_t j = 0; j < columns; j++)
            for (size_t t = 0; t < taps; t++)
                to[j * taps + t] = tiles[t].at[i][j];
    }
}

/* One task: one panel of input channels times a group of blocks of six output channels, for all taps and pixels. */
static void gradient_chunk(const Gradient *g, size_t panel, size_t first_six, size_t end_six,
                           float *dweight)
{
    const Conv *conv = g->conv;
    const size_t blocks = gradient_blocks(conv), taps = (size_t)conv->taps;
    const float *right = g->x + panel * g->x_stride;
    Segment segments[RUN_ROWS];

    for (size_t block = 0; block < blocks; block++) {
        for (size_t t = 0; t < taps; t++) {
            size_t depth = 0, n = locate_runs(g, block, (int)t, segments, &depth);
            for (size_t six = first_six; six < end_six; six++) {
                Tile *sum = g->tiles + (panel * sixes(conv->out.c) + six) * taps + t, tile;
                tile_multiply(segments, n, six * g->dy_stride, TILE_ROWS, right,
                              (size_t)TILE_COLUMNS * (size_t)conv->shape.stride, depth,
                              block == 0 ? sum : &tile);
                if (block == 0)
                    continue;
                for (int i = 0; i < TILE_ROWS; i++)
                    for (int j = 0; j < TILE_COLUMNS; j++)
                        sum->at[i][j] += tile.at[i][j];
            }
        }
    }
    for (size_t six = first_six; six < end_six; six++)
        scatter_tiles(g, panel, six, dweight);
}

GradientForm cpu_conv_gradient_form(const Conv *conv)
{
    return (GradientForm){.type = DATA_F32,
                          .order = GRADIENT_AS_STATE,
                          .out = conv->out.c,
                          .in = conv->in.c,
                          .taps = conv->taps};
}

void cpu_conv_backward_weight(Conv *conv, const void *x, const void *dy, void *dweight,
                              float *dbias, void *workspace)
{
    size_t bytes;
    assert(!conv->shape.forward_only);
    const Gradient g = gradient_layout(conv, workspace, &bytes);
    const size_t n_panels = panels(conv->in.c), n_sixes = sixes(conv->out.c);
    const size_t n_in = pixels(conv, conv->in), n_out = pixels(conv, conv->out);
    const size_t groups = DIV_ROUND_UP(n_sixes, (size_t)GROUP_SIXES);
    const int team = device_team(conv->device, (int64_t)n_out * conv->in.c * conv->out.c);

#pragma omp parallel num_threads(team)
    {
#pragma omp for schedule(dynamic) nowait
        for (size_t first = 0; first < n_in; first += PACK_PIXELS)
            pack_panels((size_t)conv->in.c, x, (size_t)conv->in.c, TILE_COLUMNS, first,
                        MIN(first + PACK_PIXELS, n_in), g.x, g.x_stride);
#pragma omp for schedule(dynamic)
        for (size_t first = 0; first < n_out; first += PACK_PIXELS)
            pack_panels((size_t)conv->out.c, dy, (size_t)conv->out.c, TILE_ROWS, first,
                        MIN(first + PACK_PIXELS, n_out), g.dy, g.dy_stride);
#pragma omp for collapse(2) schedule(dynamic)
        for (size_t i = 0; i < n_panels; i++)
            for (size_t j = 0; j < groups; j++)
                gradient_chunk(&g, i, j * GROUP_SIXES, MIN((j + 1) * GROUP_SIXES, n_sixes),
                               dweight);
    }
    if (dbias)
        sum_columns(conv->device, 1, (int64_t)n_out, conv->out.c, dy, dbias);
}

void cpu_conv_plan_text(const Conv *conv, KernelPass pass, char *text, size_t size)
{
    (void)conv, (void)pass; /* the text is empty: a CPU device calls no library */
    (void)snprintf(text, size, "%s", "");
}
