#include "sharding/meta/target.h"

#include <string.h>

#include "query/interval/predicates.h"

enum {
    /* Values of a filter times branches they are combined with: what targeting may cost. */
    TARGET_WORK_MAX = 1 << 18,
};

/* Conditions that must all hold; a branch of $or goes on with the list in front of it. */
typedef struct Conjuncts {
    const MatchExpr *expr;
    const struct Conjuncts *next;
} Conjuncts;

/* A conjunction that is being taken apart. */
typedef struct Conjunction {
    const Conjuncts *leaves; /* about the shard key */
    const Conjuncts *ors;    /* that restrict it */
    uint64_t value_count;    /* in the leaves */
    uint32_t range_max;
    bool is_false;
} Conjunction;

typedef struct Targeting {
    const ChunkMap *map;
    const ShardKey *key;
    const ShardKeyField *fields;
    uint32_t field_count;
    const Collator *collator;
    uint64_t ts;
    Arena *arena;
    ShardSet *set;
    bool is_history_short;
    /* Of the conjunction at hand. */
    Intervals intervals[KEYSTRING_FIELDS_MAX];
    uint32_t point_fields; /* leading fields that are points */
    uint32_t picks[KEYSTRING_FIELDS_MAX];
    KeyBuilder low, high;
} Targeting;

static void flatten(Targeting *t, const MatchExpr *expr, Conjunction *into);
static void target_conjunction(Targeting *t, const Conjunction *whole);
static void target_leaves(Targeting *t, const Conjunction *whole);

ErrCode target_filter(const ChunkMap *map, const MatchExpr *filter, const Collator *collator,
                      uint64_t ts, Arena *arena, Target *ret_target, Error *err) {
    Target target = {.shards = shard_set_new(map, arena), .key = DOC_NONE};
    Targeting t = {.map = map,
                   .key = chunk_map_key(map),
                   .collator = collator,
                   .ts = ts,
                   .arena = arena,
                   .set = &target.shards};
    t.fields = shard_key_fields(t.key, &t.field_count);
    key_builder_init(&t.low);
    key_builder_init(&t.high);
    target.is_single_key = shard_key_of_filter(t.key, filter, collator, arena, &target.key);
    if (target.is_single_key) {
        shard_key_encode(target.key, &t.low);
        Str key = {(const char *)t.low.key.data, t.low.key.size};
        t.is_history_short = !chunk_map_add_owners(map, key, key, true, ts, t.set);
    } else {
        Conjunction whole = {.range_max = TARGET_RANGES_MAX};
        if (filter != NULL)
            flatten(&t, filter, &whole);
        target_conjunction(&t, &whole);
    }
    key_builder_done(&t.low);
    key_builder_done(&t.high);
    if (t.is_history_short)
        return error_set(err, ERR_STALE_CHUNK_HISTORY,
                         "the history of the chunks does not go back to Timestamp(%u, %u)",
                         (uint32_t)(ts >> 32), (uint32_t)ts);
    *ret_target = target;
    return ERR_OK;
}

/* Does an equality with the value mean just that, for whoever parses the filter? Null, documents,
 * arrays and regular expressions mean more. */
static bool is_plain(Elem value, const Collator *collator) {
    switch (elem_type(value)) {
    case BT_STRING:
        return collator == NULL;
    case BT_DOUBLE:
    case BT_INT32:
    case BT_INT64:
    case BT_DECIMAL:
    case BT_OID:
    case BT_BOOL:
    case BT_DATE:
    case BT_TIMESTAMP:
    case BT_BINARY:
        return true;
    default:
        return false;
    }
}

/* Such a filter is a document that it matches, as far as the shard key goes. */
bool target_try_values(const ChunkMap *map, Doc filter, const Collator *collator, Arena *arena,
                       Target *ret_target) {
    const ShardKey *key = chunk_map_key(map);
    uint32_t field_count, found = 0;
    const ShardKeyField *fields = shard_key_fields(key, &field_count);
    DocIter iter = doc_iter(filter);
    for (Elem value; doc_iter_next(&iter, &value);) {
        Str name = elem_name_str(value);
        if (name.size == 0 || name.data[0] == '$' || str_has_char(name, '.') ||
            !is_plain(value, collator))
            return false;
        for (uint32_t f = 0; f < field_count; f++)
            if (str_equal(fields[f].path, name))
                found |= UINT32_C(1) << f;
    }
    if (found != (uint32_t)((UINT64_C(1) << field_count) - 1))
        return false;
    KeyBuilder kb;
    key_builder_init_arena(&kb, arena);
    if (!shard_key_of_doc(key, filter, &kb) || kb.key.overflowed)
        return false;
    Str text = {(const char *)kb.key.data, kb.key.size};
    *ret_target = (Target){.shards = shard_set_new(map, arena), .key = DOC_NONE};
    ret_target->is_single_key = true;
    shard_set_add(&ret_target->shards, chunk_map_owner(map, chunk_map_find(map, text)));
    return true;
}

ErrCode target_doc(const ChunkMap *map, Doc doc, KeyBuilder *kb, ShardIndex *ret_shard,
                   Error *err) {
    if (!shard_key_of_doc(chunk_map_key(map), doc, kb))
        return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                         "the document has an array on the path of a field of the shard key");
    TRY(buffer_check(&kb->key, "the shard key of a document", err));
    Str key = {(const char *)kb->key.data, kb->key.size};
    *ret_shard = chunk_map_owner(map, chunk_map_find(map, key));
    return ERR_OK;
}

/* ---- conjunctions ---- */

/* Can the condition restrict the shard key? An $or can where each branch does. */
static bool restricts(const Targeting *t, const MatchExpr *expr) {
    if (expr->kind == MATCH_AND || expr->kind == MATCH_OR) {
        bool is_or = expr->kind == MATCH_OR;
        for (uint32_t i = 0; i < expr->child_count; i++)
            if (restricts(t, expr->children[i]) != is_or)
                return !is_or;
        return is_or;
    }
    if (expr->kind == MATCH_NOT)
        expr = expr->children[0];
    return expr->kind == MATCH_ALWAYS_FALSE ||
           (expr->kind >= MATCH_EQ && shard_key_touches(t->key, expr->path.dotted));
}

static const Conjuncts *push(const Targeting *t, const MatchExpr *expr, const Conjuncts *next) {
    Conjuncts *node = ARENA_NEW(t->arena, Conjuncts);
    *node = (Conjuncts){expr, next};
    return node;
}

/* Trees are not deeper than MATCH_DEPTH_MAX. */
static void flatten(Targeting *t, const MatchExpr *expr, Conjunction *into) {
    if (expr->kind == MATCH_AND || (expr->kind == MATCH_OR && expr->child_count == 1)) {
        for (uint32_t i = 0; i < expr->child_count; i++)
            flatten(t, expr->children[i], into);
    } else if (expr->kind == MATCH_ALWAYS_FALSE) {
        into->is_false = true;
    } else if (!restricts(t, expr)) {
        return;
    } else if (expr->kind == MATCH_OR) {
        into->ors = push(t, expr, into->ors);
    } else {
        into->leaves = push(t, expr, into->leaves);
        const MatchExpr *leaf = expr->kind == MATCH_NOT ? expr->children[0] : expr;
        into->value_count += leaf->kind == MATCH_IN ? leaf->in.value_count : 1;
    }
}

static bool is_done(const Targeting *t) {
    return t->is_history_short ||
           (t->ts == 0 && shard_set_size(t->set) == chunk_map_shard_count(t->map));
}

/* Takes the branches of the first $or one by one, each with everything else; an $or with too many
 * is left out, which only makes the target wider. */
static void target_conjunction(Targeting *t, const Conjunction *whole) {
    if (whole->is_false || is_done(t))
        return;
    if (whole->ors == NULL) {
        ArenaMark mark = arena_mark(t->arena);
        target_leaves(t, whole);
        arena_rewind(t->arena, mark);
        return;
    }
    const MatchExpr *or_expr = whole->ors->expr;
    Conjunction rest = *whole;
    rest.ors = whole->ors->next;
    uint64_t branch_count = TARGET_RANGES_MAX / rest.range_max * or_expr->child_count;
    if (or_expr->child_count > rest.range_max ||
        branch_count * (rest.value_count + 1) > TARGET_WORK_MAX) {
        target_conjunction(t, &rest);
        return;
    }
    rest.range_max /= or_expr->child_count;
    for (uint32_t i = 0; i < or_expr->child_count; i++) {
        Conjunction branch = rest;
        flatten(t, or_expr->children[i], &branch);
        target_conjunction(t, &branch);
    }
}

/* ---- ranges of keys ---- */

/* The values that the conditions allow in one field. */
static Intervals intervals_of_field(const Targeting *t, uint32_t field, const Conjuncts *leaves) {
    FieldPredicates found = {.count = 0};
    for (; leaves != NULL; leaves = leaves->next)
        predicates_collect(leaves->expr, t->fields[field].path, &found);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < found.count; i++)
        if (t->collator == NULL || predicate_is_without_text(found.rows[i]))
            found.rows[kept++] = found.rows[i];
    found.count = kept;
    /* Documents with arrays there have no shard key and do not exist. */
    IntervalContext ctx = {.arena = t->arena};
    Intervals list;
    if (!predicates_combine(&found, &ctx, &list) ||
        (list.count > 0 && t->fields[field].is_hashed && !intervals_hash(&list, &ctx)))
        return intervals_all(t->arena);
    return list;
}

/* From the least to the greatest value. */
static void widen(Intervals *list) {
    const Interval *last = &list->rows[list->count - 1];
    list->rows[0].high = last->high;
    list->rows[0].is_high_inclusive = last->is_high_inclusive;
    list->count = 1;
}

/* Adds the owners of the range that the picked points begin; `last`: what is allowed in the field
 * behind them, NULL: anything. A low end that belongs to the range is completed with MinKeys, as
 * bounds of chunks are, so that a chunk which ends there is left out. */
static void target_range(Targeting *t, const Interval *last) {
    key_builder_reset(&t->low, 0);
    key_builder_reset(&t->high, 0);
    for (uint32_t f = 0; f < t->point_fields; f++) {
        Elem point = t->intervals[f].rows[t->picks[f]].low;
        key_append_elem(&t->low, point, NULL);
        key_append_elem(&t->high, point, NULL);
    }
    bool is_point = t->point_fields == t->field_count;
    KeyEnd low_end = KEY_END_EXACT, high_end = is_point ? KEY_END_EXACT : KEY_END_AFTER;
    uint32_t low_fields = t->point_fields;
    if (last != NULL) {
        key_append_elem(&t->low, last->low, NULL);
        key_append_elem(&t->high, last->high, NULL);
        low_fields++;
        low_end = last->is_low_inclusive ? KEY_END_EXACT : KEY_END_AFTER;
        high_end = last->is_high_inclusive ? KEY_END_AFTER : KEY_END_BEFORE;
    }
    while (low_end == KEY_END_EXACT && low_fields++ < t->field_count)
        key_append_value(&t->low, BT_MIN_KEY, NULL, NULL);
    key_append_end(&t->low, low_end);
    key_append_end(&t->high, high_end);
    Str low = {(const char *)t->low.key.data, t->low.key.size};
    Str high = {(const char *)t->high.key.data, t->high.key.size};
    if (t->low.key.overflowed || t->high.key.overflowed) { /* no key is longer: everything */
        low = STR("");
        high = STR("\xFF");
    }
    if (!chunk_map_add_owners(t->map, low, high, /* is_high_inclusive= */ true, t->ts, t->set))
        t->is_history_short = true;
}

/* Picks a point of each field in turn, then the intervals of the field behind them. */
static void multiply(Targeting *t, uint32_t field, const Intervals *last) {
    if (field < t->point_fields) {
        for (uint32_t i = 0; i < t->intervals[field].count && !is_done(t); i++) {
            t->picks[field] = i;
            multiply(t, field + 1, last);
        }
        return;
    }
    if (last == NULL)
        target_range(t, NULL);
    else
        for (uint32_t i = 0; i < last->count; i++)
            target_range(t, &last->rows[i]);
}

static void target_leaves(Targeting *t, const Conjunction *whole) {
    uint64_t total = 1;
    Intervals *last = NULL;
    t->point_fields = 0;
    for (uint32_t f = 0; f < t->field_count; f++) {
        Intervals *list = &t->intervals[f];
        *list = intervals_of_field(t, f, whole->leaves);
        if (list->count == 0)
            return; /* nothing fulfils all conditions */
        if (list->is_all)
            break;
        if (total * list->count > whole->range_max)
            widen(list);
        else if (intervals_are_points(list, NULL)) {
            total *= list->count;
            t->point_fields++;
            continue;
        }
        last = list;
        break;
    }
    multiply(t, 0, last);
}
