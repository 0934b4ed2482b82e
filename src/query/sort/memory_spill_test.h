/*
 * memory_spill_test.h - a Spill in memory, for tests.
 */
#pragma once

#include "base/alloc.h"
#include "base/buffer.h"
#include "query/sort/spill.h"

typedef struct MemoryRun {
    Buffer records;
    size_t read_offset;
} MemoryRun;

typedef struct MemorySpill {
    MemoryRun *runs;
    size_t count;
    size_t capacity;
} MemorySpill;

static inline ErrCode spill_new(void *arg, uint32_t *ret_run, Error *err) {
    (void)err;
    MemorySpill *spill = arg;
    ARRAY_RESERVE(spill->runs, spill->count, spill->capacity);
    MemoryRun *run = &spill->runs[spill->count];
    *run = (MemoryRun){0};
    buffer_init(&run->records, BUFFER_UNBOUNDED);
    *ret_run = (uint32_t)spill->count++;
    return ERR_OK;
}

static inline ErrCode spill_append(void *arg, uint32_t run, const void *record, size_t size,
                                   Error *err) {
    (void)err;
    Buffer *records = &((MemorySpill *)arg)->runs[run].records;
    buffer_append(records, &size, sizeof(size));
    buffer_append(records, record, size);
    return ERR_OK;
}

static inline ErrCode spill_finish(void *arg, uint32_t run, Error *err) {
    (void)arg, (void)run, (void)err;
    return ERR_OK;
}

static inline ErrCode spill_next(void *arg, uint32_t run, bool *ret_found,
                                 const uint8_t **ret_record, size_t *ret_size, Error *err) {
    (void)err;
    MemoryRun *r = &((MemorySpill *)arg)->runs[run];
    *ret_found = r->read_offset < r->records.size;
    if (*ret_found) {
        memcpy(ret_size, r->records.data + r->read_offset, sizeof(*ret_size));
        *ret_record = r->records.data + r->read_offset + sizeof(*ret_size);
        r->read_offset += sizeof(*ret_size) + *ret_size;
    }
    return ERR_OK;
}

static inline int64_t spill_end(void *arg, uint32_t run) {
    return (int64_t)((MemorySpill *)arg)->runs[run].records.size;
}

static inline ErrCode spill_read(void *arg, uint32_t run, int64_t at, const uint8_t **ret_record,
                                 size_t *ret_size, Error *err) {
    (void)err;
    const uint8_t *record = ((MemorySpill *)arg)->runs[run].records.data + at;
    memcpy(ret_size, record, sizeof(*ret_size));
    *ret_record = record + sizeof(*ret_size);
    return ERR_OK;
}

static inline void spill_free_run(void *arg, uint32_t run) {
    buffer_done(&((MemorySpill *)arg)->runs[run].records);
}

static inline void spill_free(MemorySpill *spill) {
    for (uint32_t i = 0; i < spill->count; i++)
        buffer_done(&spill->runs[i].records);
    xfree(spill->runs);
}

static inline Spill memory_spill_interface(MemorySpill *spill) {
    return (Spill){spill,      spill_new, spill_append, spill_finish,
                   spill_next, spill_end, spill_read,   spill_free_run};
}
