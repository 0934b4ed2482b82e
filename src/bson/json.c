#include "bson/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <bson/bson.h>

#include "bson/validate.h"

enum {
    JSON_DEPTH_MAX = 2 * BSON_DEPTH_MAX,
    SHELL_TEXT_SIZE_MAX = 64 * 1024,
    DOUBLE_TEXT_SIZE = 48,
    UUID_SIZE = 16,
};

/* 9999-12-31T23:59:59.999Z; later and negative dates have no ISO form in extended JSON. */
#define DATE_ISO_MAX_MS INT64_C(253402300799999)

/* Text with a bound. One byte more than fits is kept, as the sign that something was cut off. */
typedef struct TextWriter {
    Buffer *out;
    size_t start;
    size_t size_max;
    bool is_shell; /* shell form, else extended JSON */
} TextWriter;

static TextWriter text_begin(Buffer *out, size_t size_max, bool is_shell);
static void text_end(TextWriter *w);
static bool text_is_full(const TextWriter *w);
static void put(TextWriter *w, const char *data, size_t size);
static void put_text(TextWriter *w, const char *text);
static void put_format(TextWriter *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void put_quoted(TextWriter *w, Str text);
static void put_hex(TextWriter *w, const uint8_t *data, size_t size, bool is_upper);
static void put_base64(TextWriter *w, const uint8_t *data, size_t size);
static void put_doc(TextWriter *w, Doc doc, bool is_array, int depth);
static void put_value(TextWriter *w, BsonType type, const uint8_t *value, int depth);
static bool put_common(TextWriter *w, BsonType type, const uint8_t *value, int depth);
static void put_json_value(TextWriter *w, BsonType type, const uint8_t *value, int depth);
static void put_shell_value(TextWriter *w, BsonType type, const uint8_t *value, int depth);
static void put_double(TextWriter *w, double value);
static void put_json_date(TextWriter *w, int64_t wall_ms);
static void put_json_binary(TextWriter *w, const uint8_t *value);
static void put_shell_binary(TextWriter *w, const uint8_t *value);
static void put_code_w_scope(TextWriter *w, const uint8_t *value, int depth);
static void put_oid(TextWriter *w, const uint8_t *value);
static void put_decimal(TextWriter *w, const uint8_t *value);
static char *requote(const char *json, Arena *arena);

static inline Str value_str(const uint8_t *value) {
    return (Str){(const char *)value + 4, (size_t)load_i32(value) - 1};
}

void json_append_doc(Buffer *out, Doc doc, size_t size_max) {
    TextWriter w = text_begin(out, size_max, /* is_shell= */ false);
    put_doc(&w, doc, /* is_array= */ false, 0);
    text_end(&w);
}

void json_append_elem(Buffer *out, Elem elem, size_t size_max) {
    TextWriter w = text_begin(out, size_max, /* is_shell= */ false);
    if (elem_is_present(elem))
        put_value(&w, elem_type(elem), elem_value(elem), 0);
    else
        put_text(&w, "null");
    text_end(&w);
}

void json_append_string(Buffer *out, Str text) {
    TextWriter w = text_begin(out, SIZE_MAX, /* is_shell= */ false);
    put_quoted(&w, text);
}

LogAttr json_log_attr(const char *name, Doc doc, Buffer *text) {
    json_append_doc(text, doc, log_attr_bytes_max() / 2);
    bool is_cut = text->data[text->size - 1] != '}';
    buffer_append_byte(text, '\0');
    const char *json = (const char *)text->data;
    return is_cut ? LOG_STR(name, json) : LOG_JSON(name, json);
}

char *shell_text_of_doc(Doc doc, Arena *arena) {
    Buffer out;
    buffer_init_arena(&out, arena, 128, 2 * SHELL_TEXT_SIZE_MAX);
    TextWriter w = text_begin(&out, SHELL_TEXT_SIZE_MAX, /* is_shell= */ true);
    put_doc(&w, doc, /* is_array= */ false, 0);
    text_end(&w);
    buffer_append_byte(&out, '\0');
    return (char *)out.data;
}

char *shell_text_of_elem(Elem elem, Arena *arena) {
    Buffer out;
    buffer_init_arena(&out, arena, 128, 2 * SHELL_TEXT_SIZE_MAX);
    TextWriter w = text_begin(&out, SHELL_TEXT_SIZE_MAX, /* is_shell= */ true);
    if (elem_is_present(elem))
        put_value(&w, elem_type(elem), elem_value(elem), 0);
    else
        put_text(&w, "missing");
    text_end(&w);
    buffer_append_byte(&out, '\0');
    return (char *)out.data;
}

ErrCode doc_from_json(const char *json, Arena *arena, Doc *ret_doc, Error *err) {
    bson_error_t reason;
    const char *quoted = requote(json, arena);
    bson_t *parsed = bson_new_from_json((const uint8_t *)quoted, -1, &reason);
    if (parsed == NULL)
        return error_set(err, ERR_FAILED_TO_PARSE, "could not parse JSON: %s", reason.message);
    *ret_doc = (Doc){arena_memdup(arena, bson_get_data(parsed), parsed->len)};
    bson_destroy(parsed);
    return ERR_OK;
}

static TextWriter text_begin(Buffer *out, size_t size_max, bool is_shell) {
    return (TextWriter){out, out->size, size_max, is_shell};
}

static void text_end(TextWriter *w) {
    if (w->out->size - w->start <= w->size_max)
        return;
    size_t mark_size = w->size_max < 3 ? w->size_max : 3;
    size_t cut = w->start + w->size_max - mark_size;
    /* Not in the middle of a character. */
    while (cut > w->start && (w->out->data[cut] & 0xC0) == 0x80)
        cut--;
    w->out->size = cut;
    buffer_append(w->out, "...", mark_size);
}

static bool text_is_full(const TextWriter *w) {
    return w->out->size - w->start > w->size_max || w->out->overflowed;
}

static void put(TextWriter *w, const char *data, size_t size) {
    if (text_is_full(w))
        return;
    size_t room = w->size_max - (w->out->size - w->start);
    buffer_append(w->out, data, size > room ? room + 1 : size);
}

static void put_text(TextWriter *w, const char *text) {
    put(w, text, strlen(text));
}

/* For short pieces: numbers and fixed text. */
static void put_format(TextWriter *w, const char *fmt, ...) {
    char piece[128];
    va_list args;
    va_start(args, fmt);
    int size = vsnprintf(piece, sizeof(piece), fmt, args);
    va_end(args);
    invariant(size >= 0 && (size_t)size < sizeof(piece));
    put(w, piece, (size_t)size);
}

/* Bytes that are no UTF-8 become U+FFFD, so that the output is always valid JSON. */
static void put_quoted(TextWriter *w, Str text) {
    static const char SHORT_ESCAPES[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    bool is_utf8 = utf8_is_valid((const uint8_t *)text.data, text.size);
    const char *at = text.data;
    const char *end = text.data + text.size;
    put_text(w, "\"");
    while (at < end && !text_is_full(w)) {
        const char *plain = at;
        while (at < end && (uint8_t)*at >= 0x20 && *at != '"' && *at != '\\' &&
               (is_utf8 || (uint8_t)*at < 0x80))
            at++;
        put(w, plain, (size_t)(at - plain));
        if (at == end)
            break;
        const char *escape = NULL;
        for (const char *pair = SHORT_ESCAPES; *pair != '\0' && escape == NULL; pair += 2)
            if (*pair == *at)
                escape = pair + 1;
        if (escape != NULL)
            put_format(w, "\\%c", *escape);
        else if ((uint8_t)*at >= 0x80)
            put_text(w, "\\ufffd");
        else
            put_format(w, "\\u%04x", *at);
        at++;
    }
    put_text(w, "\"");
}

static void put_hex(TextWriter *w, const uint8_t *data, size_t size, bool is_upper) {
    const char *digits = is_upper ? "0123456789ABCDEF" : "0123456789abcdef";
    for (size_t i = 0; i < size && !text_is_full(w); i++) {
        char pair[2] = {digits[data[i] >> 4], digits[data[i] & 0xF]};
        put(w, pair, sizeof(pair));
    }
}

static void put_base64(TextWriter *w, const uint8_t *data, size_t size) {
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size && !text_is_full(w); i += 3) {
        size_t count = size - i < 3 ? size - i : 3;
        uint32_t group = (uint32_t)data[i] << 16;
        if (count > 1)
            group |= (uint32_t)data[i + 1] << 8;
        if (count > 2)
            group |= data[i + 2];
        char text[4] = {DIGITS[group >> 18], DIGITS[group >> 12 & 63], DIGITS[group >> 6 & 63],
                        DIGITS[group & 63]};
        if (count < 3)
            text[3] = '=';
        if (count < 2)
            text[2] = '=';
        put(w, text, sizeof(text));
    }
}

static void put_doc(TextWriter *w, Doc doc, bool is_array, int depth) {
    if (depth >= JSON_DEPTH_MAX) {
        put_text(w, "\"...\"");
        return;
    }
    const char *padding = w->is_shell && !doc_is_empty(doc) ? " " : "";
    put_text(w, is_array ? "[" : "{");
    put_text(w, padding);
    bool is_first = true;
    Elem elem;
    for (DocIter iter = doc_iter(doc); !text_is_full(w) && doc_iter_next(&iter, &elem);) {
        if (!is_first)
            put_text(w, w->is_shell ? ", " : ",");
        is_first = false;
        if (!is_array && w->is_shell)
            put(w, elem_name(elem), elem.name_size);
        else if (!is_array)
            put_quoted(w, elem_name_str(elem));
        if (!is_array)
            put_text(w, w->is_shell ? ": " : ":");
        put_value(w, elem_type(elem), elem_value(elem), depth + 1);
    }
    put_text(w, padding);
    put_text(w, is_array ? "]" : "}");
}

static void put_value(TextWriter *w, BsonType type, const uint8_t *value, int depth) {
    if (put_common(w, type, value, depth))
        return;
    if (w->is_shell)
        put_shell_value(w, type, value, depth);
    else
        put_json_value(w, type, value, depth);
}

/* The types that both forms write alike. */
static bool put_common(TextWriter *w, BsonType type, const uint8_t *value, int depth) {
    switch (type) {
    case BT_STRING:
        put_quoted(w, value_str(value));
        return true;
    case BT_DOC:
    case BT_ARRAY:
        put_doc(w, (Doc){value}, type == BT_ARRAY, depth);
        return true;
    case BT_BOOL:
        put_text(w, value[0] != 0 ? "true" : "false");
        return true;
    case BT_NULL:
        put_text(w, "null");
        return true;
    case BT_INT32:
        put_format(w, "%" PRId32, load_i32(value));
        return true;
    case BT_INT64:
        put_format(w, "%" PRId64, load_i64(value));
        return true;
    default:
        return false;
    }
}

static void put_json_value(TextWriter *w, BsonType type, const uint8_t *value, int depth) {
    switch (type) {
    case BT_DOUBLE:
        if (isfinite(load_f64(value))) {
            put_double(w, load_f64(value));
        } else {
            put_text(w, "{\"$numberDouble\":\"");
            put_double(w, load_f64(value));
            put_text(w, "\"}");
        }
        break;
    case BT_DECIMAL:
        put_text(w, "{\"$numberDecimal\":\"");
        put_decimal(w, value);
        put_text(w, "\"}");
        break;
    case BT_OID:
        put_text(w, "{\"$oid\":\"");
        put_oid(w, value);
        put_text(w, "\"}");
        break;
    case BT_DATE:
        put_json_date(w, load_i64(value));
        break;
    case BT_TIMESTAMP:
        put_format(w, "{\"$timestamp\":{\"t\":%" PRIu32 ",\"i\":%" PRIu32 "}}",
                   (uint32_t)load_i32(value + 4), (uint32_t)load_i32(value));
        break;
    case BT_BINARY:
        put_json_binary(w, value);
        break;
    case BT_REGEX:
        put_text(w, "{\"$regularExpression\":{\"pattern\":");
        put_quoted(w, str_from((const char *)value));
        put_text(w, ",\"options\":");
        put_quoted(w, str_from((const char *)value + strlen((const char *)value) + 1));
        put_text(w, "}}");
        break;
    case BT_SYMBOL:
    case BT_CODE:
        put_text(w, type == BT_CODE ? "{\"$code\":" : "{\"$symbol\":");
        put_quoted(w, value_str(value));
        put_text(w, "}");
        break;
    case BT_CODE_W_SCOPE:
        put_code_w_scope(w, value, depth);
        break;
    case BT_DBPOINTER:
        put_text(w, "{\"$dbPointer\":{\"$ref\":");
        put_quoted(w, value_str(value));
        put_text(w, ",\"$id\":{\"$oid\":\"");
        put_oid(w, value + 4 + load_i32(value));
        put_text(w, "\"}}}");
        break;
    case BT_MIN_KEY:
        put_text(w, "{\"$minKey\":1}");
        break;
    case BT_MAX_KEY:
        put_text(w, "{\"$maxKey\":1}");
        break;
    default:
        put_text(w, "{\"$undefined\":true}");
        break;
    }
}

static void put_shell_value(TextWriter *w, BsonType type, const uint8_t *value, int depth) {
    switch (type) {
    case BT_DOUBLE:
        put_double(w, load_f64(value));
        break;
    case BT_DECIMAL:
        put_text(w, "NumberDecimal(\"");
        put_decimal(w, value);
        put_text(w, "\")");
        break;
    case BT_OID:
        put_text(w, "ObjectId('");
        put_oid(w, value);
        put_text(w, "')");
        break;
    case BT_DATE:
        put_format(w, "new Date(%" PRId64 ")", load_i64(value));
        break;
    case BT_TIMESTAMP:
        put_format(w, "Timestamp(%" PRIu32 ", %" PRIu32 ")", (uint32_t)load_i32(value + 4),
                   (uint32_t)load_i32(value));
        break;
    case BT_BINARY:
        put_shell_binary(w, value);
        break;
    case BT_REGEX:
        put_text(w, "/");
        put_text(w, (const char *)value);
        put_text(w, "/");
        put_text(w, (const char *)value + strlen((const char *)value) + 1);
        break;
    case BT_SYMBOL:
        put_quoted(w, value_str(value));
        break;
    case BT_CODE:
        put(w, value_str(value).data, value_str(value).size);
        break;
    case BT_CODE_W_SCOPE:
        put_code_w_scope(w, value, depth);
        break;
    case BT_DBPOINTER:
        put_text(w, "DBRef('");
        put(w, value_str(value).data, value_str(value).size);
        put_text(w, "', ");
        put_oid(w, value + 4 + load_i32(value));
        put_text(w, ")");
        break;
    case BT_MIN_KEY:
        put_text(w, "MinKey");
        break;
    case BT_MAX_KEY:
        put_text(w, "MaxKey");
        break;
    default:
        put_text(w, "undefined");
        break;
    }
}

/* The fewest digits that read back as the same double; whole numbers keep a ".0". */
static void put_double(TextWriter *w, double value) {
    if (!isfinite(value)) {
        put_text(w, isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
        return;
    }
    char text[DOUBLE_TEXT_SIZE];
    /* 15 digits never say more than a double holds, except below the normal ones. */
    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put_text(w, text);
    if (strpbrk(text, ".e") == NULL)
        put_text(w, ".0");
}

static void put_json_date(TextWriter *w, int64_t wall_ms) {
    if (wall_ms < 0 || wall_ms > DATE_ISO_MAX_MS) {
        put_format(w, "{\"$date\":{\"$numberLong\":\"%" PRId64 "\"}}", wall_ms);
        return;
    }
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    char date[32];
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
    put_format(w, "{\"$date\":\"%s", date);
    if (wall_ms % 1000 != 0)
        put_format(w, ".%03d", (int)(wall_ms % 1000));
    put_text(w, "Z\"}");
}

static void put_json_binary(TextWriter *w, const uint8_t *value) {
    put_text(w, "{\"$binary\":{\"base64\":\"");
    put_base64(w, value + 5, (size_t)load_i32(value));
    put_format(w, "\",\"subType\":\"%02x\"}}", value[4]);
}

static void put_shell_binary(TextWriter *w, const uint8_t *value) {
    size_t size = (size_t)load_i32(value);
    const uint8_t *data = value + 5;
    if (value[4] != BSON_BINARY_UUID || size != UUID_SIZE) {
        put_format(w, "BinData(%d, ", value[4]);
        put_hex(w, data, size, /* is_upper= */ true);
        put_text(w, ")");
        return;
    }
    static const uint8_t GROUPS[] = {4, 2, 2, 2, 6};
    put_text(w, "UUID(\"");
    for (size_t i = 0; i < ARRAY_LEN(GROUPS); i++) {
        if (i > 0)
            put_text(w, "-");
        put_hex(w, data, GROUPS[i], /* is_upper= */ false);
        data += GROUPS[i];
    }
    put_text(w, "\")");
}

static void put_code_w_scope(TextWriter *w, const uint8_t *value, int depth) {
    Str code = value_str(value + 4);
    Doc scope = {(const uint8_t *)code.data + code.size + 1};
    put_text(w, w->is_shell ? "CodeWScope( " : "{\"$code\":");
    if (w->is_shell)
        put(w, code.data, code.size);
    else
        put_quoted(w, code);
    put_text(w, w->is_shell ? ", " : ",\"$scope\":");
    put_doc(w, scope, /* is_array= */ false, depth + 1);
    put_text(w, w->is_shell ? ")" : "}");
}

static void put_oid(TextWriter *w, const uint8_t *value) {
    put_hex(w, value, sizeof(Oid), /* is_upper= */ false);
}

static void put_decimal(TextWriter *w, const uint8_t *value) {
    char text[BSON_DECIMAL128_STRING];
    bson_decimal128_t decimal = {.low = (uint64_t)load_i64(value),
                                 .high = (uint64_t)load_i64(value + 8)};
    bson_decimal128_to_string(&decimal, text);
    put_text(w, text);
}

/* Makes 'text' into "text", outside of double quotes. */
/* Of a name of a field that has no quotes, as people write it; 0: here is none. */
static size_t bare_name_size(const char *at) {
    static const char NAME[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_$";
    if (*at >= '0' && *at <= '9')
        return 0;
    size_t size = strspn(at, NAME);
    return size > 0 && at[size + strspn(at + size, " \t\r\n")] == ':' ? size : 0;
}

static char *requote(const char *json, Arena *arena) {
    char *out = arena_alloc(arena, 2 * strlen(json) + 1);
    char *end = out;
    char open_quote = '\0';
    for (const char *at = json; *at != '\0'; at++) {
        size_t name_size = open_quote == '\0' ? bare_name_size(at) : 0;
        if (name_size > 0) {
            *end++ = '"';
            memcpy(end, at, name_size);
            end += name_size;
            *end++ = '"';
            at += name_size - 1;
        } else if (open_quote == '\0') {
            if (*at == '"' || *at == '\'')
                open_quote = *at;
            *end++ = *at == '\'' ? '"' : *at;
        } else if (*at == '\\' && at[1] != '\0') {
            at++;
            if (*at != '\'')
                *end++ = '\\';
            *end++ = *at;
        } else if (*at == open_quote) {
            open_quote = '\0';
            *end++ = '"';
        } else {
            if (*at == '"')
                *end++ = '\\';
            *end++ = *at;
        }
    }
    *end = '\0';
    return out;
}
