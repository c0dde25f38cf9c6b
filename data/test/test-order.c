/* SPDX-License-Identifier: Apache-2.0 */
/* test-order.c - the order as a permutation, its mixing in closed form, and the frozen values that every checkpoint
 * relies on. */
#include "data/order.h"

#include "base/test/testing.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns how many of a node's first t positions belong to its left child: round(t * left_part / total). */
static uint64_t split_count(const OrderNode *node, uint64_t t)
{
    uint64_t whole = t / node->total, rest = t % node->total;
    return whole * node->left_part + (rest * node->left_part + node->total / 2) / node->total;
}

/* Returns how many of the first t positions of the tree under `at` belong to the stream of the leaf; -1 if the leaf is
 * not in that tree. */
static int64_t count_under(const Order *order, int32_t at, int32_t leaf, uint64_t t)
{
    if (at < 0)
        return at == leaf ? (int64_t)t : -1;
    const OrderNode *node = &order->nodes[at];
    uint64_t left = split_count(node, t);
    int64_t n = count_under(order, node->left, leaf, left);
    return n >= 0 ? n : count_under(order, node->right, leaf, t - left);
}

/* Returns how many of the first n_positions positions belong to a stream, computed from the tree and not with
 * order_at(). */
static int64_t count_of(const Order *order, size_t stream, int64_t n_positions)
{
    assert(stream < order->n_streams && n_positions >= 0);
    int64_t n = count_under(order, order->root, ~(int32_t)stream, (uint64_t)n_positions);
    return MAX(n, 0); /* a stream without a proportion is not in the tree */
}

static Order order_of_one(int64_t n, int64_t unit, int64_t window, uint64_t seed)
{
    OrderStream stream = {.n_samples = n, .unit = unit, .proportion = 1};
    Order order;
    assert_int_equal(order_init(&stream, 1, seed, window, &order), 0);
    return order;
}

/* Checks that passes 0, 1 and 2 contain each sample exactly once. */
static void check_passes(int64_t n, int64_t unit, int64_t window, uint64_t seed)
{
    Order order = order_of_one(n, unit, window, seed);
    uint8_t *seen = malloc((size_t)n);
    assert_non_null(seen);
    for (int64_t pass = 0; pass < 3; pass++) {
        memset(seen, 0, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            OrderSample s = order_at(&order, pass * n + i);
            if (s.stream != 0 || s.pass != pass || s.sample < 0 || s.sample >= n || seen[s.sample])
                fail_msg("n %lld, unit %lld, window %lld: position %lld gives %d, %lld, %lld",
                         (long long)n, (long long)unit, (long long)window,
                         (long long)(pass * n + i), s.stream, (long long)s.pass,
                         (long long)s.sample);
            seen[s.sample] = 1;
        }
    }
    free(seen);
}

static void every_pass_is_a_permutation(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1,    2,    3,    4,     5,     7,    8,    9,    15,
                                    16,   17,   31,   32,    33,    63,   64,   65,   127,
                                    128,  129,  255,  256,   257,   1000, 1023, 1024, 1025,
                                    4095, 4096, 4097, 65535, 65536, 65537};
    static const int64_t units[] = {1, 2, 3, 7, 64, 404, 100000};
    static const int64_t windows[] = {1, 2, 5, 64, 1000, INT64_C(1) << 40};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
        for (size_t u = 0; u < ELEMENTSOF(units); u++)
            for (size_t w = 0; w < ELEMENTSOF(windows); w++)
                if (sizes[i] < 5000 || (u % 3 == 1 && w >= 4))
                    check_passes(sizes[i], units[u], windows[w], i * 100 + u * 10 + w);
}

static void whole_units_fill_a_window(void **state)
{
    (void)state;
    /* With 100 units of 50 and windows of 500, a window touches 10 units, or 11 units and the short unit. */
    for (int64_t n = 4990; n <= 5000; n += 5) {
        Order order = order_of_one(n, 50, 500, 3);
        for (int64_t first = 0; first < n; first += 500) {
            bool touched[100] = {false};
            int n_touched = 0;
            for (int64_t i = first; i < MIN(first + 500, n); i++) {
                int64_t unit = order_at(&order, i).sample / 50;
                n_touched += !touched[unit];
                touched[unit] = true;
            }
            assert_true(n_touched <= (n == 5000 ? 10 : 12));
        }
    }
}

/* In a random permutation, the mean distance between neighbours is n/3, and there is about 1 fixed point. */
static void order_looks_random(void **state)
{
    (void)state;
    enum { N = 100000 };
    for (uint64_t seed = 0; seed < 8; seed++) {
        Order order = order_of_one(N, 1, N, seed);
        double distance = 0;
        int fixed = 0;
        int64_t before = order_at(&order, 0).sample;
        for (int64_t i = 1; i < N; i++) {
            int64_t sample = order_at(&order, i).sample;
            distance += (double)llabs(sample - before);
            fixed += sample == i;
            before = sample;
        }
        assert_true(fabs(distance / N - N / 3.0) < 0.02 * N);
        assert_true(fixed < 10);
    }
    /* Passes and seeds give different orders: two orders agree in about one place. */
    Order a = order_of_one(N, 1, N, 1), b = order_of_one(N, 1, N, 2);
    int same_seed = 0, same_pass = 0;
    for (int64_t i = 0; i < N; i++) {
        same_seed += order_at(&a, i).sample == order_at(&b, i).sample;
        same_pass += order_at(&a, i).sample == order_at(&a, N + i).sample;
    }
    assert_true(same_seed < 10 && same_pass < 10);
}

static void mixing_keeps_proportions_and_counts(void **state)
{
    (void)state;
    static const double sets[][6] = {
        {1, 0, 0, 0, 0, 0},    {0.5, 0.5, 0, 0, 0, 0},
        {1, 2, 3, 0, 0, 0},    {0.9, 0.05, 0.05, 0, 0, 0},
        {1e-6, 1, 0, 0, 0, 0}, {0.1, 0.2, 0.3, 0.15, 0.05, 0.2},
        {1, 1, 1, 1, 1, 1},    {3.14159, 2.71828, 1.41421, 1e-3, 0.5772, 1.7320},
        {0, 0, 1, 0, 0, 1},
    };
    enum { POSITIONS = 40000 };
    for (size_t k = 0; k < ELEMENTSOF(sets); k++) {
        OrderStream streams[6];
        for (size_t i = 0; i < 6; i++)
            streams[i] = (OrderStream){.n_samples = sets[k][i] > 0 ? 17 + (int64_t)i * 1000 : 0,
                                       .unit = 10,
                                       .proportion = sets[k][i]};
        Order order;
        assert_int_equal(order_init(streams, 6, k, 64, &order), 0);
        uint64_t sum = 0;
        for (size_t i = 0; i < 6; i++)
            sum += order.parts[i];
        assert_true(sum == UINT64_C(1) << 32);

        int64_t counts[6] = {0};
        for (int64_t p = 0; p < POSITIONS; p++) {
            OrderSample s = order_at(&order, p);
            /* Each stream's samples are used in turn: no sample is dropped or repeated. */
            assert_int_equal(s.pass, counts[s.stream] / streams[s.stream].n_samples);
            counts[s.stream]++;
            if (p % 97 != 0 && p > 200)
                continue;
            for (size_t i = 0; i < 6; i++) {
                assert_int_equal(count_of(&order, i, p + 1), counts[i]);
                double wanted = (double)order.parts[i] * 0x1p-32 * (double)(p + 1);
                assert_true(fabs((double)counts[i] - wanted) <= 1.5);
            }
        }
    }
}

static int init_with(const double *proportions, size_t n, Order *ret)
{
    OrderStream streams[ORDER_STREAMS_MAX];
    for (size_t i = 0; i < n; i++)
        streams[i] = (OrderStream){.n_samples = 100, .unit = 10, .proportion = proportions[i]};
    return order_init(streams, n, 1, 64, ret);
}

/* The parts that remain go to the largest remainders, one each; of equal remainders, the earlier stream gets the
 * part. */
static void parts_are_dealt_by_largest_remainder(void **state)
{
    (void)state;
    static const double equal[7] = {1, 1, 1, 1, 1, 1, 1}; /* 2^32 = 7 * 613566756 + 4 */
    static const double last[3] = {2, 2, 3};              /* remainders 2/7, 2/7, 3/7 */
    Order order;
    assert_int_equal(init_with(equal, 7, &order), 0);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(order.parts[i], 613566756 + (i < 4));
    assert_int_equal(init_with(last, 3, &order), 0);
    static const uint64_t wanted[3] = {1227133513, 1227133513, 1840700270};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(order.parts[i], wanted[i]);
}

/* If two cuts make the halves equally uneven, the earlier cut is used. */
static void a_tree_of_two_equal_cuts_takes_the_earlier(void **state)
{
    (void)state;
    static const double mirrored[3] = {1, 2, 1};
    Order order;
    assert_int_equal(init_with(mirrored, 3, &order), 0);
    assert_true(order.root >= 0);
    assert_int_equal(order.nodes[order.root].left, ~0);
    assert_int_equal(order.nodes[order.root].left_part, 1 << 30);
}

static void proportions_have_bounds(void **state)
{
    (void)state;
    const double bad[][2] = {{-1, 2},  {2, -1},       {-0x1p-400, 1}, {0, 0},
                             {NAN, 1}, {INFINITY, 1}, {0x1.1p500, 1}, {0x1p-501, 0}};
    const double good[][2] = {{0x1p500, 0x1p500}, {0x1p-500, 0}, {0x1p-501, 0x1p-501}, {-0.0, 1}};
    Order order;
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(init_with(bad[i], 2, &order), -EINVAL);
    for (size_t i = 0; i < ELEMENTSOF(good); i++)
        assert_int_equal(init_with(good[i], 2, &order), 0);
}

/* Each split of the tree stays within half a sample of its proportion, from the first position on. */
static void two_streams_are_within_half_a_sample(void **state)
{
    (void)state;
    for (int tenths = 1; tenths < 10; tenths++) {
        OrderStream streams[2] = {{1000, 10, tenths}, {1000, 10, 10 - tenths}};
        Order order;
        assert_int_equal(order_init(streams, 2, 1, 64, &order), 0);
        for (int64_t n = 0; n < 5000; n++)
            assert_true(fabs((double)count_of(&order, 0, n) - (double)n * tenths / 10) <=
                        0.5 + 1e-5);
    }
}

static void each_pass_of_a_mixed_stream_is_whole(void **state)
{
    (void)state;
    OrderStream streams[3] = {{37, 5, 0.3}, {100, 7, 0.6}, {11, 20, 0.1}};
    Order order;
    assert_int_equal(order_init(streams, 3, 9, 16, &order), 0);
    uint8_t seen[3][100][100] = {0};
    for (int64_t p = 0; p < 3000; p++) {
        OrderSample s = order_at(&order, p);
        assert_true(s.pass < 100);
        assert_int_equal(seen[s.stream][s.pass][s.sample]++, 0);
    }
    for (int s = 0; s < 3; s++)
        for (int pass = 0; pass < (int)(count_of(&order, (size_t)s, 3000) / streams[s].n_samples);
             pass++)
            for (int64_t i = 0; i < streams[s].n_samples; i++)
                assert_int_equal(seen[s][pass][i], 1);
}

static void far_positions_are_as_good_as_near_ones(void **state)
{
    (void)state;
    OrderStream streams[2] = {{1000000007, 404, 0.75}, {333333, 100, 0.25}};
    Order order;
    assert_int_equal(order_init(streams, 2, 5, 262144, &order), 0);
    for (int64_t first = 1; first < INT64_C(1) << 55; first *= 13) {
        int64_t before[2] = {count_of(&order, 0, first), count_of(&order, 1, first)};
        assert_int_equal(before[0] + before[1], first);
        for (int64_t p = first; p < first + 50; p++) {
            OrderSample s = order_at(&order, p);
            assert_int_equal(s.pass, before[s.stream] / streams[s.stream].n_samples);
            assert_in_range(s.sample, 0, streams[s.stream].n_samples - 1);
            before[s.stream]++;
        }
    }
}

static void bad_streams_are_refused(void **state)
{
    (void)state;
    Order order;
    OrderStream good = {10, 1, 1};
    assert_int_equal(order_init(&good, 0, 1, 1, &order), -EINVAL);
    assert_int_equal(order_init(&good, 1, 1, 0, &order), -EINVAL);
    OrderStream bad[][2] = {{{0, 1, 1}, {10, 1, 1}},
                            {{10, 0, 1}, {10, 1, 1}},
                            {{10, 1, -1}, {10, 1, 1}},
                            {{10, 1, (double)NAN}, {10, 1, 1}},
                            {{10, 1, (double)INFINITY}, {10, 1, 1}},
                            {{10, 1, 0}, {10, 1, 0}},
                            {{10, 1, 1e-12}, {10, 1, 1}}};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(order_init(bad[i], 2, 1, 1, &order), -EINVAL);
    OrderStream many[ORDER_STREAMS_MAX + 1];
    for (size_t i = 0; i < ELEMENTSOF(many); i++)
        many[i] = (OrderStream){(int64_t)i + 1, 3, 1.0 + (double)i};
    assert_int_equal(order_init(many, ELEMENTSOF(many), 1, 1, &order), -EINVAL);
    assert_int_equal(order_init(many, ORDER_STREAMS_MAX, 1, 1, &order), 0);
    for (int64_t p = 0, sum = 0; p < 3000; p += 100, sum = 0) {
        for (size_t i = 0; i < ORDER_STREAMS_MAX; i++)
            sum += count_of(&order, i, p);
        assert_int_equal(sum, p);
    }
}

/* Values that were recorded once. A change here would make every old checkpoint resume on other samples: a new order
 * needs a new ORDER_ALGORITHM. */
static void the_order_is_frozen(void **state)
{
    (void)state;
    OrderStream streams[3] = {{1000000000, 404, 0.7}, {8121, 128, 0.2}, {65537, 512, 0.1}};
    Order order;
    assert_int_equal(order_init(streams, 3, 17, 262144, &order), 0);
    static const struct {
        int64_t position;
        int stream;
        int64_t pass, sample;
    } golden[] = {
        {0, 0, 0, 890489408},
        {1, 1, 0, 280},
        {2, 0, 0, 491569890},
        {3, 0, 0, 496357934},
        {4, 2, 0, 7198},
        {5, 0, 0, 470230787},
        {6, 0, 0, 892716148},
        {7, 0, 0, 430614194},
        {8, 1, 0, 2397},
        {9, 0, 0, 687487264},
        {10, 0, 0, 882256089},
        {11, 1, 0, 4244},
        {99, 0, 0, 674730129},
        {1000, 0, 0, 861462811},
        {262144, 2, 0, 49837},
        {262145, 0, 0, 495533119},
        {40604, 2, 0, 59676},
        {40605, 0, 0, 303443861},
        {123456789, 0, 0, 102594278},
        {1000000000, 0, 0, 215530994},
        {1428571428, 1, 35182, 113},
        {1428571429, 0, 1, 513338939},
        {99999999999, 1, 2462750, 3227},
        {1234567890123456, 0, 864197, 908651443},

    };
    for (size_t i = 0; i < ELEMENTSOF(golden); i++) {
        OrderSample s = order_at(&order, golden[i].position);
        assert_int_equal(s.stream, golden[i].stream);
        assert_int_equal(s.pass, golden[i].pass);
        assert_int_equal(s.sample, golden[i].sample);
    }
    assert_int_equal(ORDER_ALGORITHM, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_is_a_permutation),
        cmocka_unit_test(whole_units_fill_a_window),
        cmocka_unit_test(order_looks_random),
        cmocka_unit_test(mixing_keeps_proportions_and_counts),
        cmocka_unit_test(parts_are_dealt_by_largest_remainder),
        cmocka_unit_test(a_tree_of_two_equal_cuts_takes_the_earlier),
        cmocka_unit_test(proportions_have_bounds),
        cmocka_unit_test(two_streams_are_within_half_a_sample),
        cmocka_unit_test(each_pass_of_a_mixed_stream_is_whole),
        cmocka_unit_test(far_positions_are_as_good_as_near_ones),
        cmocka_unit_test(bad_streams_are_refused),
        cmocka_unit_test(the_order_is_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
