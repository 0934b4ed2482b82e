/*
 * name_table.h - names (of shards, of zones) numbered in order of appearance.
 *
 * Ownership: embedded in its user, zeroed is empty, released by name_table_done. Threading: none of
 * its own.
 */
#pragma once

#include "bson/doc.h"

typedef struct NameTable {
    Str *rows; /* each text on the heap */
    uint32_t count;
    uint32_t capacity;
    uint32_t *slots; /* hash table: 1 + the number; 0 is free */
    uint32_t slot_count;
} NameTable;

void name_table_done(NameTable *names);
void name_table_copy(NameTable *to, const NameTable *from);
bool name_table_find(const NameTable *names, Str name, uint32_t *ret_number);
/* The number of the name, which is a new one if it was not there. */
uint32_t name_table_add(NameTable *names, Str name);
