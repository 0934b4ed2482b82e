/*
 * match_eval.c - judging documents with a parsed filter.
 *
 * The hot case is one predicate on a top-level field, run over millions of documents: find the
 * field, look at its type, compare. Everything that depends on the operand alone is decided once,
 * in match_finish_leaf.
 */
#include <assert.h>
#include <math.h>

#include "bson/number.h"
#include "query/match/match_internal.h"
#include "query/match/regex.h"

/* How a comparison goes, by its operand. */
enum {
    FAST_GENERIC,
    FAST_NONE,    /* not a comparison */
    FAST_INTEGER, /* operand_i64 */
    FAST_DOUBLE,  /* operand_f64, not NaN */
    FAST_STRING,  /* operand_str, no collation */
    FAST_NULL,
    FAST_NAN,
    FAST_KEY_BOUND, /* MinKey or MaxKey: compares with every type */
};

/* Outcomes of "value compared with operand". */
enum {
    ACCEPT_LESS = 1,
    ACCEPT_EQUAL = 2,
    ACCEPT_GREATER = 4,
};

/* One run of a tree over one document. */
typedef struct MatchRun {
    MatchDetails *details; /* may be NULL */
    bool is_recording; /* array positions are wanted: details given, not below $or or a negation */
} MatchRun;

/* The document judged: real, or of one field that exists only as an element. */
typedef struct MatchRoot {
    Doc doc;
    Str single_name;
    Elem single;
} MatchRoot;

typedef struct LeafVisit {
    const MatchExpr *expr;
    MatchRun *run;
    int32_t array_index;
} LeafVisit;

static bool eval(const MatchExpr *expr, const MatchRoot *root, MatchRun *run);
static bool eval_leaf(const MatchExpr *expr, const MatchRoot *root, MatchRun *run);
static bool eval_value(const MatchExpr *expr, Elem elem, MatchRun *run);
static bool eval_comparison(const MatchExpr *expr, Elem elem);
static bool eval_expr_order(const MatchExpr *expr, Elem elem);
static bool eval_expr_order_of_value(const MatchExpr *expr, Elem elem);
static bool eval_in(const MatchExpr *expr, Elem elem, MatchRun *run);
static bool eval_regex(const MatchRegex *regex, Elem elem, MatchRun *run);
static bool eval_mod(const MatchExpr *expr, Elem elem);
static bool eval_bits(const MatchExpr *expr, Elem elem);
static bool eval_elem_match(const MatchExpr *expr, Elem array, MatchRun *run);
static bool eval_custom(const MatchExpr *expr, const MatchRoot *root, MatchRun *run);
static void fail(MatchRun *run, ErrCode rc, Error *cause);

bool match_doc(const MatchExpr *expr, Doc doc, MatchDetails *details) {
    MatchRun run = {details, details != NULL};
    MatchRoot root = {.doc = doc};
    bool is_match = eval(expr, &root, &run);
    return is_match && (details == NULL || details->rc == ERR_OK);
}

bool match_elem(const MatchExpr *expr, Str name, Elem elem, MatchDetails *details) {
    MatchRun run = {details, details != NULL};
    MatchRoot root = {.single_name = name, .single = elem};
    bool is_match = eval(expr, &root, &run);
    return is_match && (details == NULL || details->rc == ERR_OK);
}

bool match_value(const MatchExpr *expr, Elem elem, MatchDetails *details) {
    MatchRun run = {details, details != NULL};
    bool is_match = eval_value(expr, elem, &run);
    return is_match && (details == NULL || details->rc == ERR_OK);
}

bool match_can_fail(const MatchExpr *expr) {
    if (expr->kind == MATCH_EXPR || expr->kind == MATCH_REGEX ||
        (expr->kind == MATCH_IN && expr->in.regex_count > 0))
        return true;
    for (uint32_t i = 0; i < expr->child_count; i++)
        if (match_can_fail(expr->children[i]))
            return true;
    return false;
}

void match_finish_leaf(MatchExpr *expr) {
    static const uint8_t ACCEPTS[] = {
        [MATCH_EQ] = ACCEPT_EQUAL,
        [MATCH_LT] = ACCEPT_LESS,
        [MATCH_LTE] = ACCEPT_LESS | ACCEPT_EQUAL,
        [MATCH_GT] = ACCEPT_GREATER,
        [MATCH_GTE] = ACCEPT_GREATER | ACCEPT_EQUAL,
        [MATCH_EXPR_LT] = ACCEPT_LESS,
        [MATCH_EXPR_LTE] = ACCEPT_LESS | ACCEPT_EQUAL,
        [MATCH_EXPR_GT] = ACCEPT_GREATER,
        [MATCH_EXPR_GTE] = ACCEPT_GREATER | ACCEPT_EQUAL,
    };
    expr->fast = FAST_NONE;
    if (expr->kind >= MATCH_EXPR_LT)
        expr->accepts = ACCEPTS[expr->kind];
    if (expr->kind >= MATCH_EQ && expr->kind <= MATCH_GTE) {
        expr->accepts = ACCEPTS[expr->kind];
        expr->fast = FAST_GENERIC;
        switch (elem_type(expr->operand)) {
        case BT_INT32:
            expr->fast = FAST_INTEGER;
            expr->operand_i64 = elem_i32(expr->operand);
            break;
        case BT_INT64:
            expr->fast = FAST_INTEGER;
            expr->operand_i64 = elem_i64(expr->operand);
            break;
        case BT_DOUBLE:
            expr->operand_f64 = elem_f64(expr->operand);
            expr->fast = isnan(expr->operand_f64) ? FAST_NAN : FAST_DOUBLE;
            break;
        case BT_DECIMAL:
            if (number_is_nan(number_from_elem(expr->operand)))
                expr->fast = FAST_NAN;
            break;
        case BT_STRING:
            if (expr->collator == NULL) {
                expr->fast = FAST_STRING;
                expr->operand_str = elem_str(expr->operand);
            }
            break;
        case BT_NULL:
            expr->fast = FAST_NULL;
            break;
        case BT_MIN_KEY:
        case BT_MAX_KEY:
            expr->fast = FAST_KEY_BOUND;
            break;
        default:
            break;
        }
    }
    MatchRun run = {0};
    expr->matches_missing = eval_value(expr, ELEM_MISSING, &run);
    /* Sparse indexes may lack documents in which the path leads into an empty array. */
    if (expr->kind >= MATCH_EXPR_LT && expr->path.count > 1)
        expr->matches_missing = true;
}

static bool eval(const MatchExpr *expr, const MatchRoot *root, MatchRun *run) {
    switch (expr->kind) {
    case MATCH_AND:
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (!eval(expr->children[i], root, run))
                return false;
        return true;
    case MATCH_OR: {
        MatchRun inner = {run->details, false};
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (eval(expr->children[i], root, &inner))
                return true;
        return false;
    }
    case MATCH_NOR:
    case MATCH_NOT: {
        MatchRun inner = {run->details, false};
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (eval(expr->children[i], root, &inner))
                return false;
        return true;
    }
    case MATCH_ALWAYS_TRUE:
        return true;
    case MATCH_ALWAYS_FALSE:
        return false;
    case MATCH_EXPR:
        return eval_custom(expr, root, run);
    default:
        return eval_leaf(expr, root, run);
    }
}

/* A leaf on a document: any element that its path reaches will do. */
static bool visit_value(void *ctx, Elem elem, int32_t array_index) {
    LeafVisit *visit = ctx;
    if (!eval_value(visit->expr, elem, visit->run))
        return false;
    visit->array_index = array_index;
    return true;
}

static bool eval_leaf(const MatchExpr *expr, const MatchRoot *root, MatchRun *run) {
    const FieldPath *path = &expr->path;
    Elem first;
    if (LIKELY(root->doc.data != NULL))
        first = path_find_field(root->doc, &path->parts[0]);
    else
        first = str_equal(root->single_name, path->parts[0].name) ? root->single : ELEM_MISSING;

    if (LIKELY(path->count == 1)) {
        if (first.data == NULL)
            return expr->matches_missing;
        if (LIKELY(elem_type(first) != BT_ARRAY))
            return eval_value(expr, first, run);
    }
    if (expr->kind >= MATCH_EXPR_LT)
        return eval_expr_order(expr, first);

    /* Operators on arrays want the array itself, not its elements. */
    bool is_on_array = expr->kind == MATCH_SIZE || expr->kind == MATCH_ELEM_MATCH_OBJECT ||
                       expr->kind == MATCH_ELEM_MATCH_VALUE;
    LeafVisit visit = {expr, run, -1};
    if (!path_walk_from(path, first, is_on_array ? PATH_LEAF_WHOLE : PATH_LEAF_EXPAND, visit_value,
                        &visit))
        return false;
    if (run->is_recording && visit.array_index >= 0)
        run->details->array_index = visit.array_index;
    return true;
}

/* A tree on one bare element, which may be missing. */
static bool eval_value(const MatchExpr *expr, Elem elem, MatchRun *run) {
    switch (expr->kind) {
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
        return eval_comparison(expr, elem);
    case MATCH_EXPR_LT:
    case MATCH_EXPR_LTE:
    case MATCH_EXPR_GT:
    case MATCH_EXPR_GTE:
        return eval_expr_order_of_value(expr, elem);
    case MATCH_IN:
        return eval_in(expr, elem, run);
    case MATCH_EXISTS:
        return elem_is_present(elem);
    case MATCH_TYPE: {
        BsonType type = elem_type(elem);
        return type != BT_EOO && (expr->type_set >> match_type_bit(type) & 1) != 0;
    }
    case MATCH_REGEX:
        return eval_regex(expr->regex, elem, run);
    case MATCH_MOD:
        return eval_mod(expr, elem);
    case MATCH_SIZE:
        return elem_type(elem) == BT_ARRAY && (int64_t)doc_count(elem_doc(elem)) == expr->size;
    case MATCH_BITS_ALL_SET:
    case MATCH_BITS_ALL_CLEAR:
    case MATCH_BITS_ANY_SET:
    case MATCH_BITS_ANY_CLEAR:
        return eval_bits(expr, elem);
    case MATCH_ELEM_MATCH_OBJECT:
    case MATCH_ELEM_MATCH_VALUE:
        return elem_type(elem) == BT_ARRAY && eval_elem_match(expr, elem, run);
    case MATCH_AND:
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (!eval_value(expr->children[i], elem, run))
                return false;
        return true;
    case MATCH_OR:
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (eval_value(expr->children[i], elem, run))
                return true;
        return false;
    case MATCH_NOR:
    case MATCH_NOT: {
        MatchRun inner = {run->details, false};
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (eval_value(expr->children[i], elem, &inner))
                return false;
        return true;
    }
    case MATCH_ALWAYS_TRUE:
        return true;
    case MATCH_ALWAYS_FALSE:
        return false;
    case MATCH_EXPR:
        break;
    }
    invariant(expr->kind != MATCH_EXPR); /* judges documents only; the parser keeps it at the top */
    return false;
}

/* ---- comparisons ---- */

static inline bool accepts(const MatchExpr *expr, int order) {
    uint8_t outcome = order < 0 ? ACCEPT_LESS : order > 0 ? ACCEPT_GREATER : ACCEPT_EQUAL;
    return (expr->accepts & outcome) != 0;
}

static bool eval_expr_order_of_value(const MatchExpr *expr, Elem elem) {
    if (elem_is_present(elem))
        return accepts(expr, elem_compare(elem, expr->operand, expr->collator));
    return accepts(expr, elem_type(expr->operand) == BT_MIN_KEY ? 1 : -1);
}

/* `elem`: at the first part of the path. */
static bool eval_expr_order(const MatchExpr *expr, Elem elem) {
    for (uint32_t i = 1; i < expr->path.count; i++) {
        if (elem_type(elem) == BT_ARRAY)
            return true;
        elem = elem_type(elem) == BT_DOC ? path_find_field(elem_doc(elem), &expr->path.parts[i])
                                         : ELEM_MISSING;
    }
    return eval_expr_order_of_value(expr, elem);
}

static bool compare_with_integer(const MatchExpr *expr, Elem elem) {
    int64_t operand = expr->operand_i64;
    switch (elem_type(elem)) {
    case BT_INT32: {
        int64_t value = elem_i32(elem);
        return accepts(expr, (value > operand) - (value < operand));
    }
    case BT_INT64: {
        int64_t value = elem_i64(elem);
        return accepts(expr, (value > operand) - (value < operand));
    }
    case BT_DOUBLE: {
        double value = elem_f64(elem);
        return !isnan(value) && accepts(expr, -compare_i64_f64(operand, value));
    }
    case BT_DECIMAL: {
        Number value = number_from_elem(elem);
        return !number_is_nan(value) && accepts(expr, number_compare(value, number_i64(operand)));
    }
    default:
        return false;
    }
}

static bool compare_with_double(const MatchExpr *expr, Elem elem) {
    double operand = expr->operand_f64;
    switch (elem_type(elem)) {
    case BT_DOUBLE: {
        double value = elem_f64(elem);
        return !isnan(value) && accepts(expr, (value > operand) - (value < operand));
    }
    case BT_INT32:
        return accepts(expr, compare_i64_f64(elem_i32(elem), operand));
    case BT_INT64:
        return accepts(expr, compare_i64_f64(elem_i64(elem), operand));
    case BT_DECIMAL: {
        Number value = number_from_elem(elem);
        return !number_is_nan(value) && accepts(expr, number_compare(value, number_f64(operand)));
    }
    default:
        return false;
    }
}

static bool compare_with_string(const MatchExpr *expr, Elem elem) {
    if (elem_type(elem) != BT_STRING && elem_type(elem) != BT_SYMBOL)
        return false;
    Str value = elem_str(elem);
    Str operand = expr->operand_str;
    if (expr->kind == MATCH_EQ)
        return str_equal(value, operand);
    int order =
        memcmp(value.data, operand.data, value.size < operand.size ? value.size : operand.size);
    if (order == 0)
        order = (value.size > operand.size) - (value.size < operand.size);
    return accepts(expr, order);
}

static bool eval_comparison(const MatchExpr *expr, Elem elem) {
    BsonType type = elem_type(elem);
    switch (expr->fast) {
    case FAST_INTEGER:
        return compare_with_integer(expr, elem);
    case FAST_DOUBLE:
        return compare_with_double(expr, elem);
    case FAST_STRING:
        return compare_with_string(expr, elem);
    case FAST_NULL:
        /* What is missing or undefined counts as null. */
        return (type == BT_NULL || type == BT_UNDEFINED || type == BT_EOO) &&
               (expr->accepts & ACCEPT_EQUAL) != 0;
    case FAST_NAN:
        /* NaN equals itself and compares with nothing else. */
        return type_is_number(type) && number_is_nan(number_from_elem(elem)) &&
               (expr->accepts & ACCEPT_EQUAL) != 0;
    case FAST_KEY_BOUND:
        if (type == elem_type(expr->operand))
            return accepts(expr, 0);
        return accepts(expr, elem_type(expr->operand) == BT_MIN_KEY ? 1 : -1);
    default:
        break;
    }
    /* Comparison stays within a type bracket: strings are neither above nor below numbers. */
    if (type == BT_EOO ||
        bson_canonical_rank(type) != bson_canonical_rank(elem_type(expr->operand)))
        return false;
    if (type_is_number(type) && number_is_nan(number_from_elem(elem)))
        return false; /* a NaN operand went another way */
    return accepts(expr, elem_compare(elem, expr->operand, expr->collator));
}

static bool eval_in(const MatchExpr *expr, Elem elem, MatchRun *run) {
    const MatchIn *in = &expr->in;
    BsonType type = elem_type(elem);
    if (type == BT_EOO || type == BT_UNDEFINED)
        return in->has_null;
    uint32_t low = 0, high = in->value_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = elem_compare(elem, in->values[middle], expr->collator);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    for (uint32_t i = 0; i < in->regex_count; i++)
        if (eval_regex(in->regexes[i], elem, run))
            return true;
    return false;
}

/* ---- the other leaves ---- */

static bool eval_regex(const MatchRegex *regex, Elem elem, MatchRun *run) {
    switch (elem_type(elem)) {
    case BT_STRING:
    case BT_SYMBOL: {
        CLEANUP(error_reset) Error err = {0};
        bool is_match = false;
        ErrCode rc = regex_search(regex, elem_str(elem), &is_match, &err);
        if (UNLIKELY(rc != ERR_OK))
            fail(run, rc, &err);
        return is_match;
    }
    case BT_REGEX: /* a stored regular expression is found by itself */
        return str_is(regex->pattern, elem_regex_pattern(elem)) &&
               str_is(regex->options, elem_regex_options(elem));
    default:
        return false;
    }
}

static bool eval_mod(const MatchExpr *expr, Elem elem) {
    if (!elem_is_number(elem))
        return false;
    int64_t value;
    if (elem_type(elem) == BT_INT32) {
        value = elem_i32(elem);
    } else if (elem_type(elem) == BT_INT64) {
        value = elem_i64(elem);
    } else {
        /* Fractions are cut off; what does not fit an int64 has no remainder. */
        Number number = number_from_elem(elem);
        double f64 = number_to_f64(number);
        if (!(f64 >= -0x1p63 && f64 < 0x1p63))
            return false;
        value = number_to_i64(number);
    }
    /* The machine's division traps on the one quotient that overflows. */
    int64_t remainder = expr->mod.divisor == -1 ? 0 : value % expr->mod.divisor;
    return remainder == expr->mod.remainder;
}

static bool bit_of_number(int64_t value, uint32_t position) {
    return (value >> (position < 64 ? position : 63) & 1) != 0;
}

static bool bit_of_bytes(Str bytes, uint32_t position) {
    uint32_t at = position / 8;
    return at < bytes.size && ((uint8_t)bytes.data[at] >> position % 8 & 1) != 0;
}

static bool eval_bits(const MatchExpr *expr, Elem elem) {
    bool wants_set = expr->kind == MATCH_BITS_ALL_SET || expr->kind == MATCH_BITS_ANY_SET;
    bool wants_all = expr->kind == MATCH_BITS_ALL_SET || expr->kind == MATCH_BITS_ALL_CLEAR;
    const MatchBits *bits = &expr->bits;
    int64_t value = 0;
    Str bytes = {0};
    bool is_bytes = elem_type(elem) == BT_BINARY;
    if (is_bytes) {
        uint8_t subtype;
        bytes = elem_binary(elem, &subtype);
    } else if (!elem_is_number(elem) || !number_is_exact_i64(number_from_elem(elem), &value)) {
        return false;
    }
    if (!is_bytes && !bits->has_high) {
        uint64_t found = (wants_set ? (uint64_t)value : ~(uint64_t)value) & bits->mask;
        return wants_all ? found == bits->mask : found != 0;
    }
    for (uint32_t i = 0; i < bits->count; i++) {
        uint32_t position = bits->positions[i];
        bool is_set = is_bytes ? bit_of_bytes(bytes, position) : bit_of_number(value, position);
        if ((is_set == wants_set) != wants_all)
            return !wants_all;
    }
    return wants_all;
}

static bool elem_match_one(const MatchExpr *expr, Elem elem, MatchRun *run) {
    if (expr->kind == MATCH_ELEM_MATCH_OBJECT) {
        /* A nested array counts as a document whose fields are "0", "1", ... */
        if (elem_type(elem) != BT_DOC && elem_type(elem) != BT_ARRAY)
            return false;
        MatchRoot root = {.doc = elem_doc(elem)};
        return eval(expr->children[0], &root, run);
    }
    for (uint32_t i = 0; i < expr->child_count; i++)
        if (!eval_value(expr->children[i], elem, run))
            return false;
    return true;
}

static bool eval_elem_match(const MatchExpr *expr, Elem array, MatchRun *run) {
    MatchRun inner = {run->details, false};
    int32_t position = 0;
    DocIter iter = doc_iter(elem_doc(array));
    for (Elem elem; doc_iter_next(&iter, &elem); position++) {
        if (!elem_match_one(expr, elem, &inner))
            continue;
        if (run->is_recording)
            run->details->array_index = position;
        return true;
    }
    return false;
}

static bool eval_custom(const MatchExpr *expr, const MatchRoot *root, MatchRun *run) {
    /* match_elem is for filters of array elements, where the language has no $expr. */
    if (root->doc.data == NULL)
        return false;
    CLEANUP(error_reset) Error err = {0};
    bool is_match = false;
    ErrCode rc = expr->custom->eval(expr->custom, root->doc, &is_match, &err);
    if (rc != ERR_OK)
        fail(run, rc, &err);
    return rc == ERR_OK && is_match;
}

static void fail(MatchRun *run, ErrCode rc, Error *cause) {
    if (run->details == NULL || run->details->rc != ERR_OK)
        return;
    run->details->rc = rc;
    if (run->details->err != NULL)
        error_move(run->details->err, cause);
}
