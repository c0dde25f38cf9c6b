/* SPDX-License-Identifier: Apache-2.0 */
/* test-encoder.c - the results of a whole model folder are those of float64 rounded to halves, and a sample's bytes
 * depend only on the sample. */
#include "base/number/half.h"
#include "encoders/networks/encoder.h"
#include "encoders/networks/test/testing-golden.h"
#include "encoders/tokenizer/tokenizer.h"

#include <math.h>
#include <string.h>

enum {
    SIDE = 64,
    PIXELS = SIDE * SIDE * 3,
    TOKENS = 77,
    DIM = 64,
    LATENT = 4 * 8 * 8,
    SAMPLES = 4
};

typedef struct Result {
    uint16_t latents[LATENT], text[TOKENS * DIM];
} Result;

static Encoder *open_tiny(Device *device, int side, int batch)
{
    Error err = ERROR_INIT;
    Encoder *encoder = NULL;
    char model[512];
    source_path("tests/models/tiny-encoders", model, sizeof(model));
    const EncoderOptions options = {.model = model, .side = side, .batch = batch};
    if (encoder_open(device, &options, &encoder, &err) < 0)
        fail_msg("%s", err.text);
    return encoder;
}

/* Runs samples picks[0..n) of the golden file as samples 0..n of a batch. */
static void run(Encoder *encoder, const Golden *g, int n, const int *picks, Result *ret)
{
    Error err = ERROR_INIT;
    const uint8_t *bytes = golden_tensor(g, "bytes");
    const int32_t *ids = golden_tensor(g, "ids");
    uint8_t *pixels = calloc((size_t)n, PIXELS);
    int32_t *words = calloc((size_t)n, TOKENS * sizeof(*words));
    uint16_t *latents = calloc((size_t)n, LATENT * sizeof(*latents));
    uint16_t *text = calloc((size_t)n, TOKENS * DIM * sizeof(*text));
    assert_true(pixels && words && latents && text);
    for (int i = 0; i < n; i++) {
        memcpy(pixels + i * PIXELS, bytes + picks[i] * PIXELS, PIXELS);
        memcpy(words + i * TOKENS, ids + picks[i] * TOKENS, TOKENS * sizeof(*words));
    }
    if (encoder_run(encoder, n, pixels, words, latents, text, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) {
        memcpy(ret[i].latents, latents + i * LATENT, sizeof(ret[i].latents));
        memcpy(ret[i].text, text + i * TOKENS * DIM, sizeof(ret[i].text));
    }
    free(pixels);
    free(words);
    free(latents);
    free(text);
}

/* Runs each sample as a batch of one, on one thread. */
static void run_alone(const Golden *g, Result ret[SAMPLES])
{
    _cleanup_(device_freep) Device *device = open_cpu(1);
    _cleanup_(encoder_freep) Encoder *encoder = open_tiny(device, SIDE, 1);
    for (int i = 0; i < SAMPLES; i++)
        run(encoder, g, 1, &i, &ret[i]);
}

/* Each half must be the rounded value, or its neighbour if the value is almost midway between two halves. */
static void assert_rounded(const uint16_t *found, const float *wanted, size_t n, double tolerance)
{
    double largest = 0;
    size_t n_other = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)wanted[i]));
    for (size_t i = 0; i < n; i++) {
        const double exact = (double)wanted[i], half = (double)half_to_float(found[i]);
        n_other += found[i] != half_from_float(wanted[i]);
        if (!(fabs(half - exact) <= tolerance * largest + fabs(exact) * 0x1p-11 + 0x1p-25))
            fail_msg("element %zu: %g instead of %g", i, half, exact);
    }
    print_message("  %zu of %zu halves are not the nearest to float64's\n", n_other, n);
    assert_true(tolerance > 1e-4 || n_other * 20 < n);
}

static void a_model_folder_becomes_halves(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("tests/golden/tiny-encoders.safetensors");
    _cleanup_(device_freep) Device *device = open_cpu(2);
    _cleanup_(encoder_freep) Encoder *encoder = open_tiny(device, SIDE, SAMPLES);
    const EncoderShape *s = encoder_shape(encoder);
    assert_true(s->side == SIDE && s->latent_channels == 4 && s->latent_side == 8);
    assert_true(s->n_tokens == TOKENS && s->text_dim == DIM && s->vocabulary == 1024);
    assert_true(s->scaling_factor > 1 && s->scaling_factor < 100);

    const int all[SAMPLES] = {0, 1, 2, 3};
    const float *latents = golden_tensor(&g, "latents"), *hidden = golden_tensor(&g, "hidden");
    Result results[SAMPLES];
    run(encoder, &g, SAMPLES, all, results);
    double squares = 0;
    for (int i = 0; i < SAMPLES; i++) {
        assert_rounded(results[i].latents, latents + i * LATENT, LATENT, golden_tolerance(device));
        assert_rounded(results[i].text, hidden + i * TOKENS * DIM, TOKENS * DIM,
                       golden_tolerance(device));
        for (int k = 0; k < LATENT; k++)
            squares += pow((double)half_to_float(results[i].latents[k]), 2) / (SAMPLES * LATENT);
    }
    /* The loader refuses latents whose standard deviation is not in this range. */
    assert_true(sqrt(squares) > 0.3 && sqrt(squares) < 3);
}

static void same_bytes(const Result *found, const Result *alone, int n, const int *picks)
{
    for (int i = 0; i < n; i++) {
        assert_memory_equal(found[i].latents, alone[picks[i]].latents, sizeof(found[i].latents));
        assert_memory_equal(found[i].text, alone[picks[i]].text, sizeof(found[i].text));
    }
}

/* Every batch of 1 to 16 on 1 to 4 threads, with each sample at every place among different neighbours, gives the same
 * bytes. */
static void bytes_depend_on_the_sample_alone(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("tests/golden/tiny-encoders.safetensors");
    Result alone[SAMPLES], found[16];
    run_alone(&g, alone);
    assert_memory_not_equal(alone[0].latents, alone[1].latents, sizeof(alone[0].latents));
    assert_memory_not_equal(alone[0].text, alone[1].text, sizeof(alone[0].text));
    /* An emulator takes a second per sample, so only two sizes of batch are tried on it. */
    const char *emulated = getenv("SDTRAIN_TEST_DEVICE");
    const int last = emulated && strncmp(emulated, "emulated", 8) == 0 ? 2 : 16;
    for (int batch = 1; batch <= last; batch++) {
        _cleanup_(device_freep) Device *device = open_cpu(1 + batch % 4);
        _cleanup_(encoder_freep) Encoder *encoder = open_tiny(device, SIDE, batch);
        for (int shift = 0; shift < (batch == 16 ? SAMPLES : 1); shift++) {
            int picks[16];
            for (int i = 0; i < batch; i++)
                picks[i] = (i * (batch % 3 + 1) + i / SAMPLES + shift) % SAMPLES;
            const int n = shift % 2 ? batch - 3 : batch; /* the rest of the batch is zeros */
            run(encoder, &g, n, picks, found);
            same_bytes(found, alone, n, picks);
        }
    }
}

/* The samples of an earlier batch do not affect the results of a batch that is only partly filled. */
static void a_part_of_a_batch_is_filled_up(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("tests/golden/tiny-encoders.safetensors");
    Result alone[SAMPLES], found[SAMPLES];
    run_alone(&g, alone);
    _cleanup_(device_freep) Device *device = open_cpu(2);
    _cleanup_(encoder_freep) Encoder *encoder = open_tiny(device, SIDE, SAMPLES);
    const int picks[SAMPLES] = {3, 2, 1, 0};
    for (int n = SAMPLES; n >= 1; n--) {
        run(encoder, &g, n, picks, found);
        same_bytes(found, alone, n, picks);
    }
}

static void captions_alone(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("tests/golden/tiny-encoders.safetensors");
    Result alone[SAMPLES];
    run_alone(&g, alone);
    Error err = ERROR_INIT;
    _cleanup_(device_freep) Device *device = open_cpu(1);
    _cleanup_(encoder_freep) Encoder *encoder = open_tiny(device, 0, 1);
    assert_int_equal(encoder_shape(encoder)->latent_side, 0);
    uint16_t text[TOKENS * DIM];
    const int32_t *ids = golden_tensor(&g, "ids");
    assert_int_equal(encoder_run(encoder, 1, NULL, ids, NULL, text, &err), 0);
    assert_memory_equal(text, alone[0].text, sizeof(text));

    _cleanup_(encoder_freep) Encoder *whole = open_tiny(device, SIDE, 1);
    uint16_t latents[LATENT];
    assert_int_equal(encoder_run(whole, 1, golden_tensor(&g, "bytes"), NULL, latents, NULL, &err),
                     0);
    assert_memory_equal(latents, alone[0].latents, sizeof(latents));
    assert_false(hash_equal(encoder_weights_hash(encoder), encoder_weights_hash(whole)));
}

static void ids_and_options_are_checked(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_(device_freep) Device *device = open_cpu(1);
    _cleanup_(encoder_freep) Encoder *encoder = open_tiny(device, 0, 2);
    static int32_t ids[2 * TOKENS];
    static uint16_t text[2 * TOKENS * DIM];
    static const int32_t bad[] = {1024, -1, INT32_MAX};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        char number[32];
        ids[TOKENS + 5] = bad[i];
        (void)snprintf(number, sizeof(number), "id %d ", bad[i]);
        assert_int_equal(encoder_run(encoder, 2, NULL, ids, NULL, text, &err), -EINVAL);
        assert_non_null(strstr(err.text, "sample 1"));
        assert_non_null(strstr(err.text, number));
    }
    ids[TOKENS + 5] = 1023;
    assert_int_equal(encoder_run(encoder, 2, NULL, ids, NULL, text, &err), 0);

    char model[512];
    source_path("tests/models/tiny-encoders", model, sizeof(model));
    const struct {
        EncoderOptions options;
        int r;
        const char *said;
    } cases[] = {
        {{.model = model, .side = 60, .batch = 1}, -EINVAL, "side: 60 is not a multiple of 8"},
        {{.model = model, .side = -8, .batch = 1}, -EINVAL, "side: -8"},
        {{.model = model, .side = 1 << 20, .batch = 1}, -EINVAL, "side: 1048576"},
        {{.model = model, .side = 64, .batch = 0}, -EINVAL, "batch: 0"},
        {{.model = "/nonexistent/model", .side = 64, .batch = 1}, -ENOENT, "vae/config.json"},
        {{.model = "/nonexistent/model", .side = 0, .batch = 1},
         -ENOENT,
         "text_encoder/config.json"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Encoder *none = NULL;
        assert_int_equal(encoder_open(device, &cases[i].options, &none, &err), cases[i].r);
        assert_null(none);
        if (!strstr(err.text, cases[i].said))
            fail_msg("%s", err.text);
    }
}

/* The model folder's tokenizer has the vocabulary that its text encoder needs. */
static void the_folders_tokenizer_fits(void **state)
{
    (void)state;
    char path[512];
    Error err = ERROR_INIT;
    source_path("tests/models/tiny-encoders/tokenizer", path, sizeof(path));
    _cleanup_(tokenizer_freep) Tokenizer *tokenizer = NULL;
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    if (tokenizer_open(path, TOKENIZER_OPEN_CLIP, 1024, TOKENS, &tokenizer, &err) < 0)
        fail_msg("%s", err.text);
    int32_t ids[TOKENS];
    assert_true(tokenizer_encode(tokenizer, &scratch, "the cat", 7, ids) > 3);
    assert_int_equal(ids[0], 1022);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_folder_becomes_halves),
        cmocka_unit_test(bytes_depend_on_the_sample_alone),
        cmocka_unit_test(a_part_of_a_batch_is_filled_up),
        cmocka_unit_test(captions_alone),
        cmocka_unit_test(ids_and_options_are_checked),
        cmocka_unit_test(the_folders_tokenizer_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
