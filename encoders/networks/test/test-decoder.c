/* SPDX-License-Identifier: Apache-2.0 */
/* test-decoder.c - decoded bytes are those of a float64 computation, and depend only on the latents. */
#include "base/number/half.h"
#include "encoders/networks/decoder.h"
#include "encoders/networks/test/testing-golden.h"

#include <math.h>
#include <string.h>

enum { LATENT_SIDE = 8, LATENT = 4 * 8 * 8, PIXELS = 64 * 64 * 3, SAMPLES = 4 };

static void tiny_path(char ret[512]) { source_path("tests/models/tiny-encoders", ret, 512); }

static Decoder *open_tiny(Device *device, int batch)
{
    Error err = ERROR_INIT;
    Decoder *decoder = NULL;
    char model[512];
    tiny_path(model);
    const DecoderOptions options = {model, LATENT_SIDE, LATENT_SIDE, batch};
    if (decoder_open(device, &options, &decoder, &err) < 0)
        fail_msg("%s", err.text);
    return decoder;
}

static void decode(Decoder *decoder, int n, const float *latents, uint8_t *ret)
{
    Error err = ERROR_INIT;
    if (decoder_run(decoder, n, latents, ret, &err) < 0)
        fail_msg("%s", err.text);
}

static bool is_plain(const Device *device) { return device_type(device) == DATA_F32; }

/* Computes a byte by the rule of VaeImageProcessor, before rounding. */
static double byte_of(double x) { return 255 * fmin(fmax(x / 2 + 0.5, 0), 1); }

static void pictures_are_float64s(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("tests/golden/tiny-encoders.safetensors");
    _cleanup_(device_freep) Device *device = open_cpu(2);
    _cleanup_(decoder_freep) Decoder *decoder = open_tiny(device, SAMPLES);
    const DecoderShape *s = decoder_shape(decoder);
    assert_true(s->latent_channels == 4 && s->latent_height == 8 && s->latent_width == 8);
    assert_true(s->factor == 8 && s->height == 64 && s->width == 64);
    assert_true(s->scaling_factor > 6.9 && s->scaling_factor < 7.1);

    const float *wanted = golden_tensor(&g, "decoded");
    static uint8_t found[SAMPLES * PIXELS];
    decode(decoder, SAMPLES, golden_tensor(&g, "latents"), found);
    const double reach = is_plain(device) ? 0.51 : 12;
    size_t n_other = 0, n_black = 0, n_white = 0;
    for (size_t i = 0; i < SAMPLES * PIXELS; i++) {
        const double exact = byte_of((double)wanted[i]);
        n_other += found[i] != (uint8_t)rint(exact);
        n_black += found[i] == 0;
        n_white += found[i] == 255;
        if (!(fabs(found[i] - exact) <= reach))
            fail_msg("byte %zu: %d instead of %g", i, found[i], exact);
    }
    print_message("  %zu of %d bytes are not float64's; %zu black, %zu white\n", n_other,
                  SAMPLES * PIXELS, n_black, n_white);
    assert_true(n_black > 100 && n_white > 100); /* values below 0 and above 255 are clamped */
    assert_true(!is_plain(device) || n_other * 1000 < SAMPLES * PIXELS);
}

/* Every batch of 1 to 8 on 1 to 4 threads, with each picture at every place among different neighbours, gives the same
 * bytes. */
static void bytes_depend_on_the_latents_alone(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("tests/golden/tiny-encoders.safetensors");
    const float *latents = golden_tensor(&g, "latents");
    static uint8_t alone[SAMPLES][PIXELS], found[8 * PIXELS];
    {
        _cleanup_(device_freep) Device *device = open_cpu(1);
        _cleanup_(decoder_freep) Decoder *decoder = open_tiny(device, 1);
        for (int i = 0; i < SAMPLES; i++)
            decode(decoder, 1, latents + i * LATENT, alone[i]);
        assert_memory_not_equal(alone[0], alone[1], PIXELS);
    }
    /* An emulator takes a second per picture, so only two sizes of batch are tried on it. */
    const char *emulated = getenv("SDTRAIN_TEST_DEVICE");
    const int last = emulated && strncmp(emulated, "emulated", 8) == 0 ? 2 : 8;
    for (int batch = 1; batch <= last; batch++) {
        _cleanup_(device_freep) Device *device = open_cpu(1 + batch % 4);
        _cleanup_(decoder_freep) Decoder *decoder = open_tiny(device, batch);
        for (int shift = 0; shift < 2; shift++) {
            float of_batch[8 * LATENT];
            int picks[8];
            const int n = MAX(batch - shift, 1); /* the rest of the batch is filled with zeros */
            for (int i = 0; i < n; i++) {
                picks[i] = (i * (batch % 3 + 1) + i / SAMPLES + shift) % SAMPLES;
                memcpy(of_batch + i * LATENT, latents + picks[i] * LATENT, LATENT * sizeof(float));
            }
            decode(decoder, n, of_batch, found);
            for (int i = 0; i < n; i++)
                assert_memory_equal(found + i * PIXELS, alone[picks[i]], PIXELS);
        }
    }
}

static void halves_are_floats(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_(golden_close) Golden g = golden_open("tests/golden/tiny-encoders.safetensors");
    _cleanup_(device_freep) Device *device = open_cpu(1);
    _cleanup_(decoder_freep) Decoder *decoder = open_tiny(device, 1);
    const float *latents = golden_tensor(&g, "latents");
    uint16_t halves[LATENT];
    float floats[LATENT];
    static uint8_t found[PIXELS], wanted[PIXELS];
    for (int i = 0; i < LATENT; i++) {
        halves[i] = half_from_float(latents[i]);
        floats[i] = half_to_float(halves[i]);
    }
    assert_int_equal(decoder_run_halves(decoder, 1, halves, found, &err), 0);
    decode(decoder, 1, floats, wanted);
    assert_memory_equal(found, wanted, PIXELS);
    halves[7] = 0x7c00;
    assert_int_equal(decoder_run_halves(decoder, 1, halves, found, &err), -EDOM);
    assert_non_null(strstr(err.text, "picture 0: a latent is inf"));
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_(device_freep) Device *device = open_cpu(1);
    _cleanup_(decoder_freep) Decoder *decoder = open_tiny(device, 2);
    static float latents[2 * LATENT];
    static uint8_t pixels[2 * PIXELS];
    latents[LATENT + 3] = NAN;
    assert_int_equal(decoder_run(decoder, 2, latents, pixels, &err), -EDOM);
    assert_non_null(strstr(err.text, "picture 1: a latent is nan"));
    decode(decoder, 1, latents, pixels); /* the second picture is not read */
    for (int i = 0; i < LATENT; i++)
        latents[LATENT + i] = 3e38f; /* sums of such latents overflow */
    assert_int_equal(decoder_run(decoder, 2, latents, pixels, &err), -EDOM);
    assert_non_null(strstr(err.text, "picture 1: a pixel is"));

    char model[512];
    tiny_path(model);
    const struct {
        DecoderOptions options;
        int r;
        const char *said;
    } cases[] = {
        {{model, 0, 8, 1}, -EINVAL, "a latent's side: 0"},
        {{model, 8, 1 << 20, 1}, -EINVAL, "a latent's side: 1048576"},
        {{model, 8, 8, 0}, -EINVAL, "batch: 0"},
        {{"/nonexistent/model", 8, 8, 1}, -ENOENT, "vae/config.json"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Decoder *none = NULL;
        assert_int_equal(decoder_open(device, &cases[i].options, &none, &err), cases[i].r);
        assert_null(none);
        if (!strstr(err.text, cases[i].said))
            fail_msg("%s", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_float64s),
        cmocka_unit_test(bytes_depend_on_the_latents_alone),
        cmocka_unit_test(halves_are_floats),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
