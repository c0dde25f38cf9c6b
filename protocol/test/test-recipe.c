/* SPDX-License-Identifier: Apache-2.0 */
/* test-recipe.c - the recipe's keys, defaults, refusals, and what its identity depends on. */
#include "base/json/json.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "protocol/recipe.h"

#include <math.h>
#include <string.h>

static Recipe *parse(const char *text)
{
    Error err = ERROR_INIT;
    Recipe *recipe = NULL;
    if (recipe_parse("recipe.json", text, strlen(text), &recipe, &err) < 0)
        fail_msg("%s", err.text);
    return recipe;
}

static void refuse(const char *text, const char *word)
{
    Error err = ERROR_INIT;
    Recipe *recipe = NULL;
    assert_int_equal(recipe_parse("recipe.json", text, strlen(text), &recipe, &err), -EINVAL);
    assert_null(recipe);
    if (!strstr(err.text, word) || !strstr(err.text, "recipe.json"))
        fail_msg("%s: \"%s\" does not name %s", text, err.text, word);
}

static void everything_has_a_default(void **state)
{
    (void)state;
    Recipe *r = parse("{}");
    assert_null(r->model);
    assert_true(r->side == 256 && r->resample == RECIPE_BILINEAR && r->min_side == 0);
    assert_true(r->max_aspect == 0 && r->max_pixels == 1 << 25);
    assert_true(r->tokenizer == RECIPE_OPEN_CLIP && !r->empty_for_missing);
    assert_string_equal(r->image, "jpg");
    assert_string_equal(r->caption, "caption");
    assert_true(r->n_filters == 0 && r->n_keep == 2);
    assert_string_equal(r->keep[0].column, "caption");
    assert_string_equal(r->keep[1].column, "key");
    assert_true(r->seed == 0 && r->shard_samples == 512 && r->max_rejected == 0.05);
    assert_true(r->batch == 8 && r->threads == 0);
    recipe_free(r);
}

static const char whole[] =
    "{\"model\": \"s3://models/sd2\", \"side\": 512, \"resample\": \"bicubic\", \"min_side\": 512,"
    " \"max_aspect\": 3.5, \"max_pixels\": 1000000, \"tokenizer\": \"diffusers/1\","
    " \"missing_caption\": \"empty\", \"columns\": {\"image\": \"png\", \"caption\": \"alt\"},"
    " \"filters\": {\"punsafe\": {\"max\": 0.1}, \"aesthetic\": {\"min\": 4.5, \"max\": 9,"
    " \"missing\": \"keep\"}}, \"keep\": {\"width\": \"int64\", \"caption\": \"str\","
    " \"similarity\": \"float64\"}, \"seed\": 7, \"shard_samples\": 100, \"max_rejected\": 0.5,"
    " \"batch\": 16, \"threads\": 3}";

static void every_key_is_read(void **state)
{
    (void)state;
    Recipe *r = parse(whole);
    assert_string_equal(r->model, "s3://models/sd2");
    assert_true(r->side == 512 && r->resample == RECIPE_BICUBIC && r->min_side == 512);
    assert_true(r->max_aspect == 3.5 && r->max_pixels == 1000000);
    assert_true(r->tokenizer == RECIPE_DIFFUSERS && r->empty_for_missing);
    assert_string_equal(r->image, "png");
    assert_string_equal(r->caption, "alt");
    assert_int_equal(r->n_filters, 2);
    assert_string_equal(r->filters[0].column, "aesthetic");
    assert_true(r->filters[0].min == 4.5 && r->filters[0].max == 9 && r->filters[0].keep_missing);
    assert_true(isinf(r->filters[1].min) && r->filters[1].max == 0.1);
    assert_false(r->filters[1].keep_missing);
    assert_int_equal(r->n_keep, 3);
    assert_true(r->keep[0].kind == RECIPE_TEXT && r->keep[1].kind == RECIPE_NUMBER &&
                r->keep[2].kind == RECIPE_INTEGER);
    assert_true(r->seed == 7 && r->shard_samples == 100 && r->max_rejected == 0.5);
    assert_true(r->batch == 16 && r->threads == 3);
    recipe_free(r);
    /* A tokenizer without a version has the newest rules; an empty "keep" keeps no columns. */
    r = parse("{\"tokenizer\": \"diffusers\", \"keep\": {}}");
    assert_true(r->tokenizer == RECIPE_DIFFUSERS && r->n_keep == 0);
    assert_true(recipe_members_are_usual(&r->members));
    recipe_free(r);
    r = parse("{\"members\": {\"image\": [\"input.jpg\", \"png\"], \"caption\": [\"meta.json\"]}}");
    assert_int_equal(r->members.image.n, 2);
    assert_string_equal(r->members.image.names[1], "png");
    assert_string_equal(recipe_json_member(&r->members), "meta.json");
    assert_false(r->members.key_ends_last || recipe_members_are_usual(&r->members));
    recipe_free(r);
    r = parse("{\"members\": {\"caption\": [\"txt\"]}, \"key_ends_at\": \"last-dot\"}");
    assert_int_equal(r->members.image.n, 4);
    assert_string_equal(recipe_json_member(&r->members), "json");
    assert_true(r->members.key_ends_last);
    recipe_free(r);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refuse("{\"sides\": 256}", "sides");
    refuse("{\"side\": 260}", "side: 260");
    refuse("{\"side\": 0}", "side");
    refuse("{\"side\": \"256\"}", "side");
    refuse("{\"resample\": \"lanczos\"}", "bicubic");
    refuse("{\"tokenizer\": \"open_clip/1\"}", "tokenizer");
    refuse("{\"tokenizer\": \"diffusers/2\"}", "tokenizer");
    refuse("{\"model\": \"\"}", "model");
    refuse("{\"max_aspect\": 0.5}", "max_aspect");
    refuse("{\"missing_caption\": \"keep\"}", "missing_caption");
    refuse("{\"filters\": {\"a\": {}}}", "filters.a");
    refuse("{\"filters\": {\"a\": {\"min\": 2, \"max\": 1}}}", "filters.a.min");
    refuse("{\"filters\": {\"a\": {\"min\": 2, \"most\": 1}}}", "filters.a.most");
    refuse("{\"filters\": {\"a\": 3}}", "filters.a");
    refuse("{\"filters\": {\"\": {\"min\": 2}}}", "filters");
    refuse("{\"keep\": {\"text\": \"str\"}}", "keep.text");
    refuse("{\"keep\": {\"width\": \"int32\"}}", "keep.width");
    refuse("{\"keep\": {\"key\": \"int64\"}}", "keep.key");
    refuse("{\"columns\": {\"picture\": \"x\"}}", "columns.picture");
    refuse("{\"shard_samples\": 0}", "shard_samples");
    refuse("{\"max_rejected\": 2}", "max_rejected");
    refuse("[]", "recipe.json");
    refuse("{", "recipe.json");
}

#define EIGHT(x) x x x x x x x x
#define BYTES_96 EIGHT("twelve-bytes")
#define BYTES_1152 EIGHT(BYTES_96) BYTES_96 BYTES_96 BYTES_96 BYTES_96
#define BYTES_95 EIGHT("twelve-byte") "seven.."
#define COLUMNS_3(letter, value)                                                                   \
    "\"" letter "0\": " value ", \"" letter "1\": " value ", \"" letter "2\": " value ", "
#define COLUMNS_4(letter, value) COLUMNS_3(letter, value) "\"" letter "3\": " value ", "
#define COLUMNS_28(value)                                                                          \
    COLUMNS_4("a", value)                                                                          \
    COLUMNS_4("b", value)                                                                          \
    COLUMNS_4("c", value)                                                                          \
    COLUMNS_4("d", value)                                                                          \
    COLUMNS_4("e", value)                                                                          \
    COLUMNS_4("f", value)                                                                          \
    COLUMNS_4("g", value)
#define COLUMNS_32(value) COLUMNS_28(value) COLUMNS_4("h", value)

/* The error about a bad value has the file, the key and the value. */
static void each_key_names_its_bad_value(void **state)
{
    static const struct {
        const char *json, *error;
    } bad[] = {
        {"\"model\": 3", "model: expected a string, got 3"},
        {"\"model\": \"\"", "model: a text of 0 bytes: it has 1 to 1000"},
        {"\"model\": \"" BYTES_1152 "\"", "model: a text of 1152 bytes: it has 1 to 1000"},
        {"\"model\": \"a\\u0000b\"", "line 1, column 20: \\u0000 is not allowed"},
        {"\"side\": 0", "side: 0 is not in 8..4096"},
        {"\"side\": 4104", "side: 4104 is not in 8..4096"},
        {"\"side\": 260", "side: 260 is not a multiple of 8"},
        {"\"side\": 256.5", "side: expected an integer, got 256.5"},
        {"\"side\": \"256\"", "side: expected an integer, got \"256\""},
        {"\"side\": [256, 512]", "side: expected an integer, got [256,512]"},
        {"\"resample\": \"lanczos\"", "resample: lanczos is not one of"},
        {"\"resample\": 3", "resample: expected a string, got 3"},
        {"\"min_side\": -1", "min_side: -1 is not in 0..65536"},
        {"\"min_side\": 65537", "min_side: 65537 is not in 0..65536"},
        {"\"min_side\": true", "min_side: expected an integer, got true"},
        {"\"max_aspect\": 0.5", "max_aspect: 0.5"},
        {"\"max_aspect\": -1", "max_aspect: -1 is not in 0..1e+06"},
        {"\"max_aspect\": 1e7", "max_aspect: 1e+07 is not in 0..1e+06"},
        {"\"max_aspect\": \"3\"", "max_aspect: expected a number, got \"3\""},
        {"\"max_pixels\": 63", "max_pixels: 63 is not in 64..67108864"},
        {"\"max_pixels\": 67108865", "max_pixels: 67108865 is not in 64..67108864"},
        {"\"max_pixels\": {}", "max_pixels: expected an integer, got {}"},
        {"\"tokenizer\": \"OPEN_CLIP\"", "tokenizer: OPEN_CLIP is not one of"},
        {"\"tokenizer\": \"open_clip/3\"", "tokenizer: open_clip/3 is not one of"},
        {"\"tokenizer\": 1", "tokenizer: expected a string, got 1"},
        {"\"missing_caption\": \"keep\"", "missing_caption: keep is not one of"},
        {"\"missing_caption\": true", "missing_caption: expected a string, got true"},
        {"\"columns\": []", "columns: expected an object, got []"},
        {"\"columns\": {\"image\": \"\"}", "columns.image: a text of 0 bytes: it has 1 to 95"},
        {"\"columns\": {\"image\": 7}", "columns.image: expected a string, got 7"},
        {"\"columns\": {\"caption\": \"" BYTES_96 "\"}",
         "columns.caption: a text of 96 bytes: it has 1 to 95"},
        {"\"columns\": {\"text\": \"x\"}", "columns.text: unknown key"},
        {"\"filters\": []", "filters: expected an object, got []"},
        {"\"filters\": {\"a\": 3}", "filters.a: expected an object, got 3"},
        {"\"filters\": {\"a\": {\"missing\": \"keep\"}}", "filters.a: has neither min nor max"},
        {"\"filters\": {\"a\": {\"min\": \"1\"}}", "filters.a.min: expected a number, got \"1\""},
        {"\"filters\": {\"a\": {\"max\": 1e301}}",
         "filters.a.max: 1e+301 is not in -1e+300..1e+300"},
        {"\"filters\": {\"a\": {\"min\": 3, \"max\": 2}}",
         "filters.a.min: 3 is greater than max 2"},
        {"\"filters\": {\"a\": {\"min\": 3, \"missing\": \"drop\"}}",
         "filters.a.missing: drop is not one of"},
        {"\"filters\": {\"" BYTES_96 "\": {\"min\": 3}}",
         "filters: \"twelve-bytestwelve-bytestwelve-bytestwel\": a column's name has 1 to 95 "
         "bytes"},
        {"\"filters\": {" COLUMNS_32("{\"min\": 1}") "\"i\": {\"min\": 1}}",
         "filters: names 33 columns, at most 32 are possible"},
        {"\"keep\": []", "keep: expected an object, got []"},
        {"\"keep\": {\"a\": 3}", "keep.a: expected a string, got 3"},
        {"\"keep\": {\"a\": \"int32\"}", "keep.a: int32 is not one of"},
        {"\"keep\": {\"latents\": \"str\"}", "keep.latents: is a column of what is made"},
        {"\"keep\": {\"caption\": \"int64\"}", "keep.caption: is a text: \"str\""},
        {"\"keep\": {\"\": \"str\"}", "keep: \"\": a column's name has 1 to 95 bytes"},
        {"\"keep\": {" COLUMNS_32("\"str\"") "\"i\": \"str\"}",
         "keep: names 33 columns, at most 32 are possible"},
        {"\"seed\": -1", "seed: -1 is "},
        {"\"seed\": 1.5", "seed: expected an integer, got 1.5"},
        {"\"seed\": 9223372036854775808", "too big integer"},
        {"\"shard_samples\": 0", "shard_samples: 0 is not in 1..65536"},
        {"\"shard_samples\": 65537", "shard_samples: 65537 is not in 1..65536"},
        {"\"max_rejected\": -0.1", "max_rejected: -0.1 is not in 0..1"},
        {"\"max_rejected\": 1.5", "max_rejected: 1.5 is not in 0..1"},
        {"\"max_rejected\": \"5%\"", "max_rejected: expected a number, got \"5%\""},
        {"\"batch\": 0", "batch: 0 is not in 1..1024"},
        {"\"batch\": 1025", "batch: 1025 is not in 1..1024"},
        {"\"threads\": -1", "threads: -1 is not in 0..1024"},
        {"\"threads\": 1025", "threads: 1025 is not in 0..1024"},
        {"\"seed\": 1, \"seed\": 2", "duplicate"},
        {"\"key_ends_at\": \"dot\"", "key_ends_at: dot is not one of"},
        {"\"members\": []", "members: expected an object, got []"},
        {"\"members\": {\"picture\": []}", "members.picture: unknown key"},
        {"\"members\": {\"image\": \"jpg\"}", "members.image: expected an array, got \"jpg\""},
        {"\"members\": {\"image\": []}", "members.image: is empty"},
        {"\"members\": {\"image\": [7]}", "members.image: element 0, \"\", has 1 to 31 bytes"},
        {"\"members\": {\"image\": [\".jpg\"]}",
         "members.image: element 0, \".jpg\", is written without the dot behind the key"},
        {"\"members\": {\"image\": [\"a/b\"]}", "element 0, \"a/b\", cannot stand behind a key"},
        {"\"members\": {\"image\": [\"jpg\", \"JPG\"]}", "element 1, \"JPG\", is named twice"},
        {"\"members\": {\"image\": [\"txt\"]}", "members.caption: txt is a picture's already"},
        {"\"members\": {\"caption\": [\"json\", \"b.json\"]}",
         "members.caption: names 2 members that are .json: one is read"},
        {"\"members\": {\"image\": [\"a.jpg\"]}, \"key_ends_at\": \"last-dot\"",
         "members.image: element 0, \"a.jpg\", has a dot, and keys end at the last one"},
        {"\"model\": \"\xFF\"", "line 1, column 11: unable to decode byte 0xff"},
        {"\"seed\": 1} x", "end of file expected"},
    };
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        char text[4096];
        assert_in_range(snprintf(text, sizeof(text), "{%s}", bad[i].json), 1, sizeof(text) - 1);
        refuse(text, bad[i].error);
    }
    /* The maximum number of columns is accepted, with the longest possible names. */
    Recipe *most = parse(
        "{\"keep\": {" COLUMNS_28("\"str\"")
            COLUMNS_3("h", "\"str\"") "\"" BYTES_95 "\": \"int64\"}, \"filters\": {" COLUMNS_28(
                "{\"min\": 1}") COLUMNS_3("h", "{\"min\": 1}") "\"" BYTES_95 "\": {\"max\": 1}}}");
    assert_int_equal(most->n_keep, RECIPE_COLUMNS_MAX);
    assert_int_equal(most->n_filters, RECIPE_COLUMNS_MAX);
    recipe_free(most);
    _cleanup_free_ char *large = memory_zeroed(RECIPE_TEXT_MAX + 2, 1);
    memset(large, ' ', RECIPE_TEXT_MAX + 1);
    refuse(large, "more than 1048576 bytes");
}

static Hash identity_by(int rules, const char *text)
{
    Recipe *r = parse(text);
    Hash hash = recipe_identity(r, rules, (Hash){1, 2}, (Hash){3, 4}, (Hash){5, 6});
    recipe_free(r);
    return hash;
}

static Hash identity(const char *text) { return identity_by(RECIPE_SAMPLE_RULES, text); }

static void identity_is_what_may_change_a_byte(void **state)
{
    (void)state;
    Hash plain = identity("{}");
    static const char *const same[] = {
        "{\"model\": \"/elsewhere\"}",
        "{\"batch\": 3}",
        "{\"threads\": 2}",
        "{\"max_rejected\": 1}",
        "{\"max_damaged_units\": 0}",
        "{\"side\": 256, \"keep\": {\"key\": \"str\", \"caption\": \"str\"}}",
        "{\"tokenizer\": \"open_clip\", \"filters\": {}}",
        "{\"key_ends_at\": \"first-dot\", \"members\": {}}",
        "{\"members\": {\"image\": [\"jpg\", \"jpeg\", \"png\", \"webp\"], \"caption\": "
        "[\"txt\", \"json\"]}}",
    };
    for (size_t i = 0; i < ELEMENTSOF(same); i++)
        assert_true(hash_equal(identity(same[i]), plain));
    static const char *const other[] = {
        "{\"side\": 512}",
        "{\"resample\": \"bicubic\"}",
        "{\"min_side\": 1}",
        "{\"max_aspect\": 2}",
        "{\"max_pixels\": 64}",
        "{\"tokenizer\": \"diffusers\"}",
        "{\"missing_caption\": \"empty\"}",
        "{\"columns\": {\"image\": \"png\"}}",
        "{\"columns\": {\"caption\": \"alt\"}}",
        "{\"filters\": {\"a\": {\"min\": 1}}}",
        "{\"filters\": {\"a\": {\"max\": 1}}}",
        "{\"filters\": {\"a\": {\"min\": 1, \"missing\": \"keep\"}}}",
        "{\"keep\": {}}",
        "{\"keep\": {\"a\": \"str\"}}",
        "{\"keep\": {\"a\": \"int64\"}}",
        "{\"seed\": 1}",
        "{\"shard_samples\": 511}",
        "{\"members\": {\"image\": [\"input.jpg\"]}}",
        "{\"members\": {\"caption\": [\"txt\"]}}",
        "{\"members\": {\"caption\": [\"json\", \"txt\"]}}",
        "{\"key_ends_at\": \"last-dot\"}",
    };
    for (size_t i = 0; i < ELEMENTSOF(other); i++) {
        assert_false(hash_equal(identity(other[i]), plain));
        for (size_t k = 0; k < i; k++)
            assert_false(hash_equal(identity(other[i]), identity(other[k])));
    }
    /* The identity depends on each of the three hashes: weights, merges and numerics. */
    Recipe *r = parse("{}");
    Hash hash[] = {
        recipe_identity(r, RECIPE_SAMPLE_RULES, (Hash){1, 9}, (Hash){3, 4}, (Hash){5, 6}),
        recipe_identity(r, RECIPE_SAMPLE_RULES, (Hash){1, 2}, (Hash){9, 4}, (Hash){5, 6}),
        recipe_identity(r, RECIPE_SAMPLE_RULES, (Hash){1, 2}, (Hash){3, 4}, (Hash){5, 9})};
    for (size_t i = 0; i < ELEMENTSOF(hash); i++)
        assert_false(hash_equal(hash[i], plain));
    recipe_free(r);
    /* These identities must never change, because existing datasets store them. */
    char text[HASH_TEXT_BYTES];
    assert_string_equal(hash_format(identity_by(1, "{}"), text),
                        "44095762c1bb8646585bc5ffb589c890");
    assert_string_equal(hash_format(identity_by(1, whole), text),
                        "130b75c40bc6ad84a8bb4e1963404186");
    assert_string_equal(hash_format(identity_by(2, "{}"), text),
                        "a22455c121cb08350ca2a3559f50fced");
    assert_string_equal(hash_format(identity_by(2, whole), text),
                        "783dbd563ffebb42b9e03c776ee7f089");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_has_a_default),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(each_key_names_its_bad_value),
        cmocka_unit_test(identity_is_what_may_change_a_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
