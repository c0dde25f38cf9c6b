/* SPDX-License-Identifier: Apache-2.0 */
/* test-nn.c - tests of code that needs no kernels: the parameter list compared with diffusers', the initial weights,
 * the planner, the noise schedule. */
#include "base/file.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "nn/parameters.h"
#include "nn/planner.h"
#include "nn/schedule.h"
#include "nn/test/testing-sd2.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static int parameter_find(const ParameterList *list, const char *name, const Parameter **ret)
{
    for (size_t i = 0; i < list->n_items; i++)
        if (strcmp(list->items[i].name, name) == 0) {
            *ret = &list->items[i];
            return 0;
        }
    return -ENOENT;
}

static const UnetConfig tiny = {
    .in_channels = 4,
    .out_channels = 4,
    .n_levels = 2,
    .block_out_channels = {8, 16},
    .down_attention = {true, false},
    .up_attention = {false, true},
    .layers_per_block = 1,
    .heads = {2, 4},
    .cross_attention_dim = 12,
    .norm_num_groups = 4,
    .norm_eps = 1e-5,
    .flip_sin_to_cos = true,
    .use_linear_projection = true,
};

/* Writes "name [dims]", as in the golden list. */
static void format_parameter(const Parameter *p, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s [", p->name);
    for (int i = 0; i < p->n_dims; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "", p->dims[i]);
    (void)snprintf(text + used, size - used, "]");
}

static void sd2_base_has_diffusers_parameters(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    ParameterList *list;
    assert_int_equal(unet_parameters(&sd2_base, &list, &err), 0);
    assert_int_equal(list->n_items, 686);
    assert_int_equal(list->n_elements, 865910724);

    char path[512], *text;
    const char *source = getenv("SDTRAIN_SOURCE");
    (void)snprintf(path, sizeof(path), "%s/tests/golden/sd2-base-parameters.txt",
                   source ? source : ".");
    assert_int_equal(file_read(path, 1 << 20, &text, NULL, &err), 0);
    size_t n_lines = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) && *line) {
        char name[PARAMETER_NAME_MAX], found[256];
        const Parameter *p = NULL;
        assert_int_equal(sscanf(line, "%127s", name), 1);
        if (parameter_find(list, name, &p) < 0)
            fail_msg("%s is missing", name);
        format_parameter(p, found, sizeof(found));
        assert_string_equal(found, line);
        n_lines++;
    }
    assert_int_equal(n_lines, list->n_items);
    free(text);

    int64_t offset = 0;
    for (size_t i = 0; i < list->n_items; i++) {
        assert_int_equal(list->items[i].offset, offset);
        offset += list->items[i].n_elements;
    }
    assert_int_equal(offset, list->n_elements);
    assert_string_equal(list->items[0].name, "conv_in.weight");
    assert_string_equal(list->items[685].name, "conv_out.bias");
    const Parameter *p = NULL;
    assert_int_equal(parameter_find(list, "conv_in.weight.", &p), -ENOENT);
    (void)parameter_list_free(list);
}

static void initial_weights_are_uniform_and_fixed(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_(parameter_list_freep) ParameterList *list = NULL;
    assert_int_equal(unet_parameters(&tiny, &list, &err), 0);
    _cleanup_free_ float *a = calloc((size_t)list->n_elements, sizeof(float));
    _cleanup_free_ float *b = calloc((size_t)list->n_elements, sizeof(float));
    assert_true(a && b);
    parameters_initialise(list, 17, a);
    parameters_initialise(list, 17, b);
    assert_memory_equal(a, b, (size_t)list->n_elements * sizeof(float));
    memset(b, 0, (size_t)list->n_elements * sizeof(float));
    for (int64_t begin = 0, n = 1; begin < list->n_elements; begin += n, n = n * 3 % 50021)
        parameters_initialise_range(list, 17, begin, MIN(begin + n, list->n_elements), b + begin);
    assert_memory_equal(a, b, (size_t)list->n_elements * sizeof(float));
    parameters_initialise(list, 18, b);
    assert_memory_not_equal(a, b, (size_t)list->n_elements * sizeof(float));

    for (size_t i = 0; i < list->n_items; i++) {
        const Parameter *p = &list->items[i];
        double bound = 1.0 / sqrt((double)p->fan_in), sum = 0, squares = 0, largest = 0;
        for (int64_t j = 0; j < p->n_elements; j++) {
            double x = (double)a[p->offset + j];
            sum += x;
            squares += x * x;
            assert_true(isfinite(x)); /* fmax() passes over a NaN */
            largest = fmax(largest, fabs(x));
        }
        double n = (double)p->n_elements;
        if (p->kind == PARAMETER_NORM_WEIGHT) {
            assert_true(sum == n && largest == 1.0);
        } else if (p->kind == PARAMETER_NORM_BIAS) {
            assert_true(largest == 0.0);
        } else {
            assert_true(largest <= bound * (1 + 1e-6));
            /* a uniform draw has the variance bound^2 / 3; five deviations are allowed */
            if (n >= 500) {
                assert_true(fabs(sum / n) < 5.0 * bound / sqrt(3.0 * n));
                assert_true(fabs(squares / n * 3.0 / (bound * bound) - 1.0) < 5.0 * sqrt(0.8 / n));
            }
        }
    }
    const Parameter *conv = NULL;
    assert_int_equal(parameter_find(list, "down_blocks.1.resnets.0.conv1.weight", &conv), 0);
    assert_int_equal(conv->fan_in, 8 * 9);
    assert_int_equal(parameter_find(list, "down_blocks.1.resnets.0.conv1.bias", &conv), 0);
    assert_int_equal(conv->fan_in, 8 * 9);
}

/* In many random schedules, no two buffers that are alive at the same time overlap. */
static void planned_buffers_never_overlap(void **state)
{
    (void)state;
    enum { N = 120 };
    for (uint64_t seed = 0; seed < 200; seed++) {
        PlannedBuffer b[N];
        size_t arena, sum = 0;
        for (uint64_t i = 0; i < N; i++) {
            Philox draw = philox4x32(seed, 0, i);
            b[i] = (PlannedBuffer){.bytes = draw.word[0] % 1000, .first = INT_MAX, .last = -1};
            planner_touch(&b[i], (int)(draw.word[1] % 50));
            planner_touch(&b[i], (int)(draw.word[2] % 50));
            sum += ROUND_UP(b[i].bytes, (size_t)PLANNER_ALIGNMENT);
        }
        assert_int_equal(planner_place(b, N, &arena), 0);
        assert_true(arena <= sum);
        for (int i = 0; i < N; i++) {
            assert_int_equal(b[i].offset % PLANNER_ALIGNMENT, 0);
            assert_true(b[i].offset + b[i].bytes <= arena);
            for (int j = 0; j < i; j++)
                assert_true(b[i].bytes == 0 || b[j].bytes == 0 || b[i].last < b[j].first ||
                            b[j].last < b[i].first || b[i].offset + b[i].bytes <= b[j].offset ||
                            b[j].offset + b[j].bytes <= b[i].offset);
        }
    }
}

static void the_planner_uses_dead_memory_again(void **state)
{
    (void)state;
    PlannedBuffer b[10]; /* a chain: each buffer is alive while the next one is made */
    size_t arena;
    for (int i = 0; i < 10; i++)
        b[i] = (PlannedBuffer){.bytes = 768, .first = i, .last = i + 1};
    assert_int_equal(planner_place(b, 10, &arena), 0);
    assert_int_equal(arena, 2 * 768);
    assert_int_equal(planner_place(b, 0, &arena), 0);
    assert_int_equal(arena, 0);
}

static void the_schedule_is_scaled_linear(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_(noise_schedule_freep) NoiseSchedule *s = NULL;
    assert_int_equal(noise_schedule_new(0.00085, 0.012, 1000, &s, &err), 0);
    assert_int_equal(s->n_steps, 1000);
    assert_true(fabs(s->alpha_bar[0] - (1.0 - 0.00085)) < 1e-15);
    assert_true(fabs(s->alpha_bar[999] / s->alpha_bar[998] - (1.0 - 0.012)) < 1e-14);
    assert_true(fabs(s->alpha_bar[999] - 0.004660098513077238) < 1e-15); /* computed with NumPy */
    for (int t = 0; t < 1000; t++) {
        assert_true(t == 0 || s->alpha_bar[t] < s->alpha_bar[t - 1]);
        assert_true(fabs((double)s->signal[t] * (double)s->signal[t] +
                         (double)s->noise[t] * (double)s->noise[t] - 1.0) < 3e-7);
    }
    NoiseSchedule *none = NULL;
    assert_int_equal(noise_schedule_new(0.02, 0.01, 1000, &none, &err), -EINVAL);
    assert_int_equal(noise_schedule_new(0, 0.01, 1000, &none, &err), -EINVAL);
    assert_int_equal(noise_schedule_new(0.01, 1, 1000, &none, &err), -EINVAL);
    assert_int_equal(noise_schedule_new(0.01, 0.02, 1, &none, &err), -EINVAL);
    assert_null(none);
}

/* The latents may have any height and width: the network halves an odd side with rounding up, and upsamples to the side
 * of the skip connection. */
static void any_sides_are_taken(void **state)
{
    (void)state;
    static const int sides[][2] = {{64, 60}, {1, 1}, {63, 65}, {9, 2}};
    for (size_t i = 0; i < ELEMENTSOF(sides); i++) {
        Error err = ERROR_INIT;
        _cleanup_(tape_freep) Tape *tape = NULL;
        UnetValues values;
        assert_int_equal(tape_new(&tape), 0);
        const UnetShape shape = {1, sides[i][0], sides[i][1], 77};
        assert_int_equal(unet_emit(tape, &sd2_base, &shape, &values, &err), 0);
        assert_int_equal(tape->r, 0);
        assert_int_equal(tape_value(tape, values.prediction)->h, sides[i][0]);
        assert_int_equal(tape_value(tape, values.prediction)->w, sides[i][1]);
    }
    Error err = ERROR_INIT;
    _cleanup_(tape_freep) Tape *tape = NULL;
    UnetValues values;
    assert_int_equal(tape_new(&tape), 0);
    assert_int_equal(unet_emit(tape, &sd2_base, &(UnetShape){0, 64, 64, 77}, &values, &err),
                     -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sd2_base_has_diffusers_parameters),
        cmocka_unit_test(initial_weights_are_uniform_and_fixed),
        cmocka_unit_test(planned_buffers_never_overlap),
        cmocka_unit_test(the_planner_uses_dead_memory_again),
        cmocka_unit_test(the_schedule_is_scaled_linear),
        cmocka_unit_test(any_sides_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
