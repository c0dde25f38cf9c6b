/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.h - converts latents back to pictures, with the VAE decoder of a diffusers folder.
 *
 * Ownership: decoder_open() gives the caller a Decoder, which borrows the Device; decoder_free() accepts NULL.
 * Units:     latents are in the U-Net's scale, multiplied by scaling_factor, NCHW; pixels are RGB bytes, rows from the
 *            top. `batch` is pictures.
 * Errors:    decoder_open(): as encoder_open(). decoder_run(): -EDOM a latent or a pixel is not finite; the device's
 *            errors.
 * Threads:   the device's.
 * Exactness: a picture's bytes depend only on its latents, the weights and the device's numerics: not on batch, place,
 *            neighbours or threads.
 * Source:    diffusers VaeImageProcessor: x / 2 + 0.5, clamped to 0..1, times 255, rounded with ties to even.
 */
#pragma once

#include "base/error.h"
#include "kernels/kernels.h"

typedef struct DecoderOptions {
    const char *model; /* a diffusers folder with vae/, as path or URI */
    int latent_height, latent_width;
    int batch; /* pictures that are computed at once */
} DecoderOptions;

typedef struct DecoderShape {
    int latent_channels, latent_height, latent_width;
    int factor;        /* pixels per latent along a side */
    int height, width; /* size of a picture */
    double scaling_factor;
} DecoderShape;

typedef struct Decoder Decoder;

int decoder_open(Device *device, const DecoderOptions *options, Decoder **ret, Error *err);
Decoder *decoder_free(Decoder *decoder);
DEFINE_CLEANUP(Decoder, decoder_free)
const DecoderShape *decoder_shape(const Decoder *decoder);

/* Decodes n <= batch latents of n x latent_channels x latent_height x latent_width; the rest of the batch is filled
 * with zeros. pixels: n x height x width x 3. */
int decoder_run(Decoder *decoder, int n, const float *latents, uint8_t *pixels, Error *err);
/* For tests: like decoder_run(), but the latents are IEEE halves of 16 bits, as datasets store them. */
int decoder_run_halves(Decoder *decoder, int n, const uint16_t *latents, uint8_t *pixels,
                       Error *err);
