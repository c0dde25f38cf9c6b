/* SPDX-License-Identifier: Apache-2.0 */
/* test-openclipart.c - tests the demo's data: codec, text, pictures, captions, and a dataset that is made twice from a
 * small source, with the same bytes. */
#include "data/dataset.h"
#include "data/test/testing-scratch.h"
#include "encoders/codec.h"
#include "encoders/hashed-text.h"
#include "prep/openclipart.h"
#include "prep/picture.h"

#include <math.h>
#include <png.h>
#include <unistd.h>

enum { SIDE = 16, CELLS = SIDE / CODEC_BLOCK * SIDE / CODEC_BLOCK };

static void the_codec_is_invertible_and_orthonormal(void **state)
{
    (void)state;
    float latents[CODEC_CHANNELS * CELLS], pixels[3 * SIDE * SIDE], back[CODEC_CHANNELS * CELLS];
    for (int i = 0; i < CODEC_CHANNELS * CELLS; i++)
        latents[i] = (float)(i * 37 % 41 - 20) / 10;
    codec_decode(latents, SIDE, SIDE, pixels);
    codec_encode(pixels, SIDE, SIDE, back);
    for (int i = 0; i < CODEC_CHANNELS * CELLS; i++)
        assert_true(fabsf(back[i] - latents[i]) < 1e-5F);

    /* If a coefficient changes by 1, the pixels change by its scale (as Euclidean norm): the basis is orthonormal, so
     * the coefficients that are kept are the best possible approximation. */
    for (int k = 0; k < CODEC_CHANNELS; k++) {
        float moved[3 * SIDE * SIDE];
        memcpy(back, latents, sizeof(back));
        back[k * CELLS] += 1;
        codec_decode(back, SIDE, SIDE, moved);
        double squares = 0;
        for (int i = 0; i < 3 * SIDE * SIDE; i++)
            squares += pow((double)moved[i] - (double)pixels[i], 2);
        static const double scale[] = {7.0, 2.5, 1.55, 1.84};
        assert_true(fabs(sqrt(squares) - scale[k]) < 1e-4);
    }
    /* A block of one colour is encoded and decoded without loss. */
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        pixels[i] = i / (SIDE * SIDE) == 0 ? 0.75F : i / (SIDE * SIDE) == 1 ? -0.5F : 0.1F;
    codec_encode(pixels, SIDE, SIDE, latents);
    float again[3 * SIDE * SIDE];
    codec_decode(latents, SIDE, SIDE, again);
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        assert_true(fabsf(again[i] - pixels[i]) < 1e-5F);
}

static void text_is_hashed_as_documented(void **state)
{
    (void)state;
    enum { DIM = 64, N = HASHED_TEXT_TOKENS * DIM };
    Error err = ERROR_INIT;
    HashedText *text;
    assert_good(hashed_text_new(DIM, &text, &err), err);
    float *a = malloc(sizeof(float) * N), *b = malloc(sizeof(float) * N);
    assert_non_null(a);
    assert_non_null(b);
    hashed_text_embed(text, "Red apple, FRUIT", a);
    hashed_text_embed(text, "red-APPLE fruit!", b);
    assert_memory_equal(a, b, sizeof(float) * N); /* case and punctuation do not matter */
    hashed_text_embed(text, "green apple, fruit", b);
    for (int i = 0; i < N; i++) /* only the token of the changed word differs */
        assert_true((a[i] != b[i]) == (i / DIM == 1));
    hashed_text_embed(text, "apple apple", b);
    double distance = 0, variance = 0;
    for (int i = 0; i < DIM; i++) /* the same word at two positions gives different tokens */
        distance += fabs((double)b[DIM + i] - (double)b[2 * DIM + i]);
    assert_true(distance > 1);
    for (int i = 0; i < N; i++)
        variance += (double)a[i] * (double)a[i] / N;
    assert_true(variance > 0.7 && variance < 1.3);

    /* A text with more words than tokens is cut: begin, 75 words, end. */
    char many[1000] = "";
    for (int i = 0; i < 120; i++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "w%d ", i);
    hashed_text_embed(text, many, a);
    hashed_text_embed(text, "", b);
    for (int i = 0; i < DIM; i++)
        assert_true(a[i] == b[i]);
    text = hashed_text_free(text);

    /* These values must never change: datasets made earlier must match the embeddings that sampling computes. */
    static const uint16_t golden[] = {0x3971, 0xb396, 0xbcfd, 0x3953, 0xbc3e, 0xb607,
                                      0xbdcc, 0x3aad, 0x37f4, 0x3036, 0x3ed1, 0xbb8e,
                                      0x3d6a, 0x343b, 0xb26c, 0xb1ac, 0x34dd, 0x3082,
                                      0x37d6, 0x3abf, 0xb067, 0xb09e, 0xb8b7, 0x3cec,
                                      0xba9f, 0x2f9c, 0xbd6a, 0xbffc, 0x2d50, 0xb604,
                                      0xa875, 0x3b0b, 0xb0c6, 0x3985, 0x4036, 0xb351};
    assert_good(hashed_text_new(6, &text, &err), err);
    hashed_text_embed(text, "Hello, World 2", a);
    for (size_t i = 0; i < ELEMENTSOF(golden); i++)
        assert_int_equal(half_from_float(a[i]), golden[i]);
    hashed_text_free(text);
    free(a);
    free(b);
    assert_int_equal(hashed_text_new(0, &text, &err), -EINVAL);
    assert_int_equal(hashed_text_new(63, &text, &err), -EINVAL);
    assert_int_equal(hashed_text_new(1 << 20, &text, &err), -EINVAL);
}

static void captions_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *svg, *caption;
    } cases[] = {
        {"<svg><metadata><dc:title> Big\n  cat </dc:title><rdf:Bag><rdf:li>animal</rdf:li>"
         "<rdf:li>  </rdf:li><rdf:li>cat &amp; dog</rdf:li></rdf:Bag>"
         "<dc:title>Library</dc:title></metadata></svg>",
         "Big cat, animal, cat & dog"},
        {"<metadata id=\"m\"><rdf:li rdf:x=\"1\">only</rdf:li></metadata>", "only"},
        {"<metadata><dc:title></dc:title></metadata>", ""},
        {"<svg><dc:title>outside</dc:title></svg>", ""},
        {"<metadata><dc:title>open", ""},
        {"<metadata><dc:title>t</dc:title><rdf:li>open</metadata>", "t"},
        {"", ""},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char *caption;
        assert_int_equal(openclipart_caption(cases[i].svg, strlen(cases[i].svg), &caption), 0);
        assert_string_equal(caption, cases[i].caption);
        free(caption);
    }
    /* A caption is cut to at most 1000 bytes. */
    char *svg = malloc(100000), *caption;
    assert_non_null(svg);
    memset(svg, 'x', 100000);
    memcpy(svg, "<metadata><dc:title>", 20);
    memcpy(svg + 100000 - 23, "</dc:title> </metadata>", 23);
    assert_int_equal(openclipart_caption(svg, 100000, &caption), 0);
    assert_true(strlen(caption) > 900 && strlen(caption) <= 1000);
    free(svg);
    free(caption);
}

/* Writes a PNG of w x h pixels: its left half is black, its right half has one colour. */
static void paint(const char *path, int w, int h, float red)
{
    const uint8_t right[] = {(uint8_t)((red + 1) * 127.5F + 0.5F), 128, 128};
    uint8_t *pixels = calloc((size_t)w * (size_t)h, 3);
    assert_non_null(pixels);
    for (int i = 0; i < w * h; i++)
        if (i % w >= w / 2)
            memcpy(pixels + 3 * (ptrdiff_t)i, right, sizeof(right));
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (uint32_t)w,
                       .height = (uint32_t)h,
                       .format = PNG_FORMAT_RGB};
    assert_true(png_image_write_to_file(&image, path, 0, pixels, 0, NULL));
    free(pixels);
}

static void pictures_are_fitted_on_white(void **state)
{
    (void)state;
    Scratch scratch = scratch_make();
    Error err = ERROR_INIT;
    char path[PATH_MAX];
    enum { TO = 32 };
    float fitted[3 * TO * TO];
    int w, h;
    paint(scratch_path(&scratch, "wide.png", path), 100, 50, 1);
    assert_good(picture_size(path, &w, &h, &err), err);
    assert_true(w == 100 && h == 50);
    assert_good(picture_read(path, TO, fitted, &err), err);
    for (int y = 0; y < TO; y++)
        for (int x = 0; x < TO; x++) {
            float red = fitted[y * TO + x];
            bool inside = y >= 8 && y < 24;
            assert_true(fabsf(red - (inside && x < 16 ? -1.0F : 1.0F)) < 0.01F);
            float green = fitted[TO * TO + y * TO + x];
            assert_true(fabsf(green - (inside ? (x < 16 ? -1.0F : 0.0F) : 1.0F)) < 0.01F);
        }
    /* A smaller picture is enlarged, and the mean brightness stays the same. */
    paint(path, 10, 10, 1);
    assert_good(picture_read(path, TO, fitted, &err), err);
    double sum = 0;
    for (int i = 0; i < TO * TO; i++)
        sum += (double)fitted[i] / (TO * TO);
    assert_true(fabs(sum) < 0.01);

    assert_good(file_write(path, "\x89PNG\r\n\x1a\nxx", 10, 0, &err), err);
    assert_int_equal(picture_read(path, TO, fitted, &err), -EBADMSG);
    assert_int_equal(picture_size(path, &w, &h, &err), -EBADMSG);
    assert_int_equal(picture_size("/nowhere.png", &w, &h, &err), -ENOENT);
    scratch_remove(&scratch);
}

static void assert_same_tree(const Scratch *s, const char *name)
{
    char a[PATH_MAX], b[PATH_MAX], x[64], y[64];
    (void)snprintf(x, sizeof(x), "one/%s", name);
    (void)snprintf(y, sizeof(y), "two/%s", name);
    Error err = ERROR_INIT;
    char *p, *q;
    size_t n, m;
    assert_good(file_read(scratch_path(s, x, a), 1 << 24, &p, &n, &err), err);
    assert_good(file_read(scratch_path(s, y, b), 1 << 24, &q, &m, &err), err);
    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
    free(p);
    free(q);
}

static void a_tar_is_as_img2dataset_writes_it(const Scratch *s)
{
    Error err = ERROR_INIT;
    char a[PATH_MAX], b[PATH_MAX], *tar, *again, *png;
    size_t n, m, n_png;
    assert_good(file_read(scratch_path(s, "raw-one/00000.tar", a), 1 << 24, &tar, &n, &err), err);
    assert_good(file_read(scratch_path(s, "raw-two/00000.tar", b), 1 << 24, &again, &m, &err), err);
    assert_int_equal(n, m);
    assert_memory_equal(tar, again, n);
    assert_int_equal(n % 512, 0);
    assert_string_equal(tar, "000000000.png");
    assert_memory_equal(tar + 257, "ustar\00000", 8);
    assert_good(file_read(scratch_path(s, "src/png/b/p_00.png", a), 1 << 24, &png, &n_png, &err),
                err);
    assert_int_equal(strtoul(tar + 124, NULL, 8), n_png);
    assert_memory_equal(tar + 512, png, n_png);
    const char *text = tar + 512 + ROUND_UP(n_png, (size_t)512);
    assert_string_equal(text, "000000000.txt");
    assert_memory_equal(text + 512, "p 00\0", 5);
    size_t n_names = 0;
    for (size_t i = 0; i + 512 <= n; i += 512)
        n_names += memcmp(tar + i + 257, "ustar", 6) == 0;
    assert_int_equal(n_names, 40);
    for (size_t i = n - 1024; i < n; i++)
        assert_int_equal(tar[i], 0);
    free(tar);
    free(again);
    free(png);
}

static void a_dataset_is_made(void **state)
{
    (void)state;
    Scratch s = scratch_make();
    Error err = ERROR_INIT;
    char path[PATH_MAX], one[PATH_MAX], two[PATH_MAX], source[PATH_MAX], name[64];
    assert_good(folder_make(scratch_path(&s, "src/png/b/c", path), &err), err);
    assert_good(folder_make(scratch_path(&s, "src/svg/b", path), &err), err);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof(name), "src/png/b/p_%02d.png", i);
        paint(scratch_path(&s, name, path), 64 + 3 * i, 100 - i, (float)i / 20);
    }
    paint(scratch_path(&s, "src/png/b/c/small.png", path), 63, 200, 1);
    static const char svg[] = "<metadata><dc:title>The third</dc:title></metadata>";
    assert_good(file_write(scratch_path(&s, "src/svg/b/p_03.svg", path), svg, strlen(svg), 0, &err),
                err);
    /* A picture that cannot be read is left out, with a warning. */
    static const char broken[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x80\0\0\0\x80";
    assert_good(file_write(scratch_path(&s, "src/png/b/p_05.png", path), broken, 24, 0, &err), err);

    OpenclipartOptions o = {.source = scratch_path(&s, "src", source),
                            .out = scratch_path(&s, "one", one),
                            .text_dim = 8,
                            .size_limit = 20000};
    assert_good(openclipart_make(&o, &err), err);
    assert_int_equal(openclipart_make(&o, &err), -EEXIST);
    o.out = scratch_path(&s, "two", two);
    assert_good(openclipart_make(&o, &err), err);
    static const char *const files[] = {"index.json", "index.sdtrain", "empty.npy",
                                        "shard.00000.mds", "shard.00001.mds"};
    for (size_t i = 0; i < ELEMENTSOF(files); i++)
        assert_same_tree(&s, files[i]);

    /* Read the dataset as a job would. */
    scratch_path(&s, "one/empty.npy", path);
    Job job = {.data = {.n_streams = 1,
                        .latents = (char *)(uintptr_t) "latents",
                        .text = (char *)(uintptr_t) "text",
                        .latent_scale = 1,
                        .empty_text_uri = path,
                        .shuffle_window = 100},
               .train = {.caption_drop = 0.1}};
    job.data.streams[0] = (JobStream){.uri = one, .proportion = 1};
    Dataset *dataset;
    assert_good(dataset_open(&job, &dataset, &err), err);
    const DatasetShape *shape = dataset_shape(dataset);
    assert_true(shape->channels == 4 && shape->height == 16 && shape->width == 16);
    assert_true(shape->text_tokens == 77 && shape->text_dim == 8);
    assert_int_equal(dataset_order(dataset)->streams[0].n_samples, 19);
    static const char *const captions[] = {"p 00", "p 01", "p 02", "The third", "p 04", "p 06"};
    for (int i = 0; i < 6; i++) {
        char *caption;
        assert_good(dataset_read(dataset, (OrderSample){.sample = i}, NULL, NULL, &caption, &err),
                    err);
        assert_string_equal(caption, captions[i]);
        free(caption);
    }
    dataset_free(dataset);

    /* The same pictures as tars: a picture that cannot be decoded is included, a picture that is too small is not. */
    o.raw = scratch_path(&s, "raw-one", one);
    assert_good(openclipart_make_raw(&o, &err), err);
    assert_int_equal(openclipart_make_raw(&o, &err), -EEXIST);
    assert_names(err, "already holds tars");
    o.raw = scratch_path(&s, "raw-two", one);
    assert_good(openclipart_make_raw(&o, &err), err);
    a_tar_is_as_img2dataset_writes_it(&s);

    /* In a folder with files of an unfinished dataset that has other widths, nothing is written. */
    char *was, *is;
    size_t n_was, n_is;
    assert_int_equal(unlink(scratch_path(&s, "two/index.json", path)), 0);
    o.out = scratch_path(&s, "two", two);
    o.text_dim = 16;
    scratch_path(&s, "two/shard.00000.mds", path);
    assert_good(file_read(path, 1 << 24, &was, &n_was, &err), err);
    assert_int_equal(openclipart_make(&o, &err), -EEXIST);
    assert_names(err, "two holds files of a dataset that is not finished");
    assert_int_equal(unlink(scratch_path(&s, "two/empty.npy", one)), 0);
    assert_int_equal(openclipart_make(&o, &err), -EEXIST);
    assert_names(err, "shard.0000");
    assert_good(file_read(path, 1 << 24, &is, &n_is, &err), err);
    assert_int_equal(n_is, n_was);
    assert_memory_equal(is, was, n_was);
    free(was);
    free(is);
    o.text_dim = 8;

    o.source = scratch_path(&s, "nowhere", path);
    o.out = scratch_path(&s, "three", two);
    assert_int_equal(openclipart_make(&o, &err), -ENOENT);
    assert_names(err, "openclipart-png");
    o.source = source;
    o.n_samples = 5;
    assert_good(openclipart_make(&o, &err), err);
    scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_codec_is_invertible_and_orthonormal),
        cmocka_unit_test(text_is_hashed_as_documented),
        cmocka_unit_test(captions_are_found),
        cmocka_unit_test(pictures_are_fitted_on_white),
        cmocka_unit_test(a_dataset_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
