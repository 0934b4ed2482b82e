#include "query/expr/value_text.h"

#include "query/expr/civil_time.h"

bool value_to_string(Value value, Arena *arena, Str *ret_text) {
    switch (value.type) {
    case BT_STRING:
    case BT_SYMBOL:
    case BT_CODE:
        *ret_text = value_as_str(value);
        return true;
    case BT_BOOL:
        *ret_text = value.boolean ? STR("true") : STR("false");
        return true;
    case BT_INT32:
        *ret_text = str_from(arena_printf(arena, "%d", value.i32));
        return true;
    case BT_INT64:
        *ret_text = str_from(arena_printf(arena, "%lld", (long long)value.i64));
        return true;
    case BT_DOUBLE: {
        char *text = arena_alloc(arena, DOUBLE_TEXT_SIZE);
        double_to_text(value.f64, text);
        *ret_text = str_from(text);
        return true;
    }
    case BT_DECIMAL: {
        char *text = arena_alloc(arena, DECIMAL_TEXT_SIZE);
        dec_to_text(value_as_number(value).dec, text);
        *ret_text = str_from(text);
        return true;
    }
    case BT_OID: {
        char *text = arena_alloc(arena, OID_HEX_SIZE);
        oid_to_hex((const Oid *)value.bytes, text);
        *ret_text = str_from(text);
        return true;
    }
    case BT_DATE: {
        char *text = arena_alloc(arena, CIVIL_TEXT_SIZE);
        civil_to_text(value.i64, text);
        *ret_text = str_from(text);
        return true;
    }
    case BT_TIMESTAMP:
        *ret_text =
            str_from(arena_printf(arena, "Timestamp(%u, %u)", (uint32_t)((uint64_t)value.i64 >> 32),
                                  (uint32_t)value.i64));
        return true;
    default:
        return false;
    }
}
