/*
 * tzif_test.c - files of the tz database become the offsets that the C library has.
 */
#include "query/expr/tzif.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/prng.h"
#include "base/test.h"

enum {
    END_YEAR = 2438,
};

typedef struct File {
    uint8_t data[TZIF_FILE_SIZE_MAX];
    size_t size;
} File;

static void put_be(File *file, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--)
        file->data[file->size++] = (uint8_t)(value >> (i * 8));
}

static void put_header(File *file, char version, uint32_t times, uint32_t types) {
    memcpy(file->data + file->size, "TZif", 4);
    file->data[file->size + 4] = (uint8_t)version;
    memset(file->data + file->size + 5, 0, 15);
    file->size += 20;
    const uint32_t COUNTS[] = {0, 0, 0, times, types, 4};
    for (int i = 0; i < 6; i++)
        put_be(file, COUNTS[i], 4);
}

/* A file with one type, no changes, and this rule. */
static void make_file(File *file, int32_t offset, const char *rule) {
    file->size = 0;
    for (int i = 0; i < 2; i++) {
        put_header(file, '2', 0, 1);
        put_be(file, (uint32_t)offset, 4);
        put_be(file, 0, 2);
        memcpy(file->data + file->size, "ABC", 4);
        file->size += 4;
    }
    file->size += (size_t)snprintf((char *)file->data + file->size, 100, "\n%s\n", rule);
}

static int64_t offset_at(const ZoneSpans *spans, int64_t ms) {
    uint32_t i = spans->count - 1;
    while (spans->rows[i].from_ms > ms)
        i--;
    return spans->rows[i].offset_ms / 1000;
}

static void expect_rising(const ZoneSpans *spans, const char *what) {
    for (uint32_t i = 1; i < spans->count; i++)
        if (spans->rows[i].from_ms <= spans->rows[i - 1].from_ms ||
            spans->rows[i].offset_ms == spans->rows[i - 1].offset_ms)
            test_fail(__FILE__, __LINE__, "%s: span %u", what, i);
    EXPECT(spans->rows[0].from_ms == INT64_MIN);
}

TEST(rules_of_zones_are_followed) {
    /* Goal: every notation of a rule means what the C library takes it for.
     * Method: that library, with the rule as TZ, at the hours around all changes of some years. */
    static const char *const RULES[] = {
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "EST5EDT,M3.2.0,M11.1.0",
        "NZST-12NZDT,M9.5.0,M4.1.0/3",
        "IST-1GMT0,M10.5.0,M3.5.0/1", /* summer time that is earlier */
        "<-02>2<-01>,M3.5.0/-1,M10.5.0/0",
        "EET-2EEST,M3.5.0/-2,M10.5.0/-1",
        "EET-2EEST,M4.5.5/0,M10.5.4/24",
        "AAA3BBB,J60/0,J300/4:30",
        "AAA3BBB,59/0,299/4:30:15",
        "AAA3:30:30BBB2:15,M1.1.1,M12.4.6/23",
        "<+0330>-3:30",
    };
    static File file;
    for (size_t i = 0; i < ARRAY_LEN(RULES); i++) {
        ZoneSpans spans = {NULL};
        setenv("TZ", RULES[i], 1);
        tzset();
        time_t first = 0;
        struct tm local;
        localtime_r(&first, &local);
        make_file(&file, (int32_t)local.tm_gmtoff, RULES[i]);
        EXPECT(tzif_parse(file.data, file.size, END_YEAR, &spans));
        expect_rising(&spans, RULES[i]);
        for (int64_t at = INT64_C(1700000000); at < INT64_C(1900000000); at += 1800) {
            time_t time = at;
            localtime_r(&time, &local);
            if (offset_at(&spans, at * 1000) != local.tm_gmtoff) {
                test_fail(__FILE__, __LINE__, "%s at %lld: %lld, expected %ld", RULES[i],
                          (long long)at, (long long)offset_at(&spans, at * 1000),
                          (long)local.tm_gmtoff);
                break;
            }
        }
        zone_spans_done(&spans);
    }
    unsetenv("TZ");
    tzset();
}

TEST(files_of_the_system_are_read_as_the_c_library_reads_them) {
    static const char *const NAMES[] = {
        "Europe/Berlin", "America/New_York",    "Asia/Kolkata",      "Australia/Lord_Howe",
        "Pacific/Apia",  "Africa/Casablanca",   "America/Sao_Paulo", "Africa/Cairo",
        "Europe/Dublin", "America/Mexico_City", "Asia/Almaty",       "America/Ciudad_Juarez",
        "Asia/Gaza",     "Antarctica/Troll",    "America/Nuuk",      "Etc/GMT+5",
    };
    static File file;
    Prng prng = prng_seeded(test_seed());
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        char path[128];
        snprintf(path, sizeof(path), "/usr/share/zoneinfo/%s", NAMES[i]);
        FILE *in = fopen(path, "rb");
        if (in == NULL) {
            test_fail(__FILE__, __LINE__, "%s is missing: the package tzdata is needed", path);
            continue;
        }
        file.size = fread(file.data, 1, sizeof(file.data), in);
        fclose(in);
        ZoneSpans spans = {NULL};
        EXPECT(tzif_parse(file.data, file.size, END_YEAR, &spans));
        expect_rising(&spans, NAMES[i]);
        snprintf(path, sizeof(path), ":%s", NAMES[i]);
        setenv("TZ", path, 1);
        tzset();
        for (int round = 0; round < 5000; round++) {
            time_t time = (time_t)prng_below(&prng, 8000000000) - 2000000000;
            struct tm local;
            localtime_r(&time, &local);
            if (offset_at(&spans, (int64_t)time * 1000) != local.tm_gmtoff) {
                test_fail(__FILE__, __LINE__, "%s at %lld", NAMES[i], (long long)time);
                break;
            }
        }
        zone_spans_done(&spans);
    }
    unsetenv("TZ");
    tzset();
}

TEST(broken_files_of_zones_are_refused) {
    static File file;
    ZoneSpans spans = {NULL};
    static const char *const BAD_RULES[] = {
        "C-1CEST,M3.5.0,M10.5.0",
        "CET-1CEST",
        "CET-1CEST,M3.5.0",
        "CET-1CEST,M13.5.0,M10.5.0",
        "CET-25",
        "CET-1CEST,M3.0.0,J1",
        "CET-1CEST,J0,J1",
        "CET-1CEST,366,J1",
        "CET-1CEST,M3.5.0/168,J1",
        "<CET-1",
        "CET-1CEST,M3.5.0,M10.5.0x",
    };
    for (size_t i = 0; i < ARRAY_LEN(BAD_RULES); i++) {
        make_file(&file, 3600, BAD_RULES[i]);
        if (tzif_parse(file.data, file.size, END_YEAR, &spans))
            test_fail(__FILE__, __LINE__, "%s is taken for a rule", BAD_RULES[i]);
    }
    make_file(&file, 3600, "CET-1CEST,M3.5.0,M10.5.0/3");
    EXPECT(tzif_parse(file.data, file.size, END_YEAR, &spans));
    zone_spans_done(&spans);
    for (size_t size = 0; size < file.size; size++)
        if (tzif_parse(file.data, size, END_YEAR, &spans))
            test_fail(__FILE__, __LINE__, "cut to %zu bytes it is still taken", size);
    make_file(&file, 27 * 3600, "");
    EXPECT(!tzif_parse(file.data, file.size, END_YEAR, &spans));
    make_file(&file, 3600, "");
    EXPECT(tzif_parse(file.data, file.size, END_YEAR, &spans));
    EXPECT_EQ_U64(spans.count, 1);
    zone_spans_done(&spans);
}
