/*
 * bson_bench.c - nanoseconds per operation of what runs for every document: validation, keys,
 * comparison. A program of its own; prints one line per case.
 */
#include <stdio.h>

#include "base/clock.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "bson/keystring.h"
#include "bson/validate.h"

enum {
    ROUNDS = 5,
    REPEATS = 1000000,
};

typedef struct Bench {
    Doc doc;
    Doc other;
    KeyBuilder key;
    Arena arena;
    Error err;
    uint64_t sink;
} Bench;

static void run_validate(Bench *bench) {
    bench->sink +=
        doc_validate(bench->doc.data, doc_size(bench->doc), BSON_DEPTH_MAX, 0, &bench->err);
}

static void run_validate_utf8(Bench *bench) {
    bench->sink += doc_validate(bench->doc.data, doc_size(bench->doc), BSON_DEPTH_MAX,
                                VALIDATE_UTF8, &bench->err);
}

static void run_get_last(Bench *bench) {
    bench->sink += doc_get_lit(bench->doc, "last").name_size;
}

static void run_compare(Bench *bench) {
    bench->sink += (uint64_t)doc_compare(bench->doc, bench->other, NULL);
}

static void run_hash(Bench *bench) {
    bench->sink += elem_hash((Elem){bench->doc.data + 4, 0}, NULL);
}

static void run_key(Bench *bench) {
    KeyBuilder *key = &bench->key;
    key_builder_reset(key, 0);
    key_append_doc_fields(key, bench->doc, NULL);
    key_append_end(key, KEY_END_EXACT);
    key_append_record_id(key, record_id_num(123456));
    bench->sink += key->key.size;
}

static void run_key_decode(Bench *bench) {
    const KeyBuilder *key = &bench->key;
    Str bits = key_type_bits(key);
    Doc doc = DOC_EMPTY;
    bench->sink += key_decode(key->key.data, key->key.size, (const uint8_t *)bits.data, bits.size,
                              key->order, &bench->arena, &doc, &bench->err);
    arena_reset(&bench->arena);
}

static void measure(const char *name, Bench *bench, void (*run)(Bench *bench)) {
    int64_t best_us = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = clock_thread_cpu_us();
        for (int i = 0; i < REPEATS; i++)
            run(bench);
        int64_t us = clock_thread_cpu_us() - start;
        if (us < best_us)
            best_us = us;
    }
    printf("%-32s %7.1f ns  (document of %u bytes)\n", name, (double)best_us * 1000 / REPEATS,
           doc_size(bench->doc));
}

static void build_typical(DocBuilder *b) {
    Oid oid = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
    build_oid(b, "_id", &oid);
    build_cstr(b, "customer_name", "Johanna van der Meer");
    build_i32(b, "quantity", 17);
    build_f64(b, "unit_price", 129.95);
    build_date(b, "created_at", 1700000000000);
    build_cstr(b, "description", "a text of the length that descriptions tend to have, or so");
    size_t nested = build_open_doc(b, "address");
    build_cstr(b, "city", "Rotterdam");
    build_cstr(b, "zip", "3011 AB");
    build_close(b, nested);
    build_bool(b, "is_paid", true);
    build_i64(b, "serial", INT64_C(1) << 40);
    build_cstr(b, "last", "end");
}

int main(void) {
    Bench bench = {0};
    key_builder_init(&bench.key);
    Buffer buf;
    Buffer other_buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    buffer_init(&other_buf, BUFFER_UNBOUNDED);
    DocBuilder b;

    doc_builder_init(&b, &buf);
    build_typical(&b);
    bench.doc = doc_builder_end(&b);
    doc_builder_init(&b, &other_buf);
    build_typical(&b);
    bench.other = doc_builder_end(&b);
    measure("validate, 10 fields", &bench, run_validate);
    measure("validate with UTF-8", &bench, run_validate_utf8);
    measure("find the last of 10 fields", &bench, run_get_last);
    measure("compare equal documents", &bench, run_compare);
    measure("key of all fields", &bench, run_key);
    measure("decode that key", &bench, run_key_decode);

    static const BsonType TYPES[] = {BT_INT32, BT_INT64, BT_DOUBLE, BT_DECIMAL, BT_OID, BT_STRING};
    for (size_t i = 0; i < ARRAY_LEN(TYPES); i++) {
        Buffer *buffers[] = {&buf, &other_buf};
        for (int k = 0; k < 2; k++) {
            static const uint8_t DECIMAL_9_99[16] = {0xE7, 3, [14] = 0x3C, [15] = 0x30};
            Oid oid = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
            buffer_clear(buffers[k]);
            doc_builder_init(&b, buffers[k]);
            if (TYPES[i] == BT_INT32)
                build_i32(&b, "", 123456);
            else if (TYPES[i] == BT_INT64)
                build_i64(&b, "", INT64_C(1) << 40);
            else if (TYPES[i] == BT_DOUBLE)
                build_f64(&b, "", 129.95);
            else if (TYPES[i] == BT_DECIMAL)
                memcpy(build_value(&b, BT_DECIMAL, STR(""), 16), DECIMAL_9_99, 16);
            else if (TYPES[i] == BT_OID)
                build_oid(&b, "", &oid);
            else
                build_cstr(&b, "", "Johanna van der Meer");
            Doc doc = doc_builder_end(&b);
            *(k == 0 ? &bench.doc : &bench.other) = doc;
        }
        char name[64];
        snprintf(name, sizeof(name), "key of one %s", bson_type_name(TYPES[i]));
        measure(name, &bench, run_key);
        snprintf(name, sizeof(name), "decode that key");
        measure(name, &bench, run_key_decode);
        snprintf(name, sizeof(name), "compare two of type %s", bson_type_name(TYPES[i]));
        measure(name, &bench, run_compare);
        snprintf(name, sizeof(name), "hash of one %s", bson_type_name(TYPES[i]));
        measure(name, &bench, run_hash);
    }
    printf("(%llu)\n", (unsigned long long)bench.sink);
    buffer_done(&buf);
    buffer_done(&other_buf);
    key_builder_done(&bench.key);
    arena_done(&bench.arena);
    return 0;
}
