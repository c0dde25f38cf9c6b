/* SPDX-License-Identifier: Apache-2.0 */
/* test-dataset-shape.c - shapes are found in columns and samples: from each possible length of raw bytes, and from
 * arrays with their own shape. Latents whose standard deviation is not near 1 are refused. */
#include "data/dataset-shape.h"

#include "base/json/json.h"
#include "data/test/testing-loader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

static MdsColumn column_of(const char *encoding)
{
    MdsColumn column;
    assert_int_equal(mds_column_init("x", encoding, &column, NULL), 0);
    return column;
}

static int observe_text(const char *encoding, size_t n_bytes, DatasetShape *shape, Error *err)
{
    static uint8_t zeros[77 * 1024 * 4 + 8];
    const MdsColumn column = column_of(encoding);
    assert_true(n_bytes <= sizeof(zeros));
    return dataset_observe_text(&column, &(MdsField){zeros, n_bytes}, shape, err);
}

static int observe_latents(const char *encoding, size_t n_bytes, DatasetShape *shape, Error *err)
{
    static uint8_t zeros[1025 * 1025 * 16];
    const MdsColumn column = column_of(encoding);
    assert_true(n_bytes <= sizeof(zeros));
    return dataset_observe_latents(&column, &(MdsField){zeros, n_bytes}, shape, err);
}

static void raw_texts_are_those_of_the_encoders(_unused_ void **state)
{
    static const int widths[] = {1024, 768};
    for (size_t i = 0; i < ELEMENTSOF(widths); i++)
        for (size_t size = 2; size <= 4; size += 2) {
            const size_t n = 77 * (size_t)widths[i] * size;
            DatasetShape shape = {0};
            Error err = ERROR_INIT;
            assert_int_equal(observe_text("bytes", n, &shape, &err), 1);
            assert_int_equal(shape.text_tokens, 77);
            assert_int_equal(shape.text_dim, widths[i]);
            /* The shape is known now, and the same bytes agree with it. */
            assert_int_equal(observe_text("bytes", n, &shape, &err), 1);
            for (size_t off = 0; off < 2; off++) {
                shape = (DatasetShape){0};
                assert_int_equal(observe_text("bytes", off ? n + 2 : n - 2, &shape, &err), -EINVAL);
                assert_names(err, "do not tell tokens x dim; data.empty_text would");
                assert_int_equal(shape.text_dim, 0);
            }
        }
}

/* Raw bytes contradict a known shape if their number differs; raw bytes do not show the order of the dimensions. */
static void raw_texts_are_held_against_what_is_known(_unused_ void **state)
{
    DatasetShape shape = {.text_tokens = 5, .text_dim = 7};
    Error err = ERROR_INIT;
    assert_int_equal(observe_text("bytes", 5 * 7 * 2, &shape, &err), 1);
    assert_int_equal(observe_text("bytes", 5 * 7 * 4, &shape, &err), 1);
    assert_int_equal(shape.text_tokens, 5);
    assert_int_equal(shape.text_dim, 7);
    assert_int_equal(observe_text("bytes", 77 * 768 * 2, &shape, &err), -EINVAL);
    assert_names(err, "text of 77x768, but that of data.empty_text or data.streams[0] is 5x7");
    assert_int_equal(observe_text("bytes", 5 * 7 * 8, &shape, &err), -EINVAL);
    const MdsColumn column = column_of("bytes");
    assert_int_equal(dataset_observe_text(&column, NULL, &shape, &err), 0); /* a sample is needed */
    assert_int_equal(observe_text("ndarray:float16:5,7", 5 * 7 * 2, &shape, &err), 1);
    assert_int_equal(observe_text("ndarray:float16:7,5", 5 * 7 * 2, &shape, &err), -EINVAL);
    assert_names(err, "text of 7x5");
    assert_int_equal(observe_text("ndarray:float16:5,7,1", 5 * 7 * 2, &shape, &err), -EINVAL);
    assert_names(err, "text needs two dimensions");
    assert_int_equal(observe_text("ndarray:int16:5,7", 5 * 7 * 2, &shape, &err), -EINVAL);
    assert_names(err, "values of type int16");
}

static void raw_latents_are_square(_unused_ void **state)
{
    static const size_t sides[] = {1, 2, 3, 64, 1023, 1024};
    for (size_t i = 0; i < ELEMENTSOF(sides); i++)
        for (size_t size = 2; size <= 4; size += 2) {
            const size_t n = 4 * sides[i] * sides[i] * size;
            DatasetShape shape = {0};
            Error err = ERROR_INIT;
            assert_int_equal(observe_latents("bytes", n, &shape, &err), 1);
            assert_int_equal(shape.channels, 4);
            assert_int_equal(shape.height, sides[i]);
            assert_int_equal(shape.width, sides[i]);
            assert_int_equal(observe_latents("bytes", n, &shape, &err), 1);
            shape = (DatasetShape){0};
            assert_int_equal(observe_latents("bytes", n + 1, &shape, &err), -EINVAL);
            assert_names(err, "are no 4 x N x N latents");
        }
    DatasetShape shape = {0};
    Error err = ERROR_INIT;
    assert_int_equal(observe_latents("bytes", 4 * 1025 * 1025 * 2, &shape, &err), -EINVAL);
    shape = (DatasetShape){.channels = 4, .height = 6, .width = 3};
    assert_int_equal(observe_latents("bytes", 4 * 6 * 3 * 4, &shape, &err), 1);
    assert_int_equal(shape.height, 6);
    assert_int_equal(observe_latents("bytes", 4 * 8 * 8 * 2, &shape, &err), -EINVAL);
    assert_names(err, "latents of 4x8x8, but those of data.streams[0] are 4x6x3");
    assert_int_equal(observe_latents("ndarray:float16:4,3,6", 4 * 6 * 3 * 2, &shape, &err),
                     -EINVAL);
    assert_int_equal(observe_latents("ndarray:float16:6,4,3", 4 * 6 * 3 * 2, &shape, &err),
                     -EINVAL);
    assert_int_equal(observe_latents("ndarray:float16:4,6,3", 4 * 6 * 3 * 2, &shape, &err), 1);
}

/* ---- samples of a dataset ---- */

static int open_with(const ScratchData *data, Error *err)
{
    Fixture f;
    fixture_make(&f, data);
    Dataset *dataset = NULL;
    int r = dataset_open(&f.job, &dataset, err);
    if (r == 0)
        check_steps(&f, dataset, 0, 2, 0, 6, 1);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
    return r;
}

static void each_array_has_the_shape_of_the_first(_unused_ void **state)
{
    ScratchData data = plain;
    Error err = ERROR_INIT;
    data.latents = "ndarray:float16";
    assert_int_equal(open_with(&data, &err), 0);
    data.turned = 1; /* an array has the right number of values in another shape */
    assert_int_equal(open_with(&data, &err), -EBADMSG);
    assert_names(err, "column latents: its array is 4x3x6, 4x6x3 is wanted");
}

/* The standard deviation is taken about the mean, whatever the mean is. */
static void latents_are_spread_about_1(_unused_ void **state)
{
    static const struct {
        float scale, mean;
        int r;
    } cases[] = {{1, 0, 0},      {1, 8, 0}, {1, -8, 0}, {0.125F, 0, -EINVAL}, {0.125F, 4, -EINVAL},
                 {4, 0, -EINVAL}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ScratchData data = plain;
        Error err = ERROR_INIT;
        data.scale = cases[i].scale;
        data.mean = cases[i].mean;
        if (open_with(&data, &err) != cases[i].r)
            fail_msg("case %zu: %s", i, err.text);
        if (cases[i].r < 0)
            assert_names(err, "have a standard deviation of ");
    }
}

/* ---- the empty caption, and the data's digest ---- */

static int read_empty(const Fixture *f, int n_dims, const uint64_t *dims, DatasetShape *shape,
                      Error *err)
{
    static const uint16_t zeros[2 * 5 * 7];
    MdsArray array = {.number = MDS_FLOAT16,
                      .n_dims = n_dims,
                      .values = zeros,
                      .n_bytes = sizeof(uint16_t)};
    char path[PATH_MAX], *bytes;
    size_t n;
    float *values = NULL;
    Hash hash;
    for (int i = 0; i < n_dims; i++) {
        array.dims[i] = dims[i];
        array.n_bytes *= dims[i];
    }
    assert_int_equal(npy_format(&array, &bytes, &n), 0);
    assert_good(file_write(scratch_path(&f->scratch, "other.npy", path), bytes, n, 0, err), *err);
    free(bytes);
    int r = dataset_read_empty_text(path, NULL, shape, &values, &hash, err);
    free(values);
    return r;
}

/* The array may be tokens x dim, or 1 x tokens x dim, which is a batch of one. */
static void an_empty_caption_may_be_a_batch_of_one(_unused_ void **state)
{
    static const struct {
        int n_dims;
        uint64_t dims[4];
        bool good;
    } cases[] = {{2, {5, 7}, true},     {3, {1, 5, 7}, true}, {2, {1, 7}, true},
                 {3, {2, 5, 7}, false}, {1, {35}, false},     {4, {1, 1, 5, 7}, false}};
    Fixture f;
    fixture_make(&f, &plain);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        DatasetShape shape = {0};
        Error err = ERROR_INIT;
        int r = read_empty(&f, cases[i].n_dims, cases[i].dims, &shape, &err);
        if (r != (cases[i].good ? 0 : -EINVAL))
            fail_msg("case %zu: %d, %s", i, r, err.text);
        if (!cases[i].good) {
            assert_names(err, "is not an array of tokens x dim");
            continue;
        }
        assert_int_equal(shape.text_tokens, cases[i].dims[cases[i].n_dims - 2]);
        assert_int_equal(shape.text_dim, cases[i].dims[cases[i].n_dims - 1]);
    }
    scratch_remove(&f.scratch);
}

/* The text by which two jobs' data are compared names the streams. */
static void a_datasets_terms_name_its_streams(_unused_ void **state)
{
    Fixture f;
    fixture_make(&f, &plain);
    Dataset *dataset = open_dataset(&f);
    _cleanup_free_ char *text = dataset_digest_terms(dataset);
    _cleanup_json_ json_t *terms = json_loads(text, 0, NULL);
    const json_t *streams = json_object_get(json_object_get(terms, "data"), "streams");
    assert_int_equal(json_object_size(terms), 1);
    assert_int_equal(json_array_size(streams), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(streams, 0), "samples")),
                     500);
    assert_string_not_equal(json_string_value(json_object_get(json_array_get(streams, 0), "index")),
                            json_string_value(
                                json_object_get(json_array_get(streams, 0), "index_json")));
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

/* The loader starts its thread with all signals blocked; the caller's signal mask is the same afterwards. */
static void the_callers_signals_stay_as_they_are(_unused_ void **state)
{
    Fixture f;
    fixture_make(&f, &plain);
    Dataset *dataset = open_dataset(&f);
    sigset_t before, after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    check_steps(&f, dataset, 0, 1, 0, 6, 1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    for (int n = 1; n < NSIG; n++)
        assert_int_equal(sigismember(&after, n), sigismember(&before, n));
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_texts_are_those_of_the_encoders),
        cmocka_unit_test(raw_texts_are_held_against_what_is_known),
        cmocka_unit_test(raw_latents_are_square),
        cmocka_unit_test(each_array_has_the_shape_of_the_first),
        cmocka_unit_test(latents_are_spread_about_1),
        cmocka_unit_test(an_empty_caption_may_be_a_batch_of_one),
        cmocka_unit_test(a_datasets_terms_name_its_streams),
        cmocka_unit_test(the_callers_signals_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
