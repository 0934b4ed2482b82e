/*
 * may_match.c - a stream's $match, judged on the raw entry before an event is built.
 *
 * The condition is evaluated in three values. Leaves about operationType, ns, to, documentKey and,
 * where the entry holds it, fullDocument are known; all others are unknown, and so is what depends
 * on them. Only a condition that is certainly false drops the entry; the $match itself still
 * judges every event that is built, so that nothing here can change a result.
 */
#include "bson/builder.h"
#include "change_stream/change.h"

typedef enum Verdict { NO, YES, UNKNOWN } Verdict;

enum {
    /* Names of databases and collections have at most 255 bytes together, twice for a rename. */
    HEAD_BYTES_MAX = 2048,
};

typedef struct Judged {
    const StreamFilter *filter;
    const StreamChange *change;
    Doc place; /* {_id, clusterTime, wallTime}; DOC_NONE: not known yet */
    Doc head;  /* {operationType, ns, to}; DOC_NONE until it is needed */
    uint8_t bytes[HEAD_BYTES_MAX];
} Judged;

static void build_name(DocBuilder *b, const char *field, Str db, Str coll) {
    size_t opened = build_open_doc(b, field);
    build_str(b, "db", db);
    if (coll.size > 0)
        build_str(b, "coll", coll);
    build_close(b, opened);
}

static Doc head_of(Judged *judged) {
    if (doc_is_present(judged->head))
        return judged->head;
    const StreamChange *change = judged->change;
    Buffer buf = {.data = judged->bytes,
                  .capacity = sizeof(judged->bytes),
                  .size_max = sizeof(judged->bytes)};
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_cstr(&b, "operationType", change_kind_name(change->kind));
    build_name(&b, "ns", change->db, change->coll);
    if (change->kind == CHANGE_RENAME)
        build_name(&b, "to", change->to_db, change->to_coll);
    if (!doc_builder_try_finish(&b, &judged->head))
        judged->head = DOC_NONE;
    return judged->head;
}

static Verdict verdict_of(bool is_match, const MatchDetails *details) {
    if (details->rc != ERR_OK)
        return UNKNOWN;
    return is_match ? YES : NO;
}

static Verdict judge_elem(const MatchExpr *leaf, const char *name, Elem elem) {
    MatchDetails details = MATCH_DETAILS_NONE;
    bool is_match = elem_is_present(elem) ? match_elem(leaf, str_from(name), elem, &details)
                                          : match_doc(leaf, DOC_EMPTY, &details);
    return verdict_of(is_match, &details);
}

static Verdict judge_leaf(Judged *judged, const MatchExpr *leaf) {
    const StreamChange *change = judged->change;
    if (leaf->path.count == 0)
        return UNKNOWN;
    Str root = leaf->path.parts[0].name;
    if (str_is(root, "operationType") || str_is(root, "ns") || str_is(root, "to")) {
        Doc head = head_of(judged);
        if (!doc_is_present(head))
            return UNKNOWN;
        MatchDetails details = MATCH_DETAILS_NONE;
        return verdict_of(match_doc(leaf, head, &details), &details);
    }
    if (str_is(root, "documentKey"))
        return judge_elem(leaf, "documentKey", change_document_key(change));
    if (str_is(root, "fullDocument")) {
        if (change->kind == CHANGE_INSERT || change->kind == CHANGE_REPLACE)
            return judge_elem(leaf, "fullDocument", change->o);
        if (change->kind == CHANGE_UPDATE && judged->filter->has_documents)
            return UNKNOWN;
        return judge_elem(leaf, "fullDocument", ELEM_MISSING);
    }
    if (doc_is_present(judged->place) && elem_is_present(doc_get(judged->place, root))) {
        MatchDetails details = MATCH_DETAILS_NONE;
        return verdict_of(match_doc(leaf, judged->place, &details), &details);
    }
    return UNKNOWN;
}

static Verdict judge(Judged *judged, const MatchExpr *expr);

/* `decisive`: the value of one child that decides for all. */
static Verdict judge_children(Judged *judged, const MatchExpr *expr, Verdict decisive) {
    Verdict verdict = decisive == NO ? YES : NO;
    for (uint32_t i = 0; i < expr->child_count; i++) {
        Verdict of_child = judge(judged, expr->children[i]);
        if (of_child == decisive)
            return decisive;
        if (of_child == UNKNOWN)
            verdict = UNKNOWN;
    }
    return verdict;
}

static Verdict inverted(Verdict verdict) {
    return verdict == UNKNOWN ? UNKNOWN : verdict == YES ? NO : YES;
}

static Verdict judge(Judged *judged, const MatchExpr *expr) {
    switch (expr->kind) {
    case MATCH_AND:
        return judge_children(judged, expr, NO);
    case MATCH_OR:
        return judge_children(judged, expr, YES);
    case MATCH_NOR:
        return inverted(judge_children(judged, expr, YES));
    case MATCH_NOT:
        return inverted(judge(judged, expr->children[0]));
    case MATCH_ALWAYS_TRUE:
        return YES;
    case MATCH_ALWAYS_FALSE:
        return NO;
    case MATCH_EXPR:
        return UNKNOWN;
    default:
        return judge_leaf(judged, expr);
    }
}

bool filter_may_match(const StreamFilter *filter, const StreamChange *change, Doc head) {
    /* What ends the stream is never dropped: the end is to be seen, whatever is shown of it. */
    if (filter->match == NULL || filter_is_ended_by(filter, change))
        return true;
    Judged judged; /* its bytes are not worth clearing for each entry */
    judged.filter = filter;
    judged.change = change;
    judged.place = head;
    judged.head = DOC_NONE;
    return judge(&judged, filter->match) != NO;
}
