/* SPDX-License-Identifier: Apache-2.0 */
/* test-cuda-plans.c - tests plan sets: their text, the folder where they are found, and the device that uses them. */
#include "kernels/cuda/plans/plans.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "kernels/cuda/module/compute.h"
#include "kernels/test/emulator/emulated.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MACHINE                                                                                    \
    "\"architecture\":\"sm_90\",\"cublaslt\":130200,\"cudnn\":91900,\"device\":\"NVIDIA H200\""
#define ALGORITHM                                                                                  \
    "{\"cluster_shape\":2,\"custom\":0,\"id\":66,\"inner_shape\":0,\"reduction\":0,\"split_k\":1," \
    "\"stages\":36,\"swizzling\":0,\"tile\":20}"
#define LINEAR "\"linear bf16 77x1024->320 forward\":{\"algorithm\":" ALGORITHM ",\"workspace\":64}"
#define OPAQUE(digits)                                                                             \
    "\"linear a\":{\"algorithm\":{\"cluster_shape\":2,\"custom\":0,\"id\":66,\"inner_shape\":0,"   \
    "\"opaque\":\"" digits "\",\"reduction\":0,\"split_k\":1,\"stages\":36,\"swizzling\":0,"       \
    "\"tile\":20},\"workspace\":64}"
#define DIGITS_32 "0123456789abcdef00ffeeddccbbaa99"
#define DIGITS_96 DIGITS_32 DIGITS_32 DIGITS_32
#define CONV                                                                                       \
    "\"conv bf16 n32 64x64 320->320 k3 s1 forward\":{\"engine\":62,\"knobs\":{\"12\":3,\"7\":-1}," \
    "\"workspace\":0}"
#define PLAIN "\"conv a\":{\"engine\":62,\"knobs\":{},\"variant\":\"plain\",\"workspace\":0}"
#define SET(operations) "{" MACHINE ",\"operations\":{" operations "},\"sms\":132,\"version\":1}"

static const CudaMachine h200 = {"sm_90", "NVIDIA H200", 132, 91900, 130200};

static CudaPlans *parse(const char *text)
{
    CudaPlans *plans;
    Error err = ERROR_INIT;
    if (cuda_plans_parse("set", text, &plans, &err) < 0)
        fail_msg("%s", err.text);
    return plans;
}

static void text_is_canonical(void **unused)
{
    (void)unused;
    static const char *const sets[] = {SET(""),
                                       SET(CONV "," LINEAR),
                                       "{\"plain\":true,\"version\":1}",
                                       "{" MACHINE ",\"operations\":{" CONV
                                       "},\"sms\":132,\"tuned\":false,\"version\":1}",
                                       SET("\"attention a\":{\"own_kernels\":true}," PLAIN),
                                       SET(OPAQUE(DIGITS_96 DIGITS_32)),
                                       SET("\"linear a\":{\"own_kernels\":true}"),
                                       SET("\"conv a\":{\"own_kernels\":true}")};
    for (size_t i = 0; i < ELEMENTSOF(sets); i++) {
        CudaPlans *plans = parse(sets[i]);
        _cleanup_free_ char *text = cuda_plans_text(plans);
        assert_string_equal(text, sets[i]);
        assert_int_equal(cuda_plans_plain(plans), i == 2);
        plans = cuda_plans_free(plans);
    }
    CudaPlans *plans = parse("{ \"version\": 1, \"sms\": 132, \"operations\": { }, " MACHINE " }");
    _cleanup_free_ char *text = cuda_plans_text(plans);
    assert_string_equal(text, sets[0]);
    plans = cuda_plans_free(plans);
}

static void entries_are_taken_and_given(void **unused)
{
    (void)unused;
    const json_t *entry;
    Error err = ERROR_INIT;
    CudaPlans *plans = parse(SET(LINEAR));
    assert_int_equal(cuda_plans_take(plans, "linear bf16 77x1024->320 forward", &entry, &err), 0);
    assert_int_equal(json_integer_value(json_object_get(entry, "workspace")), 64);
    assert_int_equal(cuda_plans_take(plans, "linear bf16 78x1024->320 forward", &entry, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "linear bf16 78x1024->320 forward"));
    assert_non_null(strstr(err.text, "sdtrainer plan"));

    CudaPlans *copy = cuda_plans_new(&h200);
    cuda_plans_give(copy, "linear bf16 77x1024->320 forward", json_integer(1));
    assert_int_equal(cuda_plans_take(plans, "linear bf16 77x1024->320 forward", &entry, &err), 0);
    cuda_plans_give(copy, "linear bf16 77x1024->320 forward", json_deep_copy(entry));
    _cleanup_free_ char *text = cuda_plans_text(copy);
    assert_string_equal(text, SET(LINEAR));
    copy = cuda_plans_free(copy);
    plans = cuda_plans_free(plans);
}

static void bad_sets_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "set: line 1"},
        {"[]", "expected a JSON object"},
        {"{" MACHINE ",\"operations\":{" LINEAR, "set: line 1"}, /* the text is incomplete */
        {"{" MACHINE ",\"operations\":{},\"sms\":132}", "version: missing"},
        {"{" MACHINE ",\"operations\":{},\"sms\":132,\"version\":2}", "version: 2"},
        {"{" MACHINE ",\"operations\":{},\"sms\":132,\"version\":\"1\"}",
         "version: expected an integer, got \"1\""},
        {"{" MACHINE ",\"operations\":[],\"sms\":132,\"version\":1}",
         "operations: expected an object, got []"},
        {"{" MACHINE ",\"operations\":{},\"sms\":0,\"version\":1}", "sms: 0"},
        {"{" MACHINE ",\"operations\":{},\"sms\":132,\"version\":1,\"knobs\":1}",
         "knobs: unknown key"},
        {"{" MACHINE ",\"sms\":132,\"version\":1}", "operations: missing"},
        {"{" MACHINE ",\"operations\":{},\"version\":1}", "sms: missing"},
        {"{\"plain\":false,\"version\":1}", "plain: false"},
        {"{\"plain\":true,\"operations\":{},\"version\":1}", "operations: unknown key"},
        {SET(LINEAR "," LINEAR), "duplicate"},
        {SET("\"pool bf16 8\":{\"workspace\":0}"),
         "operations.pool bf16 8: no kind of operation is called pool"},
        {SET("\"linearity\":{\"workspace\":0}"), "no kind of operation is called linearity"},
        {SET("\"linear a\":1"), "operations.linear a: expected an object"},
        {SET("\"linear a\":{\"workspace\":0}"), "operations.linear a: algorithm: missing"},
        {SET("\"linear a\":{\"algorithm\":" ALGORITHM "}"), "linear a: workspace: missing"},
        {SET("\"linear a\":{\"algorithm\":" ALGORITHM ",\"workspace\":-1}"), "workspace: -1"},
        {SET("\"linear a\":{\"algorithm\":" ALGORITHM ",\"workspace\":0,\"engine\":1}"),
         "linear a: engine: unknown key"},
        {SET("\"linear a\":{\"algorithm\":{\"id\":1.5},\"workspace\":0}"),
         "algorithm.id: expected an integer, got 1.5"},
        {SET("\"linear "
             "a\":{\"algorithm\":{\"cluster_shape\":2,\"custom\":0,\"id\":66,\"inner_shape\":0,"
             "\"reduction\":1,\"split_k\":4,\"stages\":36,\"swizzling\":0,\"tile\":20},"
             "\"workspace\":0}"),
         "algorithm.reduction: 1 is neither"},
        {SET("\"conv a\":{\"engine\":62,\"knobs\":{\"x\":1},\"workspace\":0}"),
         "knobs.x: is not the number of a knob"},
        {SET("\"conv a\":{\"engine\":62,\"knobs\":{\"1\":\"1\"},\"workspace\":0}"),
         "knobs.1: expected an integer, got \"1\""},
        {SET("\"conv a\":{\"engine\":-1,\"knobs\":{},\"workspace\":0}"), "engine: -1"},
        {SET("\"conv a\":{\"engine\":1,\"workspace\":0}"), "knobs: missing"},
        {SET("\"conv a\":{\"engine\":1,\"images\":1,\"knobs\":{},\"workspace\":0}"),
         "images: unknown key"},
        {SET("\"attention a\":{\"engine\":1,\"images\":0,\"knobs\":{},\"workspace\":0}"),
         "images: 0"},
        {SET("\"attention a\":{\"engine\":1,\"images\":1,\"workspace\":0}"), "knobs: missing"},
        {SET("\"attention a\":{\"engine\":1,\"knobs\":{}}"), "workspace: missing"},
        {SET("\"attention a\":{\"engine\":1,\"knobs\":{},\"padding_mask\":false,\"workspace\":0}"),
         "padding_mask: false"},
        {SET("\"attention a\":{\"engine\":1,\"knobs\":{},\"padding_mask\":1,\"workspace\":0}"),
         "padding_mask"},
        {SET("\"attention a\":{\"own_kernels\":false}"), "own_kernels: false"},
        {SET("\"attention a\":{\"own_kernels\":true,\"workspace\":0}"), "workspace: unknown key"},
        {SET("\"conv a\":{\"own_kernels\":false}"), "own_kernels: false"},
        {SET("\"conv a\":{\"own_kernels\":true,\"workspace\":0}"), "workspace: unknown key"},
        {SET("\"conv a\":{\"engine\":1,\"knobs\":{},\"variant\":\"fused\",\"workspace\":0}"),
         "conv a: variant: fused: this module has only the plain one"},
        {SET("\"conv a\":{\"engine\":1,\"knobs\":{},\"variant\":\"fast\",\"workspace\":0}"),
         "variant: fast is neither plain nor fused"},
        {SET("\"conv a\":{\"engine\":1,\"knobs\":{},\"variant\":1,\"workspace\":0}"),
         "variant: expected"},
        {SET("\"linear a\":{\"algorithm\":" ALGORITHM ",\"variant\":\"fused\",\"workspace\":0}"),
         "linear a: variant: fused"},
        {SET(OPAQUE(DIGITS_96)),
         "linear a: algorithm.opaque: 96 characters, not the 128 of 64 bytes"},
        {SET(OPAQUE(DIGITS_96 DIGITS_32 "00")), "algorithm.opaque: 130 characters"},
        {SET(OPAQUE(DIGITS_96 "0123456789ABCDEF00ffeeddccbbaa99")),
         "algorithm.opaque: not only lower-case hexadecimal digits"},
        {SET(OPAQUE(DIGITS_96 "0x23456789abcdef00ffeeddccbbaa99")), "algorithm.opaque: not"},
        {SET("\"linear a\":{\"own_kernels\":false}"), "own_kernels: false"},
        {SET("\"linear a\":{\"own_kernels\":true,\"workspace\":0}"), "workspace: unknown key"},
        {SET("\"product a\":{\"own_kernels\":true}"), "product a: "},
        {SET("\"product a\":{\"algorithm\":" ALGORITHM ",\"variant\":\"plain\",\"workspace\":0}"),
         "variant: unknown key"},
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        CudaPlans *plans = NULL;
        Error err = ERROR_INIT;
        assert_int_equal(cuda_plans_parse("set", bad[i].text, &plans, &err), -EINVAL);
        assert_null(plans);
        if (!strstr(err.text, bad[i].says) || strncmp(err.text, "set", 3) != 0)
            fail_msg("%s: said %s, not %s", bad[i].text, err.text, bad[i].says);
    }
}

static void too_much_is_refused(void **unused)
{
    (void)unused;
    CudaPlans *plans = NULL;
    Error err = ERROR_INIT;
    _cleanup_free_ char *blanks = memory_zeroed(DEVICE_PLANS_MAX + 2, 1);
    memset(blanks, ' ', DEVICE_PLANS_MAX + 1);
    memcpy(blanks, "{\"plain\":true,\"version\":1}", 26);
    assert_int_equal(cuda_plans_parse("set", blanks, &plans, &err), -EINVAL);
    assert_non_null(strstr(err.text, "more than the 4194304"));
    blanks[DEVICE_PLANS_MAX] = '\0';
    assert_int_equal(cuda_plans_parse("set", blanks, &plans, &err), 0);
    plans = cuda_plans_free(plans);

    memset(blanks, '[', DEVICE_PLANS_MAX);
    assert_int_equal(cuda_plans_parse("set", blanks, &plans, &err), -EINVAL);

    _cleanup_free_ char *long_name = memory_format(SET("\"linear %0200d\":{\"workspace\":0}"), 0);
    assert_int_equal(cuda_plans_parse("set", long_name, &plans, &err), -EINVAL);
    assert_non_null(strstr(err.text, "characters"));

    CudaPlans *many = cuda_plans_new(&h200);
    for (int i = 0; i <= CUDA_PLANS_OPERATIONS_MAX; i++) {
        _cleanup_free_ char *name = memory_format("conv %d", i);
        cuda_plans_give(many, name,
                        json_pack("{s:i,s:{},s:i}", "engine", 1, "knobs", "workspace", 0));
    }
    _cleanup_free_ char *text = cuda_plans_text(many);
    assert_int_equal(cuda_plans_parse("set", text, &plans, &err), -EINVAL);
    assert_non_null(strstr(err.text, "more than 4096"));
    many = cuda_plans_free(many);
}

static void plans_are_for_one_machine(void **unused)
{
    (void)unused;
    static const struct {
        CudaMachine machine;
        int r;
        const char *says;
    } cases[] = {
        {{"sm_90", "NVIDIA H200", 132, 91900, 130200}, 0, ""},
        {{"sm_90", "NVIDIA H100 80GB HBM3", 132, 91900, 130200}, 0, ""},
        {{"sm_90", "NVIDIA H100 PCIe", 114, 91900, 130200}, -EINVAL, "H100 PCIe (sm_90, 114)"},
        {{"sm_100", "NVIDIA B200", 132, 91900, 130200}, -EINVAL, "NVIDIA B200"},
        {{"sm_90", "NVIDIA H200", 132, 91901, 130200},
         -EPROTO,
         "cuDNN 91900 and this machine's is 91901"},
        {{"sm_90", "NVIDIA H200", 132, 91900, 130300}, -EPROTO, "cuBLASLt 130200"},
    };
    CudaPlans *plans = parse(SET("")), *plain = parse("{\"plain\":true,\"version\":1}");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        assert_int_equal(cuda_plans_check(plans, &cases[i].machine, &err), cases[i].r);
        if (!strstr(err.text, cases[i].says))
            fail_msg("said %s, not %s", err.text, cases[i].says);
        assert_int_equal(cuda_plans_check(plain, &cases[i].machine, &err), 0);
    }
    plans = cuda_plans_free(plans);
    plain = cuda_plans_free(plain);
}

/* ---- folders ---- */

static char folder[64];

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
}

static int make_folder(void **unused)
{
    (void)unused;
    (void)snprintf(folder, sizeof(folder), "/tmp/test-cuda-plans-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **unused)
{
    (void)unused;
    (void)unsetenv("SDTRAIN_CUDA_PLANS");
    return folder_remove(folder, NULL);
}

#define OTHER                                                                                      \
    "{\"architecture\":\"sm_90\",\"cublaslt\":130200,\"cudnn\":91900,\"device\":\"NVIDIA H100\","

/* Returns the text of the set that cuda_plans_find() finds for an H200. */
static int find(char **ret, Error *err)
{
    CudaPlans *plans;
    int r = cuda_plans_find(folder, &h200, &plans, err);
    if (r < 0)
        return r;
    *ret = cuda_plans_text(plans);
    (void)cuda_plans_free(plans);
    return 0;
}

static void a_set_is_found(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char *text = NULL;
    assert_int_equal(find(&text, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no plans for GPU NVIDIA H200"));

    put("A.json", "cut short");
    put("B.json", OTHER "\"operations\":{},\"sms\":114,\"version\":1}");
    put("C.json", "{\"plain\":true,\"version\":1}");
    put("Z.text", OTHER "\"operations\":{},\"sms\":132,\"version\":1}");
    assert_int_equal(find(&text, &err), -ENOENT);

    assert_int_equal(cuda_plans_look(folder, &h200, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no plans for GPU NVIDIA H200"));
    put("A-9.json", "{\"architecture\":\"sm_90\",\"cublaslt\":1,\"cudnn\":1,\"device\":\"X\","
                    "\"operations\":{},\"sms\":132,\"version\":1}");
    assert_int_equal(find(&text, &err), -ENOENT);
    /* cuda_plans_look() ignores the versions of libraries in a set. */
    assert_int_equal(cuda_plans_look(folder, &h200, &err), 0);

    put("E.json", OTHER "\"operations\":{" CONV "},\"sms\":132,\"version\":1}");
    put("D.json", OTHER "\"operations\":{},\"sms\":132,\"version\":1}");
    assert_int_equal(find(&text, &err), 0);
    assert_string_equal(text, OTHER "\"operations\":{},\"sms\":132,\"version\":1}");
    free(text);

    put("NVIDIA-H200.json", SET(LINEAR));
    assert_int_equal(find(&text, &err), 0);
    assert_string_equal(text, SET(LINEAR));
    free(text);
}

/* A bad set of the GPU's own name is an error: using another set, or none, would silently give other bits. */
static void its_own_bad_set_is_an_error(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char *text = NULL;
    put("D.json", OTHER "\"operations\":{},\"sms\":132,\"version\":1}");
    put("NVIDIA-H200.json", "{" MACHINE ",\"operations\":{" LINEAR);
    assert_int_equal(cuda_plans_look(folder, &h200, &err), 0); /* a bad file counts, too */
    assert_int_equal(find(&text, &err), -EINVAL);
    assert_non_null(strstr(err.text, "NVIDIA-H200.json: line 1"));

    put("NVIDIA-H200.json",
        "{\"architecture\":\"sm_90\",\"cublaslt\":130100,\"cudnn\":91900,"
        "\"device\":\"NVIDIA H200\",\"operations\":{},\"sms\":132,\"version\":1}");
    assert_int_equal(find(&text, &err), -EPROTO);
    assert_non_null(strstr(err.text, "NVIDIA-H200.json: the plans are for cuBLASLt 130100"));

    put("NVIDIA-H200.json", OTHER "\"operations\":{},\"sms\":78,\"version\":1}");
    assert_int_equal(find(&text, &err), -EINVAL);
    assert_non_null(strstr(err.text, "NVIDIA H100 (sm_90, 78 multiprocessors)"));
}

/* ---- devices ---- */

static Device *open_device(DataType type)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = type};
    Device *device;
    Error err = ERROR_INIT;
    if (emulated_device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

static void a_plain_device_has_the_plain_set(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char *text, *numerics;
    static const char plain[] = "{\"plain\":true,\"version\":1}";
    for (int told = 0; told < 2; told++) {
        Device *device = open_device(DATA_BF16);
        if (told)
            assert_int_equal(device_use_plans(device, plain, &err), 0);
        assert_int_equal(device_plans(device, &text), 0);
        assert_string_equal(text, plain);
        free(text);
        assert_int_equal(device_numerics(device, &numerics), 0);
        assert_non_null(strstr(numerics, "\"plans\":"));
        free(numerics);
        device = device_free(device);
    }
    Device *device = open_device(DATA_F32);
    assert_int_equal(device_plans(device, &text), -ENOENT);
    device = device_free(device);

    device = open_device(DATA_BF16);
    assert_int_equal(device_use_plans(device, "{", &err), -EINVAL);
    assert_non_null(strstr(err.text, "plans: line 1"));
    device = device_free(device);

    device = open_device(DATA_F32);
    assert_int_equal(device_use_plans(device, SET(LINEAR), &err), -ENOENT);
    assert_non_null(strstr(err.text, "fp32"));
    device = device_free(device);
}

/* A wait after the failure of a library returns the failure, and so does each later wait. */
static void a_library_that_fails_breaks_the_device(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    Device *device = open_device(DATA_BF16);
    const Fence fence = device_fence(device, LANE_COMPUTE);
    assert_int_equal(device_await(device, fence, 1000000, &err), 0);
    cuda_compute_break(cuda_compute(device), "linear bf16 1x1->1 forward", "cuBLASLt",
                       "out of order");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(device_await(device, fence, 1000000, &err), -EIO);
        assert_string_equal(err.text,
                            "GPU emulator: linear bf16 1x1->1 forward: cuBLASLt: out of order");
        assert_int_equal(device_synchronise(device, &err), -EIO);
        cuda_compute_break(cuda_compute(device), "another one", "cuBLASLt", "again");
    }
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_canonical),
        cmocka_unit_test(entries_are_taken_and_given),
        cmocka_unit_test(bad_sets_are_refused),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(plans_are_for_one_machine),
        cmocka_unit_test_setup_teardown(a_set_is_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(its_own_bad_set_is_an_error, make_folder, remove_folder),
        cmocka_unit_test(a_plain_device_has_the_plain_set),
        cmocka_unit_test(a_library_that_fails_breaks_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
