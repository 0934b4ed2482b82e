#include "bson/random_value_test.h"

#include <float.h>
#include <math.h>

#include "base/test.h"
#include "bson/decimal.h"

static const double NUMBER_PLACES[] = {
    0,       1,      -1,       0.1,       0.5,     1.5,      9.99,    -0.3,        100,
    255,     256,    127.5,    128,       0x1p31,  -0x1p31,  0x1p32,  0x1p53,      -0x1p53,
    0x1p52,  0x1p62, 0x1p63,   -0x1p63,   0x1p64,  1e15,     1e16,    1e19,        1e22,
    1e23,    -1e23,  1e34,     1e35,      DBL_MAX, -DBL_MAX, DBL_MIN, DBL_MIN / 4, 5e-324,
    -5e-324, 1e-300, INFINITY, -INFINITY, NAN,     0x1p-30,  1e-7,    123456.789,
};

static void random_number(DocBuilder *b, Str name, Prng *prng, uint32_t place);
static void random_integer(DocBuilder *b, Str name, Prng *prng, double near);
static void random_decimal(DocBuilder *b, Str name, Prng *prng, double near);
static Decimal decimal_near(Prng *prng, double near);
static void random_text(DocBuilder *b, Str name, Prng *prng, BsonType type);
static size_t random_bytes(Prng *prng, uint8_t out[16], bool with_nul);
static void random_other(DocBuilder *b, Str name, Prng *prng, uint32_t which);
static void random_nested(DocBuilder *b, Str name, Prng *prng, int depth_max);

void random_value(DocBuilder *b, Str name, Prng *prng, uint32_t place, int depth_max) {
    uint32_t number_count = ARRAY_LEN(NUMBER_PLACES);
    if (prng_below(prng, 30) == 0)
        place = (uint32_t)prng_below(prng, RANDOM_PLACES);
    if (place < number_count + 12)
        random_number(b, name, prng, place);
    else if (place < number_count + 18)
        random_text(b, name, prng, prng_below(prng, 3) == 0 ? BT_SYMBOL : BT_STRING);
    else if (place < number_count + 28 && depth_max > 0)
        random_nested(b, name, prng, depth_max);
    else
        random_other(b, name, prng, place - number_count);
}

static void random_number(DocBuilder *b, Str name, Prng *prng, uint32_t place) {
    double near;
    if (place < ARRAY_LEN(NUMBER_PLACES)) {
        near = NUMBER_PLACES[place];
    } else {
        /* Places of their own that are the same in every call. */
        Prng fixed = prng_seeded(place);
        uint64_t bits = prng_u64(&fixed);
        if (place % 2 == 0)
            near = (double)(int64_t)(bits >> (place % 60)) / 8;
        else
            memcpy(&near, &bits, sizeof(near));
        if (isnan(near))
            near = 3.25;
    }
    switch (prng_below(prng, 4)) {
    case 0:
        for (uint64_t steps = prng_below(prng, 3); steps > 0; steps--)
            near = nextafter(near, prng_below(prng, 2) ? INFINITY : -INFINITY);
        if (near == 0 && prng_below(prng, 2))
            near = -near;
        memcpy(build_value(b, BT_DOUBLE, name, 8), &near, 8);
        break;
    case 1:
        random_integer(b, name, prng, near);
        break;
    default:
        random_decimal(b, name, prng, near);
        break;
    }
}

static void random_integer(DocBuilder *b, Str name, Prng *prng, double near) {
    uint8_t bytes[8];
    memcpy(bytes, &near, sizeof(bytes));
    int64_t value = numeric_to_i64(BT_DOUBLE, bytes);
    int64_t moved;
    if (!__builtin_add_overflow(value, (int64_t)prng_below(prng, 5) - 2, &moved))
        value = moved;
    int32_t narrow = (int32_t)value;
    if (narrow == value && prng_below(prng, 2))
        memcpy(build_value(b, BT_INT32, name, 4), &narrow, 4);
    else
        memcpy(build_value(b, BT_INT64, name, 8), &value, 8);
}

static void random_decimal(DocBuilder *b, Str name, Prng *prng, double near) {
    decimal_to_value(decimal_near(prng, near),
                     build_value(b, BT_DECIMAL, name, DECIMAL_VALUE_SIZE));
}

static Decimal decimal_near(Prng *prng, double near) {
    Decimal decimal = {.is_negative = signbit(near)};
    if (!isfinite(near)) {
        decimal.kind = isnan(near) ? DECIMAL_NAN : DECIMAL_INFINITE;
        decimal.is_negative = !isnan(near) && near < 0;
        return decimal;
    }
    /* Few digits, as people write them, or all 34, which are exact for many doubles. */
    static const int DIGITS[] = {1, 2, 15, 17, 34, 34, 34};
    int digits = DIGITS[prng_below(prng, ARRAY_LEN(DIGITS))];
    char text[64];
    snprintf(text, sizeof(text), "%.*e", digits - 1, fabs(near));
    char *at = text;
    for (; *at != 'e'; at++)
        if (*at != '.')
            decimal.coefficient = decimal.coefficient * 10 + (unsigned)(*at - '0');
    decimal.exponent = (int32_t)strtol(at + 1, NULL, 10) - (digits - 1);
    if (prng_below(prng, 3) == 0 && decimal.coefficient > 0)
        decimal.coefficient += prng_below(prng, 2) ? 1 : (unsigned __int128)-1;
    if (decimal.coefficient >= decimal_power_of_ten(DECIMAL_DIGITS_MAX))
        decimal.coefficient -= 2;
    if (prng_below(prng, 2) == 0) {
        decimal = decimal_strip_zeros(decimal);
        int room = DECIMAL_DIGITS_MAX - decimal_digit_count(decimal.coefficient);
        int zeros = decimal.coefficient == 0 ? 0 : (int)prng_below(prng, (uint64_t)room + 1);
        decimal.coefficient *= decimal_power_of_ten(zeros);
        decimal.exponent -= zeros;
    }
    if (prng_below(prng, 20) == 0)
        decimal.exponent += (int32_t)prng_below(prng, 13000) - 6500;
    if (decimal.coefficient == 0)
        decimal.exponent = (int32_t)prng_below(prng, 7) - 3;
    if (decimal.exponent < DECIMAL_EXPONENT_MIN)
        decimal.exponent = DECIMAL_EXPONENT_MIN;
    if (decimal.exponent > DECIMAL_EXPONENT_MAX)
        decimal.exponent = DECIMAL_EXPONENT_MAX;
    return decimal;
}

static void random_text(DocBuilder *b, Str name, Prng *prng, BsonType type) {
    uint8_t bytes[16];
    size_t size = random_bytes(prng, bytes, /* with_nul= */ true);
    uint8_t *at = build_value(b, type, name, 4 + size + 1);
    int32_t stored_size = (int32_t)size + 1;
    memcpy(at, &stored_size, 4);
    memcpy(at + 4, bytes, size);
    at[4 + size] = '\0';
}

/* Few different bytes, all of them special to the format. */
static size_t random_bytes(Prng *prng, uint8_t out[16], bool with_nul) {
    static const uint8_t BYTES[] = {0x00, 0xFF, 0x01, 0xFE, 0x04, 'a'};
    size_t size = prng_below(prng, 5);
    for (size_t i = 0; i < size; i++)
        out[i] = BYTES[with_nul ? prng_below(prng, 6) : 1 + prng_below(prng, 5)];
    return size;
}

static void random_other(DocBuilder *b, Str name, Prng *prng, uint32_t which) {
    static const BsonType TYPES[] = {
        BT_BINARY, BT_OID,  BT_BOOL,         BT_DATE,      BT_TIMESTAMP, BT_REGEX,  BT_DBPOINTER,
        BT_CODE,   BT_NULL, BT_CODE_W_SCOPE, BT_UNDEFINED, BT_MIN_KEY,   BT_MAX_KEY};
    BsonType type = TYPES[which % ARRAY_LEN(TYPES)];
    static const uint64_t WORDS[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, INT64_MAX, 1u << 31};
    uint64_t word = WORDS[prng_below(prng, ARRAY_LEN(WORDS))];
    uint8_t bytes[16] = {0};
    switch (type) {
    case BT_BINARY: {
        size_t size = prng_below(prng, 3) == 0 ? 253 + prng_below(prng, 4) : prng_below(prng, 3);
        uint8_t *at = build_value(b, type, name, 5 + size);
        int32_t stored_size = (int32_t)size;
        memcpy(at, &stored_size, 4);
        memset(at + 4, prng_below(prng, 2) ? 0 : 0x80, 1 + size);
        break;
    }
    case BT_OID:
        bytes[prng_below(prng, 12)] = (uint8_t)(prng_below(prng, 2) * 255);
        memcpy(build_value(b, type, name, sizeof(Oid)), bytes, sizeof(Oid));
        break;
    case BT_BOOL:
        *build_value(b, type, name, 1) = (uint8_t)prng_below(prng, 2);
        break;
    case BT_DATE:
    case BT_TIMESTAMP:
        memcpy(build_value(b, type, name, 8), &word, 8);
        break;
    case BT_REGEX: {
        size_t size = random_bytes(prng, bytes, /* with_nul= */ false);
        uint8_t *at = build_value(b, type, name, size + 3);
        memcpy(at, bytes, size);
        at[size] = '\0';
        at[size + 1] = prng_below(prng, 2) ? 'i' : 'm';
        at[size + 2] = '\0';
        break;
    }
    case BT_DBPOINTER: {
        size_t size = random_bytes(prng, bytes, /* with_nul= */ false);
        uint8_t *at = build_value(b, type, name, 4 + size + 1 + sizeof(Oid));
        int32_t stored_size = (int32_t)size + 1;
        memcpy(at, &stored_size, 4);
        memcpy(at + 4, bytes, size);
        memset(at + 4 + size, 0, 1 + sizeof(Oid));
        at[4 + size + 3] = (uint8_t)word;
        break;
    }
    case BT_CODE:
        random_text(b, name, prng, type);
        break;
    case BT_CODE_W_SCOPE: {
        size_t size = random_bytes(prng, bytes, /* with_nul= */ true);
        int32_t parts[3] = {(int32_t)(4 + 4 + size + 1 + 12), (int32_t)size + 1, 12};
        uint8_t *at = build_value(b, type, name, (size_t)parts[0]);
        uint8_t scope[12] = {12, 0, 0, 0, BT_INT32, 'x', 0, (uint8_t)prng_below(prng, 3)};
        memcpy(at, parts, 8);
        memcpy(at + 8, bytes, size);
        at[8 + size] = '\0';
        memcpy(at + 8 + size + 1, scope, sizeof(scope));
        break;
    }
    default:
        build_value(b, type, name, 0);
        break;
    }
}

static void random_nested(DocBuilder *b, Str name, Prng *prng, int depth_max) {
    bool is_array = prng_below(prng, 2);
    size_t opened = is_array ? build_open_array_str(b, name) : build_open_doc_str(b, name);
    uint64_t count = prng_below(prng, 4);
    for (uint32_t i = 0; i < count; i++) {
        static const char *const NAMES[] = {"", "a", "b", "ab", "\x01", "\xff"};
        char buffer[INDEX_NAME_SIZE];
        Str field =
            is_array ? index_name(i, buffer) : str_from(NAMES[prng_below(prng, ARRAY_LEN(NAMES))]);
        uint32_t place = (uint32_t)(prng_below(prng, 2) ? i : prng_below(prng, RANDOM_PLACES));
        random_value(b, field, prng, place, depth_max - 1);
    }
    build_close(b, opened);
}
