/* SPDX-License-Identifier: Apache-2.0 */
/* test-shapes.c - shapes that do not fit are refused with file and key; shapes that fit are accepted. */
#include "base/test/testing.h"

#include "protocol/shapes.h"

#include <string.h>

static const UnetConfig good_config = {.in_channels = 4,
                                       .out_channels = 4,
                                       .n_levels = 2,
                                       .block_out_channels = {32, 64},
                                       .layers_per_block = 1,
                                       .heads = {2, 4},
                                       .cross_attention_dim = 64,
                                       .norm_num_groups = 8};
static const DatasetShape good_data = {4, 16, 24, 77, 64};

static void check(const UnetConfig *config, const DatasetShape *data, int64_t grain,
                  const char *says)
{
    const Job job = {.model = {.config_uri = (char[]){"/a/unet.json"}}};
    Error err = ERROR_INIT;
    int r = shapes_check(&job, config, data, grain, &err);
    if (!says) {
        assert_int_equal(r, 0);
        return;
    }
    assert_int_equal(r, -EINVAL);
    assert_non_null(strstr(err.text, says));
}

static void test_network_and_data(void **state)
{
    (void)state;
    check(&good_config, &good_data, 4096, NULL);
    static const struct {
        int in, out, text;
        const char *says;
    } cases[] = {
        {4, 8, 64, "/a/unet.json: out_channels: 8, but what is predicted has the in_channels 4"},
        {4, 3, 64, "/a/unet.json: out_channels: 3"},
        {8, 8, 64, "/a/unet.json: in_channels: 8, but the data's latents have 4"},
        {4, 4, 65, "/a/unet.json: cross_attention_dim 65: the data have 64 text dimensions"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        UnetConfig config = good_config;
        config.in_channels = cases[i].in;
        config.out_channels = cases[i].out;
        config.cross_attention_dim = cases[i].text;
        check(&config, &good_data, 1, cases[i].says);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    UnetConfig config = good_config;
    DatasetShape data = good_data;
    data.width = 0;
    check(&config, &data, 1, "data: latents of 4x16x0");
    data = (DatasetShape){4, 1 << 16, 1 << 16, 77, 64};
    check(&config, &data, 4096, "train.grain: 4096 samples of 65536x65536");
    data = (DatasetShape){4, 16, 24, 1 << 16, 64};
    config.block_out_channels[1] = 1 << 16;
    check(&config, &data, 4096, "more than any machine has");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network_and_data),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
