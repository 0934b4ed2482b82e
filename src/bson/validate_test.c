#include "bson/validate.h"

#include <bson/bson.h>

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "bson/random_value_test.h"

static ErrCode validate_bytes(const uint8_t *data, size_t size, ValidateFlags flags, Error *err) {
    return doc_validate(data, size, BSON_DEPTH_MAX, flags, err);
}

/* Reads everything that doc.h can reach, so that a sanitizer sees it. */
static void walk(Doc doc) {
    CLEANUP(buffer_done) Buffer text;
    buffer_init(&text, BUFFER_UNBOUNDED);
    json_append_doc(&text, doc, 1 << 20);
    EXPECT_EQ_I64(doc_compare(doc, doc, NULL), 0);
    Elem elem;
    for (DocIter iter = doc_iter(doc); doc_iter_next(&iter, &elem);)
        EXPECT(elem.data + elem_size(elem) <= doc.data + doc_size(doc));
}

static void expect_refused(const char *bytes, size_t size, const char *message) {
    Error err = {0};
    uint8_t *copy = xmemdup(bytes, size);
    if (validate_bytes(copy, size, VALIDATE_UTF8 | VALIDATE_UNIQUE, &err) == ERR_OK)
        test_fail(__FILE__, __LINE__, "accepted, expected: %s", message);
    else
        EXPECT_STR(error_message(&err), message);
    xfree(copy);
    error_reset(&err);
}
#define EXPECT_REFUSED(literal, message) expect_refused((literal), sizeof(literal) - 1, (message))

TEST(bad_documents_are_refused_with_the_field_at_fault) {
    EXPECT_REFUSED("", "incorrect BSON length 0");
    EXPECT_REFUSED("\5\0\0\0", "incorrect BSON length 4");
    EXPECT_REFUSED("\6\0\0\0\0", "incorrect BSON length 6");
    EXPECT_REFUSED("\4\0\0\0\0", "incorrect BSON length 4");
    EXPECT_REFUSED("\xff\xff\xff\xff\0", "incorrect BSON length -1");
    EXPECT_REFUSED("\5\0\0\0\0\0", "BSON document of 5 bytes is followed by 1 more bytes");
    EXPECT_REFUSED("\5\0\0\0\1", "BSON document is not terminated, at offset 4");
    EXPECT_REFUSED("\6\0\0\0\0\0",
                   "BSON document ends 1 bytes before its length says, at offset 4");
    EXPECT_REFUSED("\7\0\0\0\x0a"
                   "a\0",
                   "field name is not terminated, at offset 4");
    EXPECT_REFUSED("\x08\0\0\0\x20"
                   "a\0\0",
                   "unrecognized BSON type 32 in element with field name 'a'");
    EXPECT_REFUSED("\x09\0\0\0\x08"
                   "a\0\2\0",
                   "boolean is neither 0 nor 1 but 2 in element with field name 'a'");
    EXPECT_REFUSED("\x0b\0\0\0\x10"
                   "a\0\0\0\0\0",
                   "incorrect BSON length 4 of value in element with field name 'a'");
    EXPECT_REFUSED("\x0d\0\0\0\2"
                   "a\0\0\0\0\0\0\0",
                   "incorrect BSON length 0 of string in element with field name 'a'");
    EXPECT_REFUSED("\x0d\0\0\0\2"
                   "a\0\2\0\0\0\0\0",
                   "incorrect BSON length 2 of string in element with field name 'a'");
    EXPECT_REFUSED("\x0d\0\0\0\2"
                   "a\0\1\0\0\0x\0",
                   "string is not terminated in element with field name 'a'");
    EXPECT_REFUSED("\x0e\0\0\0\2"
                   "a\0\2\0\0\0\xff\0\0",
                   "string is not valid UTF-8 in element with field name 'a'");
    EXPECT_REFUSED("\x0b\0\0\0\x0b"
                   "a\0xyz\0",
                   "regular expression is not terminated in element with field name 'a'");
    EXPECT_REFUSED("\x0d\0\0\0\5"
                   "a\0\1\0\0\0\0\0",
                   "incorrect BSON length 1 of binary data in element with field name 'a'");
    EXPECT_REFUSED("\x11\0\0\0\5"
                   "a\0\4\0\0\0\2\1\0\0\0\0",
                   "incorrect BSON length 4 of binary data of subtype 2 in element with field "
                   "name 'a'");
    EXPECT_REFUSED("\x0d\0\0\0\3"
                   "a\0\6\0\0\0\0\0",
                   "incorrect BSON length 6 of document in element with field name 'a'");
    EXPECT_REFUSED("\x0b\0\0\0\x0a"
                   "a\0\x0a"
                   "a\0\0",
                   "duplicate field name 'a'");
    EXPECT_REFUSED("\x08\0\0\0\x0a\xc0\0\0", "field name is not valid UTF-8");
}

TEST(depth_is_limited_through_documents_arrays_and_scopes) {
    static const BsonType TYPES[] = {BT_DOC, BT_ARRAY, BT_CODE_W_SCOPE};
    for (size_t t = 0; t < ARRAY_LEN(TYPES); t++) {
        for (uint32_t levels = BSON_DEPTH_MAX; levels <= BSON_DEPTH_MAX + 1; levels++) {
            Error err = {0};
            /* From the inside out: each level wraps the bytes so far. */
            uint8_t *data = xmemdup(DOC_EMPTY_BYTES, 5);
            for (uint32_t i = 1; i < levels; i++) {
                CLEANUP(buffer_done) Buffer buf;
                buffer_init(&buf, BUFFER_UNBOUNDED);
                DocBuilder b;
                doc_builder_init(&b, &buf);
                bool is_code = TYPES[t] == BT_CODE_W_SCOPE;
                uint32_t head_size = is_code ? 9 : 0;
                uint32_t size = doc_size((Doc){data});
                uint8_t *at = build_value(&b, TYPES[t], STR(""), head_size + size);
                int32_t head[2] = {(int32_t)(head_size + size), 1};
                memcpy(at, head, is_code ? 8 : 0);
                if (is_code)
                    at[8] = '\0';
                memcpy(at + head_size, data, size);
                xfree(data);
                data = doc_copy_heap(doc_builder_end(&b));
            }
            uint32_t size = doc_size((Doc){data});
            ErrCode rc = validate_bytes(data, size, VALIDATE_UTF8 | VALIDATE_UNIQUE, &err);
            EXPECT_EQ_I64(rc, levels <= BSON_DEPTH_MAX ? ERR_OK : ERR_OVERFLOW);
            error_reset(&err);
            EXPECT_EQ_I64(doc_validate(data, size, 3, VALIDATE_BASIC, &err), ERR_OVERFLOW);
            error_reset(&err);
            xfree(data);
        }
    }
}

static void check_all_damage(const uint8_t *data, size_t size) {
    Error err = {0};
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *copy = xmemdup(data, cut);
        EXPECT(validate_bytes(copy, cut, VALIDATE_BASIC, &err) != ERR_OK);
        if (cut >= 5) { /* with a length that fits, the damage is further inside */
            int32_t cut_size = (int32_t)cut;
            memcpy(copy, &cut_size, sizeof(cut_size));
            copy[cut - 1] = '\0';
            if (validate_bytes(copy, cut, VALIDATE_UTF8, &err) == ERR_OK)
                walk((Doc){copy});
        }
        xfree(copy);
    }
    for (size_t bit = 0; bit < 8 * size; bit++) {
        uint8_t *copy = xmemdup(data, size);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (validate_bytes(copy, size, VALIDATE_BASIC, &err) == ERR_OK) {
            walk((Doc){copy});
            /* libbson always wants UTF-8. */
            bson_t foreign;
            bson_validate_flags_t flags = BSON_VALIDATE_UTF8 | BSON_VALIDATE_UTF8_ALLOW_NULL;
            bool is_utf8 = validate_bytes(copy, size, VALIDATE_UTF8, &err) == ERR_OK;
            EXPECT(bson_init_static(&foreign, copy, size));
            EXPECT(!is_utf8 || bson_validate(&foreign, flags, NULL));
        }
        xfree(copy);
    }
    error_reset(&err);
}

TEST(damaged_documents_are_refused_or_safe_to_read) {
    /* Goal: what passes can be read in full, without a byte outside of it.
     * Method: every truncation and every bit flip of documents with values of all types, each in an
     * allocation of its exact size; libbson must accept what we accept. */
    Prng prng = prng_seeded(test_seed());
    for (int i = 0; i < 24; i++) {
        Error err = {0};
        CLEANUP(buffer_done) Buffer buf;
        buffer_init(&buf, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        for (uint32_t k = 0; k < 8; k++)
            random_value(&b, STR("name"), &prng, (uint32_t)i * 4 + k, /* depth_max= */ 2);
        Doc doc = doc_builder_end(&b);
        EXPECT_OK(validate_bytes(doc.data, buf.size, VALIDATE_BASIC, &err), err);
        check_all_damage(doc.data, buf.size);
        error_reset(&err);
    }
}

TEST(repeated_names_are_found_in_large_and_nested_documents) {
    for (int is_repeated = 0; is_repeated < 2; is_repeated++) {
        for (int count = 1; count < 400; count = count * 3 / 2 + 1) {
            Error err = {0};
            CLEANUP(buffer_done) Buffer buf;
            buffer_init(&buf, BUFFER_UNBOUNDED);
            DocBuilder b;
            doc_builder_init(&b, &buf);
            size_t array = build_open_array(&b, "array");
            build_null(&b, "0"); /* names in arrays do not count */
            build_null(&b, "0");
            size_t nested = build_open_doc(&b, "1");
            for (int i = 0; i < count; i++) {
                char name[16];
                snprintf(name, sizeof(name), "f%d", i);
                build_i32(&b, name, i);
            }
            if (is_repeated)
                build_null(&b, "f0");
            build_close(&b, nested);
            build_close(&b, array);
            Doc doc = doc_builder_end(&b);
            EXPECT_EQ_I64(validate_bytes(doc.data, buf.size, VALIDATE_UNIQUE, &err),
                          is_repeated ? ERR_INVALID_BSON : ERR_OK);
            EXPECT_EQ_I64(validate_bytes(doc.data, buf.size, VALIDATE_BASIC, &err), ERR_OK);
            error_reset(&err);
        }
    }
}

TEST(texts_are_cut_between_characters) {
    static const struct {
        const char *text;
        size_t size_max;
        size_t size;
    } ROWS[] = {{"", 0, 0},          {"abc", 3, 3},       {"abc", 2, 2},
                {"a\xC3\xA9", 3, 3}, {"a\xC3\xA9", 2, 1}, {"\xE2\x82\xAC", 2, 0}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        EXPECT_EQ_U64(utf8_cut(ROWS[i].text, ROWS[i].size_max).size, ROWS[i].size);
}

TEST(utf8_is_checked_as_the_standard_says) {
    static const char *const GOOD[] = {"",
                                       "plain",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "long enough text \xe2\x82\xac and on"};
    static const char *const BAD[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xe2\x82",
                                      "long text \xe2\x82x",
                                      "12345678\xc3"};
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++)
        EXPECT(utf8_is_valid((const uint8_t *)GOOD[i], strlen(GOOD[i])));
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        EXPECT(!utf8_is_valid((const uint8_t *)BAD[i], strlen(BAD[i])));
}
