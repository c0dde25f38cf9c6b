/* SPDX-License-Identifier: Apache-2.0 */
/* test-encoder-networks.c - VAE and text encoder compared with float64 results (tests/golden/make-encoders.py), and the
 * names and shapes of their tensors with those of Stable Diffusion 2. */
#include "base/file.h"
#include "encoders/networks/clip-text.h"
#include "encoders/networks/test/testing-golden.h"
#include "encoders/networks/vae.h"

#include <math.h>
#include <string.h>

static void *allocate(Device *device, size_t n_bytes)
{
    Error err = ERROR_INIT;
    void *memory;
    if (device_allocate(device, n_bytes, &memory, &err) < 0)
        fail_msg("%s", err.text);
    return memory;
}

/* Uploads the golden file's weights, in the tape's order. */
static float *load_weights(const Golden *g, Device *device, const Tape *tape)
{
    const ParameterList *list = tape->parameters;
    float *weights = allocate(device, (size_t)list->n_elements * sizeof(float));
    for (size_t i = 0; i < list->n_items; i++) {
        const Parameter *p = &list->items[i];
        char name[PARAMETER_NAME_MAX + 16];
        (void)snprintf(name, sizeof(name), "weights/%s", p->name);
        const SafetensorsEntry *e = golden_entry(g, name);
        assert_int_equal(e->n_dims, p->n_dims);
        assert_memory_equal(e->dims, p->dims, (size_t)p->n_dims * sizeof(p->dims[0]));
        device_upload(device, weights + p->offset, g->file + e->offset, (size_t)e->n_bytes);
    }
    return weights;
}

/* Fills memory with NaNs, so that reading it before it was written changes the results. */
static void poison(Device *device, void *memory, size_t n_bytes)
{
    char *nans = malloc(MAX(n_bytes, 1));
    assert_non_null(nans);
    memset(nans, 0xff, n_bytes);
    device_upload(device, memory, nans, n_bytes);
    free(nans);
}

/* Runs the tape twice with `input`, and compares the output with the golden file's tensor. */
static void check_forward(const Golden *g, Device *device, Tape *tape, ValueId in,
                          const void *input, ValueId out, const char *wanted)
{
    Error err = ERROR_INIT;
    if (tape_measure(tape, device, false, &err) < 0 || tape_allocate(tape, &err) < 0)
        fail_msg("%s", err.text);
    float *weights = load_weights(g, device, tape);
    const size_t n = (size_t)value_elements(tape_value(tape, out));
    const SafetensorsEntry *e = golden_entry(g, wanted);
    assert_int_equal(e->n_elements, n);
    void *result = allocate(device, n * tape->element_bytes);
    float *wide = allocate(device, n * sizeof(float)), *host = calloc(2 * n, sizeof(float));
    assert_non_null(host);
    tape_set_weights(tape, weights);
    tape_bind(tape, in, input);
    tape_bind_output(tape, out, result);
    for (size_t run = 0; run < 2; run++) {
        if (tape->arena_bytes > 0)
            poison(device, tape->arena, tape->arena_bytes);
        if (tape->workspace_bytes > 0)
            poison(device, tape->workspace, tape->workspace_bytes);
        tape_forward(tape);
        cast_to_f32(device, (int64_t)n, result, wide);
        device_download(device, host + run * n, wide, n * sizeof(float));
    }
    assert_memory_equal(host, host + n, n * sizeof(float));
    const double error = largest_error(host, golden_tensor(g, wanted), n);
    print_message("  %s: %zu operations, largest error %.2g\n", wanted, tape->n_operations, error);
    if (!(error <= golden_tolerance(device)))
        fail_msg("%s: largest error %g", wanted, error);
    free(host);
    device_release(device, weights);
    device_release(device, result);
    device_release(device, wide);
}

/* Uploads an input of floats in the device's type. */
static void *upload_floats(const Golden *g, Device *device, const char *name)
{
    const size_t n = (size_t)golden_entry(g, name)->n_elements;
    float *wide = allocate(device, n * sizeof(float));
    void *narrow = allocate(device, n * data_type_bytes(device_type(device)));
    device_upload(device, wide, golden_tensor(g, name), n * sizeof(float));
    cast_from_f32(device, (int64_t)n, wide, narrow);
    Error err = ERROR_INIT;
    assert_int_equal(device_synchronise(device, &err), 0);
    device_release(device, wide);
    return narrow;
}

static void the_vae_computes_what_diffusers_does(void **state)
{
    (void)state;
    static const char *const names[] = {"one-level", "two-levels", "three-levels", "four-levels"};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        char path[128];
        Error err = ERROR_INIT;
        VaeConfig config;
        VaeValues values;
        (void)snprintf(path, sizeof(path), "tests/golden/vae-%s.safetensors", names[i]);
        print_message("%s\n", names[i]);
        _cleanup_(golden_close) Golden g = golden_open(path);
        const char *text = golden_config(&g);
        if (vae_config_parse(path, text, strlen(text), &config, &err) < 0)
            fail_msg("%s", err.text);
        const SafetensorsEntry *pixels = golden_entry(&g, "pixels");
        const VaeShape shape = {(int)pixels->dims[0], (int)pixels->dims[1], (int)pixels->dims[2]};
        for (int decode = 0; decode < 2; decode++) {
            _cleanup_(device_freep) Device *device = open_cpu(2);
            _cleanup_(tape_freep) Tape *tape = NULL;
            assert_int_equal(tape_new(&tape), 0);
            assert_int_equal((decode ? vae_decoder_emit : vae_encoder_emit)(tape, &config, &shape,
                                                                            &values, &err),
                             0);
            void *in = upload_floats(&g, device, decode ? "latents" : "pixels");
            check_forward(&g, device, tape, values.in, in, values.out,
                          decode ? "decoded" : "moments");
            device_release(device, in);
        }
    }
}

static void the_text_encoder_computes_what_transformers_does(void **state)
{
    (void)state;
    static const char *const names[] = {"one-layer", "two-layers", "three-layers"};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        char path[128];
        Error err = ERROR_INIT;
        ClipTextConfig config;
        ClipTextValues values;
        (void)snprintf(path, sizeof(path), "tests/golden/text-%s.safetensors", names[i]);
        print_message("%s\n", names[i]);
        _cleanup_(golden_close) Golden g = golden_open(path);
        const char *text = golden_config(&g);
        if (clip_text_config_parse(path, text, strlen(text), &config, &err) < 0)
            fail_msg("%s", err.text);
        const SafetensorsEntry *ids = golden_entry(&g, "ids");
        _cleanup_(device_freep) Device *device = open_cpu(2);
        _cleanup_(tape_freep) Tape *tape = NULL;
        assert_int_equal(tape_new(&tape), 0);
        assert_int_equal(clip_text_emit(tape, &config, (int)ids->dims[0], &values, &err), 0);
        void *in = allocate(device, (size_t)ids->n_bytes);
        device_upload(device, in, golden_tensor(&g, "ids"), (size_t)ids->n_bytes);
        check_forward(&g, device, tape, values.ids, in, values.out, "hidden");
        device_release(device, in);
    }
}

/* ---- Stable Diffusion 2's tensors ---- */

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct Lines {
    char *text[1024];
    size_t n;
} Lines;

static void add_parameters(Lines *lines, const char *part, const Tape *tape, int64_t *ret_elements)
{
    assert_int_equal(tape->r, 0);
    *ret_elements += tape->parameters->n_elements;
    for (size_t i = 0; i < tape->parameters->n_items; i++) {
        const Parameter *p = &tape->parameters->items[i];
        char line[256];
        size_t at = (size_t)snprintf(line, sizeof(line), "%s %s [", part, p->name);
        for (int d = 0; d < p->n_dims; d++)
            at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%d", d > 0 ? ", " : "",
                                   (int)p->dims[d]);
        (void)snprintf(line + at, sizeof(line) - at, "]");
        assert_true(lines->n < ELEMENTSOF(lines->text));
        lines->text[lines->n] = strdup(line);
        assert_non_null(lines->text[lines->n]);
        lines->n++;
    }
}

/* sd2-encoders-parameters.txt lists the tensors of diffusers' AutoencoderKL and transformers' CLIPTextModel. */
static void names_and_shapes_are_stable_diffusions(void **state)
{
    (void)state;
    const VaeConfig vae = {.latent_channels = 4,
                           .n_levels = 4,
                           .block_out_channels = {128, 256, 512, 512},
                           .layers_per_block = 2,
                           .norm_num_groups = 32,
                           .scaling_factor = 0.18215};
    const ClipTextConfig clip = {.vocab_size = 49408,
                                 .max_position_embeddings = 77,
                                 .hidden_size = 1024,
                                 .intermediate_size = 4096,
                                 .num_hidden_layers = 23,
                                 .num_attention_heads = 16,
                                 .layer_norm_eps = 1e-5};
    Error err = ERROR_INIT;
    Lines found = {0};
    int64_t n_vae = 0, n_text = 0;
    VaeValues values;
    ClipTextValues text_values;
    _cleanup_(tape_freep) Tape *encoder = NULL, *decoder = NULL, *text = NULL;
    assert_true(tape_new(&encoder) == 0 && tape_new(&decoder) == 0 && tape_new(&text) == 0);
    const VaeShape shape = {1, 256, 256};
    assert_int_equal(vae_encoder_emit(encoder, &vae, &shape, &values, &err), 0);
    const Value *moments = tape_value(encoder, values.out);
    assert_true(moments->h == 32 && moments->w == 32 && moments->c == 8);
    assert_int_equal(vae_decoder_emit(decoder, &vae, &shape, &values, &err), 0);
    const Value *picture = tape_value(decoder, values.out);
    assert_true(picture->h == 256 && picture->w == 256 && picture->c == 3);
    assert_int_equal(clip_text_emit(text, &clip, 1, &text_values, &err), 0);
    add_parameters(&found, "vae", encoder, &n_vae);
    assert_int_equal(n_vae, 34163592 + 72);
    add_parameters(&found, "vae", decoder, &n_vae);
    assert_int_equal(n_vae, 83653863);
    add_parameters(&found, "text_encoder", text, &n_text);
    assert_int_equal(n_text, 340387840);
    qsort(found.text, found.n, sizeof(found.text[0]), compare_lines);

    char path[512], *file;
    Lines wanted = {0};
    source_path("tests/golden/sd2-encoders-parameters.txt", path, sizeof(path));
    assert_int_equal(file_read(path, 1 << 20, &file, NULL, &err), 0);
    char *rest = file, *line;
    while ((line = strsep(&rest, "\n")) && *line)
        wanted.text[wanted.n++] = line;
    assert_int_equal(wanted.n, 248 + 372);
    qsort(wanted.text, wanted.n, sizeof(wanted.text[0]), compare_lines);
    assert_int_equal(found.n, wanted.n);
    for (size_t i = 0; i < found.n; i++) {
        assert_string_equal(found.text[i], wanted.text[i]);
        free(found.text[i]);
    }
    free(file);
}

/* A network that makes a NaN in the middle of a result must not pass the comparison with a golden tensor. */
static void a_nan_is_the_largest_error(void **state)
{
    (void)state;
    const float right[] = {1, 2, -4}, near[] = {1.5f, 2, -4}, bad[] = {1, NAN, -4};
    assert_true(largest_error(near, right, 3) == 0.125);
    assert_true(isnan(largest_error(bad, right, 3)));
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    const VaeConfig vae = {.latent_channels = 4,
                           .n_levels = 3,
                           .block_out_channels = {8, 8, 8},
                           .layers_per_block = 1,
                           .norm_num_groups = 4};
    static const VaeShape shapes[] = {{0, 8, 8}, {1, 0, 8}, {1, 8, -4}, {1, 8, 10}, {1, 6, 8}};
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++) {
        Error err = ERROR_INIT;
        VaeValues values;
        _cleanup_(tape_freep) Tape *tape = NULL;
        assert_int_equal(tape_new(&tape), 0);
        assert_int_equal(vae_encoder_emit(tape, &vae, &shapes[i], &values, &err), -EINVAL);
        assert_int_equal(vae_decoder_emit(tape, &vae, &shapes[i], &values, &err), -EINVAL);
        assert_non_null(strstr(err.text, i < 3 ? "empty" : "multiples of 4"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vae_computes_what_diffusers_does),
        cmocka_unit_test(the_text_encoder_computes_what_transformers_does),
        cmocka_unit_test(names_and_shapes_are_stable_diffusions),
        cmocka_unit_test(a_nan_is_the_largest_error),
        cmocka_unit_test(bad_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
