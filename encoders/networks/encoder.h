/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.h - converts pictures and token ids to the input of the U-Net's training: the mean of the VAE's posterior
 * times scaling_factor, and the last hidden state of CLIP's text encoder.
 *
 * Ownership: encoder_open() gives the caller an Encoder, which borrows the Device; encoder_free() accepts NULL.
 * Units:     pixels are RGB bytes, rows from the top; results are IEEE halves as 16 bits. `batch` is samples.
 * Errors:    encoder_open(): -ENOENT a file is missing; -EINVAL a config, a side or a tensor's name or shape is not
 *            supported; -EBADMSG a broken file, or a weight that is not finite; -ENOMEM; errors of the store and of the
 *            device. The text names the file, and the key and value or the tensor. encoder_run(): -EDOM a value is not
 *            finite, in fp32 or as a half; -EINVAL an id that is not in the vocabulary; errors of the device.
 * Threads:   the device's.
 * Exactness: a sample's bytes depend only on its pixels and ids, the weights and the device's numerics: not on batch,
 *            on its place there, on its neighbours, on threads or on n.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"
#include "kernels/kernels.h"

typedef struct EncoderOptions {
    const char *model; /* a diffusers folder with vae/ and text_encoder/, as path or URI */
    int side;          /* side of the pictures; 0: no VAE is loaded, only texts are encoded */
    int batch;         /* samples that are computed at once */
} EncoderOptions;

typedef struct EncoderShape {
    int side, latent_channels, latent_side; /* 0: no VAE is loaded */
    int n_tokens, text_dim;
    int vocabulary; /* ids are 0..vocabulary - 1 */
    double scaling_factor;
} EncoderShape;

typedef struct Encoder Encoder;

int encoder_open(Device *device, const EncoderOptions *options, Encoder **ret, Error *err);
/* Checks whether encoder_open() would accept the model, and reads for that only its configs and its weights'
 * headers. */
int encoder_look(const EncoderOptions *options, EncoderShape *ret, Error *err);
Encoder *encoder_free(Encoder *encoder);
DEFINE_CLEANUP(Encoder, encoder_free)
const EncoderShape *encoder_shape(const Encoder *encoder);
/* Returns a hash over every tensor that is used, under its present name and as fp32, and over the values of both
 * configs on which results depend. So old names in a file, weights stored as halves, and the order in a file do not
 * matter. */
Hash encoder_weights_hash(const Encoder *encoder);

/* Encodes n <= batch samples; the rest of the batch is filled with zeros. pixels: n x side x side x 3; ids: n x
 * n_tokens. latents: n x latent_channels x latent_side x latent_side (NCHW), text: n x n_tokens x text_dim. Either
 * pixels and latents or ids and text may be NULL: that part is then not computed. */
int encoder_run(Encoder *encoder, int n, const uint8_t *pixels, const int32_t *ids,
                uint16_t *latents, uint16_t *text, Error *err);
