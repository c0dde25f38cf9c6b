/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - a verb of sdtrainer: `sample --job F --out grid.png`, a DDIM grid from the newest EMA weights.
 *
 * Ownership: none. Units: as its --help says. Threads: the main thread.
 * Errors:    exit codes (exit-code.h); the text goes to standard error.
 */
#pragma once

int verb_sample(int argc, char **argv);
