/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h - a fixed latent codec, 3 x H x W pictures <-> 4 x H/8 x W/8 latents, that STANDS IN FOR THE VAE in the demo.
 *
 * It is not Stable Diffusion's autoencoder and learns nothing. An orthonormal transform (opponent colours, then a
 * cosine transform) is applied to each 8 x 8 block of pixels. Four coefficients are kept: the mean of luma, the means
 * of two colour differences, and luma's first vertical wave. Each is shifted and scaled to about mean 0 and standard
 * deviation 1 over the demo's pictures, as a VAE's scaled latents are. Decoding gives a coarse picture; encoding that
 * picture gives the same latents.
 *
 * Errors: none. Threads: any; pure.
 * Ownership: the caller's buffers.
 * Units:     pixels in [-1, 1], planes of R, G, B; latents in planes. Heights and widths are those of the picture, and
 *            multiples of CODEC_BLOCK.
 */
#pragma once

#include "base/macro.h"

enum { CODEC_BLOCK = 8, CODEC_CHANNELS = 4 };

void codec_encode(const float *pixels, int height, int width, float *ret_latents);
/* Pixels may exceed [-1, 1] a little: clamp them before display. */
void codec_decode(const float *latents, int height, int width, float *ret_pixels);
