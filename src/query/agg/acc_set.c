#include "query/agg/acc_set.h"

#include <assert.h>

void acc_set_init(AccSet *set, uint32_t capacity, Arena *arena) {
    *set = (AccSet){
        .accs = ARENA_ARRAY(arena, Acc, capacity),
        .offsets = ARENA_ARRAY(arena, size_t, capacity),
        .capacity = capacity,
    };
}

ErrCode acc_set_parse(AccSet *set, Elem field, const ExprParseContext *ctx, Arena *arena,
                      Error *err) {
    assert(set->count < set->capacity);
    Str name = elem_name_str(field);
    if (str_has_char(name, '.'))
        return error_set(err, (ErrCode)40235, "The field name '%s' cannot contain '.'", name.data);
    if (name.size > 0 && name.data[0] == '$')
        return error_set(err, (ErrCode)40236, "The field name '%s' cannot be an operator name",
                         name.data);
    if (elem_type(field) != BT_DOC || doc_is_empty(elem_doc(field)))
        return error_set(err, (ErrCode)40234, "The field '%s' must be an accumulator object",
                         name.data);
    if (doc_count(elem_doc(field)) != 1)
        return error_set(err, (ErrCode)40238, "The field '%s' must specify one accumulator",
                         name.data);
    DocIter iter = doc_iter(elem_doc(field));
    Elem op;
    doc_iter_next(&iter, &op);
    Acc *acc = &set->accs[set->count];
    TRY(acc_parse(name, op, ctx, arena, acc, err));
    set->offsets[set->count++] = set->size;
    set->size += acc_align(acc->class->state_size);
    set->has_growing |= acc->class->done != NULL;
    return ERR_OK;
}

void acc_set_add_paths(const AccSet *set, PathSet *paths) {
    for (uint32_t i = 0; i < set->count; i++) {
        const Acc *acc = &set->accs[i];
        expr_add_paths(acc->input, paths);
        for (uint32_t j = 0; acc->sort_by != NULL && j < acc->sort_by->count; j++)
            path_set_add_places(paths, acc->sort_by->parts[j].path.dotted);
    }
}

void acc_states_init(const AccSet *set, void *states) {
    for (uint32_t i = 0; i < set->count; i++)
        if (set->accs[i].class->init != NULL)
            set->accs[i].class->init((uint8_t *)states + set->offsets[i]);
}

ErrCode acc_states_build(const AccSet *set, void *states, Arena *scratch, DocBuilder *b,
                         Error *err) {
    for (uint32_t i = 0; i < set->count; i++) {
        const Acc *acc = &set->accs[i];
        Value value;
        TRY(acc->class->finish((uint8_t *)states + set->offsets[i], acc, scratch, &value, err));
        build_value_as(b, acc->field, value_is_missing(value) ? VALUE_NULL : value);
    }
    return ERR_OK;
}

ErrCode acc_states_merge(const AccSet *set, void *states, Doc doc, AccContext *ctx, Error *err) {
    DocIter iter = doc_iter(doc);
    Elem elem;
    doc_iter_next(&iter, &elem);
    for (uint32_t i = 0; i < set->count; i++) {
        const Acc *acc = &set->accs[i];
        if (!doc_iter_next(&iter, &elem) || !elem_name_is(elem, acc->field))
            return error_set(err, ERR_BAD_VALUE, "a partial group lacks its field '%s'",
                             acc->field.data);
        void *state = (uint8_t *)states + set->offsets[i];
        Value partial = value_from_elem(elem);
        if (acc->class->merge != NULL)
            TRY(acc->class->merge(state, acc, partial, ctx, err));
        else
            TRY(acc->class->add(state, acc, partial, ctx, err));
    }
    return ERR_OK;
}

ErrCode acc_states_save(const AccSet *set, void *states, Arena *scratch, DocBuilder *b,
                        Error *err) {
    for (uint32_t i = 0; i < set->count; i++) {
        const Acc *acc = &set->accs[i];
        Value value;
        void *state = (uint8_t *)states + set->offsets[i];
        if (acc->class->save != NULL)
            TRY(acc->class->save(state, acc, scratch, &value, err));
        else
            TRY(acc->class->finish(state, acc, scratch, &value, err));
        build_value_as(b, acc->field, value_is_missing(value) ? VALUE_NULL : value);
    }
    return ERR_OK;
}

void acc_states_done(const AccSet *set, void *states) {
    for (uint32_t i = 0; set->has_growing && i < set->count; i++)
        if (set->accs[i].class->done != NULL)
            set->accs[i].class->done((uint8_t *)states + set->offsets[i]);
}
