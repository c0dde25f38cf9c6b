/* SPDX-License-Identifier: Apache-2.0 */
/* emulate.cc - see emulate.h: fibers, their order, barriers. */
#include "kernels/test/emulator/emulate.h"

#include "base/number/bits.h"
#include "base/number/philox.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the emulator switches stacks on x86-64 only"
#endif

/* Saves the callee's registers on the running stack, stores the stack pointer in *save, and continues on the stack
 * `to`. */
extern "C" void emulate_switch(void **save, void *to);
asm(R"(
.text
.globl emulate_switch
.hidden emulate_switch
.type emulate_switch, @function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulate_switch, .-emulate_switch
)");

namespace emulate
{
uint3 thread_index, block_index;
dim3 block_dim, grid_dim;

namespace
{
enum State { READY, AT_WARP, AT_BLOCK, AT_CLUSTER, ENDED, N_STATES };
enum { STACK_BYTES = 64 << 10, SAVED_REGISTERS = 6 };

struct Fiber {
    char *stack; /* NULL: the fiber has not begun, or has ended */
    void *at;    /* the stack pointer while another fiber runs */
    void *fake_stack;
    State state;
    uint3 index, block;
    unsigned rank;         /* the rank of the fiber's block in the cluster */
    uint64_t given, taken; /* the bits that the fiber gives to a shuffle and takes from it */
    unsigned from;
    void *operands;    /* the argument of warp_together() */
    Together together; /* NULL: the fiber is at a shuffle */
};

std::vector<Fiber> fibers; /* all fibers of a cluster, block after block */
/* A new fiber takes the stack that was released last, which is in the cache. In a kernel without barriers all fibers
 * use the same stack. */
std::vector<char *> free_stacks;
std::vector<unsigned> order;
alignas(256) char shared_memory[CLUSTER_MAX][SHARED_MAX];
size_t shared_size;
unsigned block_threads, cluster_blocks;
bool was_read[CLUSTER_MAX]; /* another block read shared_memory[i] after the last cluster barrier */
bool has_ended[CLUSTER_MAX]; /* a thread of block i has ended */
const std::function<void()> *body;
Fiber *running;
void *scheduler; /* the scheduler's stack pointer while a fiber runs */
uint64_t seed, drawn;
uint32_t
    approximation; /* state of the generator for approximate_reciprocal(), which kernels call often */

bool runs_ahead() { return seed == 0 || seed % 2 == 1; }

[[noreturn]] void misuse(const char *what)
{
    fprintf(stderr, "emulated kernel, block %u %u %u: %s\n", block_index.x, block_index.y,
            block_index.z, what);
    abort();
}

#if defined(__SANITIZE_ADDRESS__)
void *scheduler_fake_stack;
const void *scheduler_bottom;
size_t scheduler_bytes;
#endif

/* Sets what the fiber's thread reads about itself. */
void set_running(Fiber *fiber)
{
    running = fiber;
    thread_index = fiber->index;
    block_index = fiber->block;
}

/* Switches to the fiber `next`, or to the scheduler if `next` is NULL. Returns when this fiber is continued. */
void pause(State state, Fiber *next = nullptr)
{
    Fiber *self = running;
    self->state = state;
    if (next)
        set_running(next);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(state == ENDED ? nullptr : &self->fake_stack,
                                   next ? next->stack : scheduler_bottom,
                                   next ? (size_t)STACK_BYTES : scheduler_bytes);
#endif
    emulate_switch(&self->at, next ? next->at : scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(self->fake_stack, nullptr, nullptr);
#endif
}

void fiber_main()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_bytes);
#endif
    (*body)();
    pause(ENDED);
    misuse("an ended thread goes on"); /* the scheduler never chooses an ended fiber */
}

char *take_stack()
{
    if (free_stacks.empty()) {
        void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED)
            misuse("no memory for its stacks");
        return (char *)stack;
    }
    char *stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
}

/* Prepares a fiber whose first resume() enters fiber_main(). Stacks begin at different offsets within a page, because
 * otherwise few of them would fit into the cache. */
void begin(Fiber *fiber)
{
    fiber->stack = take_stack();
    const size_t colour = (size_t)((uintptr_t)fiber->stack / STACK_BYTES % 64) * 128;
    void **top = (void **)(fiber->stack + STACK_BYTES - colour) - 1;
    *top-- = nullptr; /* return address of fiber_main, never used; keeps the stack aligned */
    *top = (void *)fiber_main;
    top -= SAVED_REGISTERS;
    memset(top, 0, SAVED_REGISTERS * sizeof(*top));
    fiber->at = top;
}

/* Runs the fiber. pause_at_warp() may switch from it to other fibers of its warp, without returning here. This function
 * returns when one of these fibers ends (true), or pauses and no other fiber continues (false). */
bool resume(Fiber *fiber)
{
    if (!fiber->stack)
        begin(fiber);
    set_running(fiber);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber->stack, STACK_BYTES);
#endif
    emulate_switch(&scheduler, fiber->at);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
    if (running->state != ENDED)
        return false;
    if (was_read[running->rank])
        misuse("a read of the shared memory of a block that ends, with no barrier between");
    has_ended[running->rank] = true;
    free_stacks.push_back(running->stack);
    running->stack = nullptr;
    return true;
}

/* first: the index of the block of rank 0. */
void prepare(Fiber *fiber, uint3 first, unsigned rank, unsigned number)
{
    fiber->state = READY;
    fiber->index = {number % block_dim.x, number / block_dim.x % block_dim.y,
                    number / (block_dim.x * block_dim.y)};
    fiber->block = {first.x + rank, first.y, first.z};
    fiber->rank = rank;
}

void shuffle_order(std::vector<unsigned> &to, unsigned n)
{
    to.resize(n);
    for (unsigned i = 0; i < n; i++)
        to[i] = i;
    for (unsigned i = n; seed != 0 && i > 1; i--)
        std::swap(to[i - 1], to[philox4x32(seed, 0, drawn++).word[0] % i]);
}

/* Runs the operation that all lanes of the warp have reached. */
void run_together(unsigned first, unsigned end)
{
    void *lanes[WARP];
    if (end - first < WARP)
        misuse("an operation of a warp that the block has not whole");
    for (unsigned i = 0; i < WARP; i++)
        lanes[i] = fibers[first + i].operands;
    fibers[first].together(lanes);
}

/* Makes the warp's lanes ready if all of them wait for the warp. Returns false if a lane runs, has ended or waits
 * elsewhere. */
bool release_warp(unsigned first, unsigned end)
{
    const Together together = fibers[first].together;
    for (unsigned i = first; i < end; i++)
        if (fibers[i].state != AT_WARP)
            return false;
    for (unsigned i = first; i < end; i++)
        if (fibers[i].together != together)
            misuse("some lanes of a warp are at one operation, others at another");
    if (together)
        run_together(first, end);
    for (unsigned i = first; i < end && !together; i++) {
        if (fibers[i].from >= end - first)
            misuse("a shuffle asks for a lane that the block has not");
        fibers[i].taken = fibers[first + fibers[i].from].given;
    }
    for (unsigned i = first; i < end; i++)
        fibers[i].state = READY;
    return true;
}

/* Counts the threads of the fibers [first, end) in each state. */
void count_states(unsigned first, unsigned end, unsigned n[N_STATES])
{
    std::fill_n(n, (unsigned)N_STATES, 0);
    for (unsigned i = first; i < end; i++)
        n[fibers[i].state]++;
}

void set_ready(unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++)
        fibers[i].state = READY;
}

/* Called when no thread of the block is ready. Makes warps ready or, if all threads are at the block's barrier, the
 * whole block. Returns false if the block has ended or waits for its cluster. */
bool release_block(unsigned first, unsigned end)
{
    bool any = false;
    unsigned n[N_STATES];
    for (unsigned i = first; i < end; i += WARP)
        any = release_warp(i, std::min(i + (unsigned)WARP, end)) || any;
    if (any)
        return true;
    count_states(first, end, n);
    if (n[AT_WARP] > 0)
        misuse("some threads of a warp are not at its shuffle");
    if (n[AT_BLOCK] > 0 && n[AT_CLUSTER] > 0)
        misuse("some threads are at the block's barrier, others at the cluster's");
    if (n[AT_BLOCK] > 0 && n[ENDED] > 0)
        misuse("some threads ended before a barrier that others wait at");
    if (n[AT_BLOCK] > 0)
        set_ready(first, end);
    return n[AT_BLOCK] > 0;
}

/* Called when no thread is ready. Makes blocks ready or, if all threads are at the cluster's barrier, the whole
 * cluster. With a seed it makes only one drawn block ready, which then runs ahead of the others as far as barriers
 * allow. */
void release()
{
    const unsigned all = block_threads * cluster_blocks;
    const unsigned drift =
        seed != 0 && cluster_blocks > 1 ? philox4x32(seed, 1, drawn++).word[0] % cluster_blocks : 0;
    bool any = false;
    unsigned n[N_STATES];
    for (unsigned i = 0; i < cluster_blocks && !(any && seed != 0); i++) {
        const unsigned first = (i + drift) % cluster_blocks * block_threads;
        block_index = fibers[first].block;
        any = release_block(first, first + block_threads) || any;
    }
    if (any)
        return;
    count_states(0, all, n);
    if (n[AT_CLUSTER] != all)
        misuse("some threads ended before a barrier of the cluster that others wait at");
    std::fill_n(was_read, (unsigned)CLUSTER_MAX, false);
    set_ready(0, all);
}

/* Returns the fibers [first, end) of a fiber's warp. */
void warp_of(unsigned fiber, unsigned *first, unsigned *end)
{
    const unsigned block = fiber / block_threads * block_threads;
    *first = block + (fiber - block) / WARP * WARP;
    *end = std::min(*first + (unsigned)WARP, block + block_threads);
}

/* Runs the ready threads of a fiber's warp, again and again while they wait only for their own warp. So the warp runs
 * as far ahead of the other warps as it can. */
void run_ahead(unsigned fiber, unsigned *live)
{
    unsigned first, end;
    warp_of(fiber, &first, &end);
    do {
        for (unsigned i = first; i < end; i++)
            if (fibers[i].state == READY)
                *live -= resume(&fibers[i]);
    } while (release_warp(first, end));
}

/* Where warps run ahead, a lane that waits for its warp switches directly to the lane that run_ahead() would choose. To
 * return to the scheduler first would take about as long as most computations between two shuffles. */
void pause_at_warp()
{
    unsigned first, end, next = (unsigned)(running - fibers.data()) + 1;
    if (!runs_ahead())
        return pause(AT_WARP);
    warp_of(next - 1, &first, &end);
    while (next < end && fibers[next].state != READY)
        next++;
    running->state = AT_WARP;
    if (next == end && release_warp(first, end))
        next = first;
    if (next == end || !fibers[next].stack)
        pause(AT_WARP);
    else if (&fibers[next] != running)
        pause(running->state, &fibers[next]);
}

void run_cluster(uint3 first)
{
    const unsigned all = block_threads * cluster_blocks;
    for (unsigned rank = 0; rank < cluster_blocks; rank++) {
        memset(shared_memory[rank], 0xff, shared_size); /* NaN in memory that was never written */
        for (unsigned i = 0; i < block_threads; i++)
            prepare(&fibers[rank * block_threads + i], first, rank, i);
    }
    std::fill_n(was_read, (unsigned)CLUSTER_MAX, false);
    std::fill_n(has_ended, (unsigned)CLUSTER_MAX, false);
    shuffle_order(order, all);
    for (unsigned live = all; live > 0;) {
        bool any = false;
        for (unsigned i : order) {
            if (fibers[i].state != READY)
                continue;
            any = true;
            if (runs_ahead())
                run_ahead(i, &live);
            else
                live -= resume(&fibers[i]);
        }
        if (!any)
            release();
    }
}
} // namespace

void set_seed(uint64_t seed_)
{
    seed = seed_;
    drawn = 0;
    approximation = (uint32_t)seed_;
}

void *shared() { return shared_memory[running->rank]; }

unsigned cluster_rank() { return running->rank; }

unsigned cluster_size() { return cluster_blocks; }

const void *shared_of(const void *mine, size_t n_bytes, unsigned rank)
{
    const size_t at = (size_t)((const char *)mine - shared_memory[running->rank]);
    if (rank >= cluster_blocks)
        misuse("a read of a block that the cluster has not");
    if (at + n_bytes > shared_size)
        misuse("a read of a block's memory that is not shared");
    if (has_ended[rank])
        misuse("a read of the shared memory of a block that ends");
    was_read[rank] = was_read[rank] || rank != running->rank;
    return shared_memory[rank] + at;
}

void launch_clusters(unsigned cluster, dim3 grid, dim3 block, size_t shared_bytes,
                     const std::function<void()> &kernel)
{
    const unsigned n = block.x * block.y * block.z;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    grid_dim = grid;
    block_dim = block;
    block_index = {0, 0, 0};
    if (n < 1 || n > BLOCK_MAX || blocks < 1 || shared_bytes > SHARED_MAX || cluster < 1 ||
        cluster > CLUSTER_MAX || grid.x % cluster != 0 || blocks > UINT32_MAX)
        misuse("a launch beyond what a GPU takes");
    body = &kernel;
    shared_size = shared_bytes;
    block_threads = n;
    cluster_blocks = cluster;
    if (fibers.size() < n * cluster)
        fibers.resize(n * cluster);
    std::vector<unsigned> numbers;
    const unsigned wide = grid.x / cluster;
    shuffle_order(numbers, wide * grid.y * grid.z);
    for (unsigned i : numbers)
        run_cluster({i % wide * cluster, i / wide % grid.y, i / (wide * grid.y)});
}

void launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel)
{
    launch_clusters(1, grid, block, shared_bytes, kernel);
}

void sync_block() { pause(AT_BLOCK); }

void sync_cluster() { pause(AT_CLUSTER); }

unsigned lane()
{
    const uint3 &i = thread_index;
    return (i.x + block_dim.x * (i.y + block_dim.y * i.z)) % WARP;
}

uint64_t shuffle(uint64_t bits, unsigned from)
{
    Fiber *self = running;
    self->given = bits;
    self->from = from;
    self->together = nullptr;
    pause_at_warp();
    return self->taken;
}

void warp_together(void *mine, Together together)
{
    running->operands = mine;
    running->together = together;
    pause_at_warp();
}

void sync_warp() { (void)shuffle(0, 0); }

float approximate_reciprocal(float d)
{
    const float right = 1.0f / d;
    approximation = approximation * 1664525 + 1013904223;
    if (std::isnan(right) || std::isinf(right))
        return right;
    if (std::fabs(right) < FLT_MIN)
        return std::copysign(0.0f, right);
    return float_from_bits(float_bits(right) + (approximation >> 16) % 3 - 1);
}
} // namespace emulate
