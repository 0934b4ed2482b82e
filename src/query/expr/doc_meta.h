/*
 * doc_meta.h - what is known of a document besides its fields: {$meta: "recordId"}.
 *
 * It goes along with the document as another one, whose fields have the names below. An evaluation
 * looks at it through a pointer, since it changes with every document; whoever parses says first
 * which kinds are asked for at all, so that nobody else has to provide them.
 */
#pragma once

#include "bson/builder.h"
#include "query/expr/expr.h"

typedef enum DocMetaKind {
    DOC_META_SORT_KEY,
    DOC_META_RECORD_ID,
    DOC_META_INDEX_KEY,
    DOC_META_TEXT_SCORE,
    DOC_META_COUNT,
} DocMetaKind;

/* Of documents about which nothing is known, such as those of a $group. */
extern const Doc DOC_META_NOTHING;

const char *doc_meta_name(DocMetaKind kind);

static inline bool doc_meta_has(uint32_t kinds, DocMetaKind kind) {
    return (kinds >> kind & 1) != 0;
}

/* The kind that `operand`, of {$meta: operand}, names; adds its bit to `kinds`, if that is given.
 * Fails with 17307, 17308 and ERR_NOT_IMPLEMENTED for what is known and not supported. */
ErrCode doc_meta_parse(Elem operand, uint32_t *kinds, DocMetaKind *ret_kind, Error *err) MUST_CHECK;

/* What is known of the present document; missing when that is not among it. Fails with
 * ERR_NOT_IMPLEMENTED where nobody keeps such knowledge. */
ErrCode doc_meta_get(const ExprEvalContext *ctx, DocMetaKind kind, Elem *ret_elem, Error *err)
    MUST_CHECK;
