#include "transport/wire.h"

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"
#include "base/crc32c.h"

typedef struct WireFixture {
    Buffer buf;
    WireDecoder decoder;
    WireMessage message;
    Error err;
} WireFixture;

static void wire_fixture_init(WireFixture *fx) {
    *fx = (WireFixture){0};
    buffer_init(&fx->buf, BUFFER_UNBOUNDED);
    wire_decoder_init(&fx->decoder, WIRE_COMPRESSORS_ALL);
}

static void wire_fixture_done(WireFixture *fx) {
    error_reset(&fx->err);
    wire_decoder_done(&fx->decoder);
    buffer_done(&fx->buf);
}

static void append_doc(Buffer *buf, const char *name, int32_t value) {
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_i32(&b, name, value);
    build_cstr(&b, "$db", "test");
    doc_builder_end(&b);
}

/* An insert with a body and one sequence of three documents. */
static void build_insert(WireFixture *fx, uint32_t flags) {
    size_t started = wire_request_begin(&fx->buf);
    append_doc(&fx->buf, "insert", 1);
    size_t opened = wire_sequence_begin(&fx->buf, "documents");
    for (int32_t i = 0; i < 3; i++)
        append_doc(&fx->buf, "_id", i);
    wire_sequence_end(&fx->buf, opened);
    EXPECT_OK(wire_request_finish(&fx->buf, started, 77, flags, &fx->err), fx->err);
}

static ErrCode decode(WireFixture *fx) {
    error_reset(&fx->err);
    /* A copy of exactly this size lets the sanitizer see reads past the end. */
    uint8_t *exact = xmemdup(fx->buf.data, fx->buf.size);
    ErrCode rc = wire_decode(&fx->decoder, exact, fx->buf.size, &fx->message, &fx->err);
    if (rc != ERR_OK) {
        xfree(exact);
        return rc;
    }
    /* Only what a test still looks at afterwards is kept: numbers. */
    if (fx->message.bytes == exact) {
        ptrdiff_t moved = fx->buf.data - exact;
        fx->message.body.data += moved;
        for (uint32_t i = 0; i < fx->message.sequence_count; i++) {
            fx->message.sequences[i].name.data += moved;
            fx->message.sequences[i].docs += moved;
        }
        if (fx->message.query_ns != NULL)
            fx->message.query_ns += moved;
        fx->message.bytes = fx->buf.data;
    }
    xfree(exact);
    return rc;
}

static void patch_i32(WireFixture *fx, size_t at, int32_t value) {
    memcpy(fx->buf.data + at, &value, sizeof(value));
}

static void raw_msg_begin(WireFixture *fx, uint32_t flags) {
    int32_t header[5] = {0, 5, 0, WIRE_OP_MSG, (int32_t)flags};
    buffer_append(&fx->buf, header, sizeof(header));
}

static void raw_end(WireFixture *fx) {
    patch_i32(fx, 0, (int32_t)fx->buf.size);
}

static void raw_body(WireFixture *fx, const char *name) {
    buffer_append_byte(&fx->buf, 0);
    append_doc(&fx->buf, name, 1);
}

static void raw_sequence(WireFixture *fx, const char *name) {
    size_t opened = wire_sequence_begin(&fx->buf, name);
    append_doc(&fx->buf, "_id", 1);
    wire_sequence_end(&fx->buf, opened);
}

TEST(crc32c_gives_the_known_check_value_by_both_ways) {
    EXPECT_EQ_U64(crc32c("123456789", 9), 0xE3069283u);
    EXPECT_EQ_U64(crc32c_by_table("123456789", 9), 0xE3069283u);
    Prng prng = prng_seeded(test_seed());
    uint8_t data[300];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)prng_u64(&prng);
    for (size_t size = 0; size < sizeof(data); size++) {
        EXPECT_EQ_U64(crc32c(data, size), crc32c_by_table(data, size));
        size_t part = size / 3;
        EXPECT_EQ_U64(crc32c_extend(crc32c(data, part), data + part, size - part),
                      crc32c(data, size));
    }
}

TEST(wire_request_with_sequence_decodes_to_what_was_built) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    wire_fixture_init(&fx);
    build_insert(&fx, WIRE_FLAG_EXHAUST_ALLOWED);
    REQUIRE_OK(decode(&fx), fx.err);
    EXPECT_EQ_I64(fx.message.request_id, 77);
    EXPECT_EQ_U64(fx.message.opcode, WIRE_OP_MSG);
    EXPECT(wire_is_exhaust_allowed(&fx.message));
    EXPECT(!wire_is_fire_and_forget(&fx.message));
    EXPECT_EQ_I64(elem_i32(doc_get_lit(fx.message.body, "insert")), 1);
    REQUIRE(fx.message.sequence_count == 1);
    EXPECT_STR(fx.message.sequences[0].name.data, "documents");
    EXPECT_EQ_U64(fx.message.sequences[0].count, 3);
}

TEST(wire_every_truncation_of_a_message_is_refused) {
    /* Goal: no prefix of a message decodes, whether its length was adjusted to the prefix or not.
     * Method: cut at each byte; the sanitizer watches for reads past the end. */
    for (uint32_t flags = 0; flags < 2; flags++) {
        CLEANUP(wire_fixture_done) WireFixture fx;
        wire_fixture_init(&fx);
        build_insert(&fx, flags);
        size_t whole = fx.buf.size;
        size_t body_end = WIRE_MSG_HEADER_SIZE + (size_t)load_i32(fx.buf.data + 21);
        for (size_t size = 0; size < whole; size++) {
            fx.buf.size = size;
            EXPECT(decode(&fx) != ERR_OK);
            if (size >= 4) {
                int32_t before = load_i32(fx.buf.data);
                patch_i32(&fx, 0, (int32_t)size);
                ErrCode rc = decode(&fx);
                /* A message cut right behind its body is a whole one. */
                EXPECT((rc == ERR_OK) == (flags == 0 && size == body_end));
                patch_i32(&fx, 0, before);
            }
        }
    }
}

TEST(wire_random_damage_never_reads_out_of_bounds) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    wire_fixture_init(&fx);
    Prng prng = prng_seeded(test_seed());
    for (int round = 0; round < 5000; round++) {
        buffer_clear(&fx.buf);
        build_insert(&fx, 0);
        for (uint64_t hits = 1 + prng_below(&prng, 4); hits > 0; hits--)
            fx.buf.data[16 + prng_below(&prng, fx.buf.size - 16)] = (uint8_t)prng_u64(&prng);
        (void)!decode(&fx);
    }
}

TEST(wire_lying_lengths_close_the_connection) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    wire_fixture_init(&fx);
    build_insert(&fx, 0);
    static const int32_t LIES[] = {0, 15, -1, INT32_MIN, WIRE_MESSAGE_SIZE_MAX + 1, INT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(LIES); i++) {
        patch_i32(&fx, 0, LIES[i]);
        uint32_t size;
        EXPECT(!wire_message_size(fx.buf.data, &size));
        EXPECT(decode(&fx) != ERR_OK);
        EXPECT(fx.message.must_close);
    }
}

TEST(wire_flags_unknown_in_the_lower_half_are_fatal_and_ignored_in_the_upper) {
    for (int bit = 0; bit < 32; bit++) {
        CLEANUP(wire_fixture_done) WireFixture fx;
        wire_fixture_init(&fx);
        raw_msg_begin(&fx, 1u << bit);
        raw_body(&fx, "ping");
        raw_end(&fx);
        ErrCode rc = decode(&fx);
        if (bit == 0)
            EXPECT(rc == ERR_CHECKSUM_MISMATCH && fx.message.must_close);
        else if (bit == 1 || bit >= 16)
            EXPECT(rc == ERR_OK);
        else
            EXPECT(rc == ERR_ILLEGAL_OP_MSG_FLAG && fx.message.must_close);
    }
}

TEST(wire_checksum_is_verified_over_every_byte) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    wire_fixture_init(&fx);
    build_insert(&fx, WIRE_FLAG_CHECKSUM);
    EXPECT_OK(decode(&fx), fx.err);
    for (size_t at = WIRE_MSG_HEADER_SIZE; at < fx.buf.size; at++) {
        fx.buf.data[at] ^= 0x40;
        EXPECT_EQ_I64(decode(&fx), ERR_CHECKSUM_MISMATCH);
        EXPECT(fx.message.must_close);
        fx.buf.data[at] ^= 0x40;
    }
}

TEST(wire_sections_follow_their_rules) {
    static const struct {
        const char *bodies[3];
        const char *sequences[3];
        int kind; /* an extra section of that kind when not 0 */
        int expected;
    } CASES[] = {
        {{"a"}, {0}, 0, 0},        {{0}, {0}, 0, 40587},
        {{0}, {"docs"}, 0, 40587}, {{"a", "b"}, {0}, 0, 40430},
        {{"a"}, {"x", "y"}, 0, 0}, {{"a"}, {"x", "x"}, 0, 40431},
        {{"a"}, {"a"}, 0, 40433},  {{"a"}, {0}, 2, ERR_UNAUTHORIZED},
        {{"a"}, {0}, 3, 40432},    {{"a"}, {0}, 255, 40432},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(wire_fixture_done) WireFixture fx;
        wire_fixture_init(&fx);
        raw_msg_begin(&fx, 0);
        for (int k = 0; CASES[i].sequences[k] != NULL; k++)
            raw_sequence(&fx, CASES[i].sequences[k]);
        for (int k = 0; CASES[i].bodies[k] != NULL; k++)
            raw_body(&fx, CASES[i].bodies[k]);
        if (CASES[i].kind != 0) {
            buffer_append_byte(&fx.buf, (uint8_t)CASES[i].kind);
            append_doc(&fx.buf, "z", 1);
        }
        raw_end(&fx);
        EXPECT_EQ_I64(decode(&fx), CASES[i].expected);
        EXPECT(!fx.message.must_close);
    }
}

TEST(wire_sequences_above_the_limit_are_refused) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    wire_fixture_init(&fx);
    raw_msg_begin(&fx, 0);
    raw_body(&fx, "a");
    for (int i = 0; i <= WIRE_SEQUENCES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d", i);
        raw_sequence(&fx, name);
    }
    raw_end(&fx);
    EXPECT_EQ_I64(decode(&fx), ERR_BAD_VALUE);
}

static void build_op_query(WireFixture *fx, bool with_fields) {
    int32_t header[5] = {0, 9, 0, WIRE_OP_QUERY, 4};
    int32_t numbers[2] = {0, -1};
    buffer_append(&fx->buf, header, sizeof(header));
    buffer_append(&fx->buf, "admin.$cmd", 11);
    buffer_append(&fx->buf, numbers, sizeof(numbers));
    append_doc(&fx->buf, "isMaster", 1);
    if (with_fields)
        append_doc(&fx->buf, "x", 1);
    raw_end(fx);
}

TEST(wire_op_query_decodes_and_every_truncation_is_refused) {
    for (int with_fields = 0; with_fields < 2; with_fields++) {
        CLEANUP(wire_fixture_done) WireFixture fx;
        wire_fixture_init(&fx);
        build_op_query(&fx, with_fields);
        REQUIRE_OK(decode(&fx), fx.err);
        EXPECT_STR(fx.message.query_ns, "admin.$cmd");
        EXPECT_EQ_I64(fx.message.query_return, -1);
        EXPECT_EQ_U64(fx.message.flags, 4);
        EXPECT(elem_is_present(doc_get_lit(fx.message.body, "isMaster")));
        size_t whole = fx.buf.size;
        size_t first_end = 20 + 11 + 8 + doc_size(fx.message.body);
        for (size_t size = WIRE_HEADER_SIZE; size < whole; size++) {
            fx.buf.size = size;
            raw_end(&fx);
            EXPECT((decode(&fx) == ERR_OK) == (size == first_end));
        }
    }
}

TEST(wire_unknown_opcodes_are_refused_and_fatal) {
    static const int32_t OPCODES[] = {0, 1, 2001, 2002, 2005, 2010, 2014, -1};
    for (size_t i = 0; i < ARRAY_LEN(OPCODES); i++) {
        CLEANUP(wire_fixture_done) WireFixture fx;
        wire_fixture_init(&fx);
        build_insert(&fx, 0);
        patch_i32(&fx, 12, OPCODES[i]);
        EXPECT_EQ_I64(decode(&fx), ERR_PROTOCOL_ERROR);
        EXPECT(fx.message.must_close);
    }
}

TEST(wire_compressed_messages_round_trip_with_all_compressors) {
    for (int compressor = 0; compressor < WIRE_COMPRESSOR_COUNT; compressor++)
        for (uint32_t flags = 0; flags < 2; flags++) {
            CLEANUP(wire_fixture_done) WireFixture fx;
            wire_fixture_init(&fx);
            build_insert(&fx, flags);
            EXPECT_OK(wire_request_compress(&fx.buf, 0, (WireCompressor)compressor, &fx.err),
                      fx.err);
            REQUIRE_OK(decode(&fx), fx.err);
            EXPECT_EQ_U64(fx.message.compressor, compressor);
            EXPECT_EQ_U64(fx.message.opcode, WIRE_OP_MSG);
            EXPECT_EQ_I64(fx.message.request_id, 77);
            EXPECT_EQ_U64(fx.message.sequences[0].count, 3);
            size_t whole = fx.buf.size;
            for (size_t size = WIRE_HEADER_SIZE; size < whole; size++) {
                fx.buf.size = size;
                raw_end(&fx);
                EXPECT(decode(&fx) != ERR_OK);
                EXPECT(fx.message.must_close);
            }
        }
}

TEST(wire_compressed_message_that_lies_about_its_size_is_refused) {
    for (int compressor = 0; compressor < WIRE_COMPRESSOR_COUNT; compressor++) {
        static const int32_t OFFSETS[] = {-1, 1, 100};
        static const int32_t SIZES[] = {-1, INT32_MIN, INT32_MAX, WIRE_MESSAGE_SIZE_MAX};
        CLEANUP(wire_fixture_done) WireFixture fx;
        wire_fixture_init(&fx);
        build_insert(&fx, 0);
        EXPECT_OK(wire_request_compress(&fx.buf, 0, (WireCompressor)compressor, &fx.err), fx.err);
        int32_t truth = load_i32(fx.buf.data + 20);
        for (size_t i = 0; i < ARRAY_LEN(OFFSETS); i++) {
            patch_i32(&fx, 20, truth + OFFSETS[i]);
            EXPECT(decode(&fx) != ERR_OK);
        }
        for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
            patch_i32(&fx, 20, SIZES[i]);
            EXPECT(decode(&fx) != ERR_OK);
        }
        patch_i32(&fx, 20, truth);
        EXPECT_OK(decode(&fx), fx.err);
    }
}

TEST(wire_inflating_never_writes_past_the_stated_size) {
    /* Goal: a stream that holds more than it claims does not spill over.
     * Method: canary bytes behind the claimed end of the output buffer, all claims below truth. */
    uint8_t data[500];
    memset(data, 'x', sizeof(data));
    for (int compressor = 0; compressor < WIRE_COMPRESSOR_COUNT; compressor++) {
        CLEANUP(buffer_done) Buffer packed = {0};
        buffer_init(&packed, BUFFER_UNBOUNDED);
        EXPECT(wire_deflate((WireCompressor)compressor, data, sizeof(data), &packed));
        for (size_t claim = 0; claim <= sizeof(data); claim++) {
            CLEANUP(buffer_done) Buffer out = {0};
            buffer_init(&out, BUFFER_UNBOUNDED);
            buffer_append_byte(&out, 'c');
            invariant(buffer_reserve(&out, 1000) != NULL);
            memset(out.data + 1, 0xCA, 1000);
            Error err = {0};
            ErrCode rc = wire_inflate((WireCompressor)compressor, packed.data, packed.size, claim,
                                      &out, &err);
            EXPECT((rc == ERR_OK) == (claim == sizeof(data)));
            EXPECT_EQ_U64(out.size, rc == ERR_OK ? 1 + claim : 1);
            for (size_t i = claim; i < 1000; i++)
                EXPECT(out.data[1 + i] == 0xCA);
            error_reset(&err);
        }
    }
}

TEST(wire_compressed_inside_compressed_and_unknown_or_disabled_compressors_are_refused) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    wire_fixture_init(&fx);
    build_insert(&fx, 0);
    EXPECT_OK(wire_request_compress(&fx.buf, 0, WIRE_COMPRESSOR_NOOP, &fx.err), fx.err);
    patch_i32(&fx, 16, WIRE_OP_COMPRESSED);
    EXPECT_EQ_I64(decode(&fx), ERR_PROTOCOL_ERROR);
    patch_i32(&fx, 16, WIRE_OP_MSG);
    EXPECT_OK(decode(&fx), fx.err);
    fx.buf.data[24] = 4;
    EXPECT_EQ_I64(decode(&fx), ERR_BAD_VALUE);
    fx.buf.data[24] = WIRE_COMPRESSOR_NOOP;
    fx.decoder.compressors = WIRE_COMPRESSOR_BIT(WIRE_COMPRESSOR_ZLIB);
    EXPECT_EQ_I64(decode(&fx), ERR_BAD_VALUE);
}

TEST(wire_replies_of_all_forms_decode_to_the_same_document) {
    for (int form = 0; form < 64; form++) {
        WireReplyInfo info = {
            .request_id = 3,
            .response_to = 77,
            .is_op_reply = (form & 1) != 0,
            .more_to_come = (form & 2) != 0,
            .has_checksum = (form & 4) != 0,
            .compressor = (form >> 3) < WIRE_COMPRESSOR_COUNT ? (WireCompressor)(form >> 3)
                                                              : WIRE_COMPRESSOR_NONE,
        };
        CLEANUP(wire_fixture_done) WireFixture fx;
        wire_fixture_init(&fx);
        CLEANUP(buffer_done) Buffer scratch = {0};
        buffer_init(&scratch, BUFFER_UNBOUNDED);
        wire_reply_begin(&fx.buf);
        DocBuilder b;
        doc_builder_init(&b, &fx.buf);
        build_i32(&b, "ok", 1);
        build_cstr(&b, "pad",
                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        doc_builder_end(&b);
        const Buffer *out;
        REQUIRE_OK(wire_reply_finish(&fx.buf, &info, &scratch, &out, &fx.err), fx.err);
        REQUIRE_OK(wire_decode_reply(&fx.decoder, out->data, out->size, &fx.message, &fx.err),
                   fx.err);
        EXPECT_EQ_I64(fx.message.response_to, 77);
        EXPECT_EQ_I64(fx.message.request_id, 3);
        EXPECT_EQ_I64(elem_i32(doc_get_lit(fx.message.body, "ok")), 1);
        EXPECT_EQ_U64(fx.message.opcode, info.is_op_reply ? WIRE_OP_REPLY : WIRE_OP_MSG);
        if (info.is_op_reply)
            EXPECT_EQ_U64(fx.message.flags, WIRE_REPLY_AWAIT_CAPABLE);
        else
            EXPECT(wire_is_fire_and_forget(&fx.message) == info.more_to_come);
    }
}

TEST(wire_reply_above_its_bound_fails_with_too_large) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    wire_fixture_init(&fx);
    fx.buf.size_max = 1000;
    CLEANUP(buffer_done) Buffer scratch = {0};
    buffer_init(&scratch, BUFFER_UNBOUNDED);
    wire_reply_begin(&fx.buf);
    for (int i = 0; i < 300; i++)
        buffer_append(&fx.buf, DOC_EMPTY_BYTES, sizeof(DOC_EMPTY_BYTES));
    const Buffer *out;
    WireReplyInfo info = {.compressor = WIRE_COMPRESSOR_NONE};
    EXPECT_EQ_I64(wire_reply_finish(&fx.buf, &info, &scratch, &out, &fx.err),
                  ERR_BSON_OBJECT_TOO_LARGE);
}

TEST(wire_document_deeper_than_the_limit_is_refused) {
    CLEANUP(wire_fixture_done) WireFixture fx;
    for (int depth = 150; depth <= 250; depth += 100) {
        wire_fixture_init(&fx);
        size_t started = wire_request_begin(&fx.buf);
        DocBuilder b;
        doc_builder_init(&b, &fx.buf);
        size_t opened[256];
        for (int i = 0; i < depth; i++)
            opened[i] = build_open_doc(&b, "a");
        for (int i = depth - 1; i >= 0; i--)
            build_close(&b, opened[i]);
        doc_builder_end(&b);
        EXPECT_OK(wire_request_finish(&fx.buf, started, 1, 0, &fx.err), fx.err);
        EXPECT((decode(&fx) == ERR_OK) == (depth == 150));
        EXPECT(!fx.message.must_close);
        if (depth == 150)
            wire_fixture_done(&fx);
    }
}
