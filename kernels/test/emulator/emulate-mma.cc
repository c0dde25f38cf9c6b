/* SPDX-License-Identifier: Apache-2.0 */
/* emulate-mma.cc - the operations of mma.cuh that the emulator performs for all lanes of a warp at once. */
#include "kernels/cuda/kernels/mma.cuh"

#include "kernels/test/emulator/emulated.h"

#include <cstring>

namespace emulate
{
namespace
{
const MmaModel *model = &mma_model_card;

enum { ROWS = 16, COLUMNS = 8 };

/* Returns the lower (0) or upper (1) half of a word. */
uint16_t half_of(uint32_t word, int half) { return (uint16_t)(word >> 16 * half); }
} // namespace

void mma(void *const lanes[WARP])
{
    MmaFactor a[ROWS][MMA_K], b[COLUMNS][MMA_K];
    for (int i = 0; i < WARP; i++) {
        const MmaLane *lane = (const MmaLane *)lanes[i];
        const int g = i / 4, t = i % 4;
        for (int half = 0; half < 2; half++) {
            for (int word = 0; word < 4; word++)
                a[g + word % 2 * 8][2 * t + half + word / 2 * 8] =
                    mma_factor(half_of(lane->a.at[word], half));
            for (int word = 0; word < 2; word++)
                b[g][2 * t + half + word * 8] = mma_factor(half_of(lane->b.at[word], half));
        }
    }
    for (int i = 0; i < WARP; i++) {
        MmaLane *lane = (MmaLane *)lanes[i];
        const int g = i / 4, t = i % 4;
        for (int k = 0; k < 4; k++)
            lane->sums.at[k] =
                mma_model_sum(model, a[g + k / 2 * 8], b[2 * t + k % 2], lane->sums.at[k]);
    }
}

void load_matrices(void *const lanes[WARP])
{
    for (int i = 0; i < WARP; i++) {
        MatricesLane *lane = (MatricesLane *)lanes[i];
        const int g = i / 4, t = i % 4;
        assert((uintptr_t)lane->row % 16 == 0); /* a GPU traps otherwise */
        for (int matrix = 0; matrix < 4; matrix++) {
            uint16_t element[2];
            for (int half = 0; half < 2; half++) {
                const int row = lane->turned ? 2 * t + half : g,
                          at = lane->turned ? g : 2 * t + half;
                element[half] = ((const MatricesLane *)lanes[8 * matrix + row])->row[at].bits;
            }
            lane->words[matrix] = (uint32_t)element[1] << 16 | element[0];
        }
    }
}
} // namespace emulate

extern "C" void emulated_mma_model(const MmaModel *model) { emulate::model = model; }
