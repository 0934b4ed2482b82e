#include "catalog/write_group.h"

#include "storage/recovery_unit.h"

void write_group_begin(OpCtx *op, WriteGroup *group) {
    invariant(op->write_group == NULL);
    invariant(!ru_is_in_unit_of_work(op->ru));
    group->first = group->last = OPTIME_NONE;
    op->write_group = group;
}

void write_group_end(OpCtx *op) {
    invariant(op->write_group != NULL);
    invariant(!ru_is_in_unit_of_work(op->ru));
    op->write_group = NULL;
}

EntryPart entry_part(Doc entry) {
    Elem kind = doc_get_lit(entry, "op");
    if (elem_type(kind) != BT_STRING || elem_str(kind).data[0] != 'c')
        return ENTRY_WHOLE;
    Elem o = doc_get_lit(entry, "o");
    if (elem_type(o) != BT_DOC)
        return ENTRY_WHOLE;
    DocIter iter = doc_iter(elem_doc(o));
    Elem elem;
    if (!doc_iter_next(&iter, &elem) || !elem_name_is(elem, STR("applyOps")))
        return ENTRY_WHOLE;
    EntryPart part = ENTRY_WHOLE;
    while (doc_iter_next(&iter, &elem)) {
        if (elem_name_is(elem, STR("partialTxn")) && elem_is_truthy(elem))
            return ENTRY_PARTIAL;
        if (elem_name_is(elem, STR("count")) && elem_is_number(elem))
            part = ENTRY_LAST;
    }
    return part;
}
