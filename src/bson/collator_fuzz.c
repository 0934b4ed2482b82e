/*
 * collator_fuzz.c - collation documents from outside: any is taken or refused, what is taken is
 * complete, and texts of any bytes have sort keys that order as comparison does.
 *
 * Input: a locale up to a NUL, one byte per option, then two texts with a NUL between them.
 */
#include "bson/builder.h"
#include "bson/collator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Input {
    const uint8_t *at;
    const uint8_t *end;
} Input;

static uint8_t take(Input *in) {
    return in->at < in->end ? *in->at++ : 0;
}

static Str take_text(Input *in, size_t size_max) {
    const uint8_t *start = in->at;
    while (in->at < in->end && *in->at != 0 && (size_t)(in->at - start) < size_max)
        in->at++;
    Str text = {(const char *)start, (size_t)(in->at - start)};
    (void)take(in);
    return text;
}

static Doc build_spec(Input *in, Buffer *buf) {
    static const char *const LOCALES[] = {"en", "fr_CA", "zh", "simple", "de@collation=phonebook"};
    static const char *const CASES[] = {"off", "upper", "lower", "x"};
    DocBuilder b;
    doc_builder_init(&b, buf);
    uint8_t which = take(in);
    if (which < ARRAY_LEN(LOCALES))
        build_cstr(&b, "locale", LOCALES[which]);
    else
        build_str(&b, "locale", take_text(in, 40));
    uint8_t options = take(in), values = take(in);
    if (options & 1)
        build_i32(&b, "strength", values % 7);
    if (options & 2)
        build_bool(&b, "caseLevel", values & 1);
    if (options & 4)
        build_cstr(&b, "caseFirst", CASES[values % ARRAY_LEN(CASES)]);
    if (options & 8)
        build_bool(&b, "numericOrdering", values & 2);
    if (options & 16)
        build_cstr(&b, "alternate", values & 4 ? "shifted" : "non-ignorable");
    if (options & 32)
        build_bool(&b, "backwards", values & 8);
    if (options & 64)
        build_bool(&b, "normalization", values & 16);
    if (options & 128)
        build_cstr(&b, "maxVariable", values & 32 ? "space" : "punct");
    return doc_builder_end(&b);
}

static int sign(int order) {
    return (order > 0) - (order < 0);
}

static void check_texts(const Collator *collator, Str a, Str b) {
    CLEANUP(buffer_done) Buffer a_key, b_key;
    buffer_init(&a_key, BUFFER_UNBOUNDED);
    buffer_init(&b_key, BUFFER_UNBOUNDED);
    collator->append_sort_key(collator, a, &a_key);
    collator->append_sort_key(collator, b, &b_key);
    size_t common = a_key.size < b_key.size ? a_key.size : b_key.size;
    int order = common == 0 ? 0 : memcmp(a_key.data, b_key.data, common);
    if (order == 0)
        order = (a_key.size > b_key.size) - (a_key.size < b_key.size);
    invariant(sign(order) == sign(collator->compare(collator, a, b)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in = {data, data + size};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    const Collator *collator, *again;
    if (collator_parse(build_spec(&in, &buf), &collator, &err) != ERR_OK || collator == NULL)
        return 0;
    invariant(collator_parse(collator->spec, &again, &err) == ERR_OK);
    invariant(again == collator);
    Str a = take_text(&in, 1000);
    check_texts(collator, a, (Str){(const char *)in.at, (size_t)(in.end - in.at)});
    return 0;
}
