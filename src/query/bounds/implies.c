#include "query/bounds/implies.h"

#include "bson/collator.h"

static bool leaf_implies(const MatchExpr *query, const MatchExpr *wanted);
static bool range_implies(const MatchExpr *query, const MatchExpr *wanted);
static bool value_implies(const MatchExpr *query, Elem value, const MatchExpr *wanted);
static bool is_told_alike(const MatchExpr *query, BsonType type, const MatchExpr *wanted);

bool match_implies(const MatchExpr *query, const MatchExpr *wanted) {
    if (wanted->kind == MATCH_AND) {
        for (uint32_t i = 0; i < wanted->child_count; i++)
            if (!match_implies(query, wanted->children[i]))
                return false;
        return true;
    }
    if (query->kind == MATCH_OR) {
        for (uint32_t i = 0; i < query->child_count; i++)
            if (!match_implies(query->children[i], wanted))
                return false;
        return query->child_count > 0;
    }
    if (wanted->kind == MATCH_OR) {
        for (uint32_t i = 0; i < wanted->child_count; i++)
            if (match_implies(query, wanted->children[i]))
                return true;
        return false;
    }
    if (query->kind == MATCH_AND) {
        for (uint32_t i = 0; i < query->child_count; i++)
            if (match_implies(query->children[i], wanted))
                return true;
        return false;
    }
    if (query->kind < MATCH_EQ || wanted->kind < MATCH_EQ ||
        !str_equal(query->path.dotted, wanted->path.dotted))
        return false;
    return leaf_implies(query, wanted);
}

/* Two conditions on the same path. Both ask whether some element there has a property, so over
 * arrays the same element answers both. */
static bool leaf_implies(const MatchExpr *query, const MatchExpr *wanted) {
    if (wanted->kind == MATCH_EXISTS)
        return !query->matches_missing;
    switch (query->kind) {
    case MATCH_EQ:
        return value_implies(query, query->operand, wanted);
    case MATCH_IN:
        for (uint32_t i = 0; i < query->in.value_count; i++)
            if (!value_implies(query, query->in.values[i], wanted))
                return false;
        return query->in.regex_count == 0 && !query->in.has_null;
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
        return range_implies(query, wanted);
    case MATCH_TYPE:
        return wanted->kind == MATCH_TYPE && (query->type_set & ~wanted->type_set) == 0;
    default:
        return false;
    }
}

/* Values that are equal in one collation need not be so in another. */
static bool is_told_alike(const MatchExpr *query, BsonType type, const MatchExpr *wanted) {
    return query->collator == wanted->collator || !type_is_collatable(type);
}

static bool value_implies(const MatchExpr *query, Elem value, const MatchExpr *wanted) {
    BsonType type = elem_type(value);
    if (!is_told_alike(query, type, wanted))
        return false;
    if (type == BT_NULL || type == BT_UNDEFINED || type == BT_ARRAY)
        return false; /* these match in ways of their own */
    MatchDetails details = MATCH_DETAILS_NONE;
    return match_value(wanted, value, &details);
}

static bool range_implies(const MatchExpr *query, const MatchExpr *wanted) {
    if (!is_told_alike(query, elem_type(query->operand), wanted) ||
        bson_canonical_rank(elem_type(query->operand)) !=
            bson_canonical_rank(elem_type(wanted->operand)))
        return false;
    bool is_up = query->kind == MATCH_GT || query->kind == MATCH_GTE;
    bool is_wanted_up = wanted->kind == MATCH_GT || wanted->kind == MATCH_GTE;
    bool is_wanted_down = wanted->kind == MATCH_LT || wanted->kind == MATCH_LTE;
    if (is_up ? !is_wanted_up : !is_wanted_down)
        return false;
    int rc = elem_compare(query->operand, wanted->operand, query->collator);
    if (rc != 0)
        return is_up ? rc > 0 : rc < 0;
    /* At the same bound: "greater" implies "greater or equal", not the other way round. */
    bool is_query_strict = query->kind == MATCH_GT || query->kind == MATCH_LT;
    bool is_wanted_strict = wanted->kind == MATCH_GT || wanted->kind == MATCH_LT;
    return is_query_strict || !is_wanted_strict;
}
