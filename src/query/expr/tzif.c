#include "query/expr/tzif.h"

#include <string.h>

#include "base/alloc.h"
#include "query/expr/civil_time.h"

enum {
    HEADER_SIZE = 44,
    TYPE_SIZE = 6,
    OFFSET_SECONDS_MAX = 26 * 3600, /* what RFC 8536 allows */
    DAY_SECONDS = 86400,
    RULE_YEAR_FIRST = 1800, /* of a rule without changes shortly before it */
};

typedef struct Header {
    uint32_t utc_count;
    uint32_t std_count;
    uint32_t leap_count;
    uint32_t time_count;
    uint32_t type_count;
    uint32_t char_count;
    uint8_t version;
} Header;

/* One of the two days of a year on which a rule changes the clocks. */
typedef enum DayKind {
    DAY_OF_YEAR,           /* 0..365 */
    DAY_OF_YEAR_NO_LEAP,   /* 1..365; 29 February is not counted */
    DAY_OF_MONTH_AND_WEEK, /* weekday of a week of a month; week 5 is the last */
} DayKind;

typedef struct RuleDay {
    DayKind kind;
    int32_t day; /* weekday: 0 is Sunday */
    int32_t month;
    int32_t week;
    int32_t time_seconds; /* local, -167 to 167 hours */
} RuleDay;

typedef struct Rule {
    int32_t std_seconds; /* east of UTC */
    int32_t dst_seconds;
    bool has_dst;
    RuleDay start;
    RuleDay end;
} Rule;

/* A text that is read from its beginning. */
typedef struct Reader {
    const uint8_t *at;
    const uint8_t *end;
} Reader;

static bool parse_header(Reader *r, Header *ret_header);
static size_t block_size(const Header *h, size_t time_size);
static bool parse_block(const uint8_t *block, const Header *h, size_t time_size, ZoneSpans *spans);
static void add_span(ZoneSpans *spans, int64_t from_ms, int64_t offset_ms);
static bool parse_rule(Reader r, Rule *ret_rule);
static void follow_rule(const Rule *rule, int32_t end_year, ZoneSpans *spans);

bool tzif_parse(const uint8_t *data, size_t size, int32_t end_year, ZoneSpans *ret_spans) {
    Reader r = {data, data + size};
    Header header;
    if (!parse_header(&r, &header))
        return false;
    size_t time_size = 4;
    if (header.version >= 2) {
        size_t first_size = block_size(&header, 4);
        if (first_size > (size_t)(r.end - r.at))
            return false;
        r.at += first_size;
        if (!parse_header(&r, &header))
            return false;
        time_size = 8;
    }
    size_t used = block_size(&header, time_size);
    if (used > (size_t)(r.end - r.at))
        return false;
    ZoneSpans spans = {NULL};
    Rule rule = {0};
    bool is_good = parse_block(r.at, &header, time_size, &spans);
    r.at += used;
    if (is_good && header.version >= 2) {
        const uint8_t *newline = NULL;
        if (r.at < r.end && *r.at == '\n')
            newline = memchr(r.at + 1, '\n', (size_t)(r.end - r.at - 1));
        is_good = newline != NULL;
        /* An empty rule: all that is known is in the table. */
        if (is_good && newline > r.at + 1)
            is_good = parse_rule((Reader){r.at + 1, newline}, &rule);
        if (is_good && rule.has_dst)
            follow_rule(&rule, end_year, &spans);
    }
    if (!is_good) {
        zone_spans_done(&spans);
        return false;
    }
    *ret_spans = spans;
    return true;
}

void zone_spans_done(ZoneSpans *spans) {
    xfree(spans->rows);
    *spans = (ZoneSpans){NULL};
}

/* ---- header and block ---- */

static uint32_t load_be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t load_time(const uint8_t *at, size_t time_size) {
    if (time_size == 4)
        return (int32_t)load_be32(at);
    return (int64_t)((uint64_t)load_be32(at) << 32 | load_be32(at + 4));
}

static bool parse_header(Reader *r, Header *ret_header) {
    if (r->end - r->at < HEADER_SIZE || memcmp(r->at, "TZif", 4) != 0)
        return false;
    const uint8_t *counts = r->at + 20;
    *ret_header = (Header){.utc_count = load_be32(counts),
                           .std_count = load_be32(counts + 4),
                           .leap_count = load_be32(counts + 8),
                           .time_count = load_be32(counts + 12),
                           .type_count = load_be32(counts + 16),
                           .char_count = load_be32(counts + 20)};
    uint8_t version = r->at[4];
    if (version != 0 && (version < '2' || version > '9'))
        return false;
    ret_header->version = version == 0 ? 1 : (uint8_t)(version - '0');
    r->at += HEADER_SIZE;
    enum { OTHERS_MAX = 100000 }; /* keeps the sum of the sizes far from overflow */
    return ret_header->time_count <= TZIF_TIMES_MAX && ret_header->type_count >= 1 &&
           ret_header->type_count <= 256 && ret_header->char_count <= OTHERS_MAX &&
           ret_header->leap_count <= OTHERS_MAX && ret_header->std_count <= OTHERS_MAX &&
           ret_header->utc_count <= OTHERS_MAX;
}

static size_t block_size(const Header *h, size_t time_size) {
    return (size_t)h->time_count * (time_size + 1) + (size_t)h->type_count * TYPE_SIZE +
           h->char_count + (size_t)h->leap_count * (time_size + 4) + h->std_count + h->utc_count;
}

static bool parse_block(const uint8_t *block, const Header *h, size_t time_size, ZoneSpans *spans) {
    if (h->leap_count != 0) /* times of such files are not those of a database */
        return false;
    const uint8_t *times = block;
    const uint8_t *indexes = times + (size_t)h->time_count * time_size;
    const uint8_t *types = indexes + h->time_count;
    for (uint32_t i = 0; i < h->type_count; i++) {
        int32_t offset = (int32_t)load_be32(types + (size_t)i * TYPE_SIZE);
        if (offset < -OFFSET_SECONDS_MAX || offset > OFFSET_SECONDS_MAX)
            return false;
    }
    add_span(spans, INT64_MIN, (int64_t)(int32_t)load_be32(types) * 1000);
    int64_t before = INT64_MIN;
    for (uint32_t i = 0; i < h->time_count; i++) {
        int64_t seconds = load_time(times + (size_t)i * time_size, time_size);
        if (indexes[i] >= h->type_count || (i > 0 && seconds <= before))
            return false;
        before = seconds;
        int64_t offset = (int32_t)load_be32(types + (size_t)indexes[i] * TYPE_SIZE);
        int64_t from_ms;
        if (__builtin_mul_overflow(seconds, 1000, &from_ms)) /* before all dates, or after them */
            from_ms = seconds < 0 ? INT64_MIN : INT64_MAX;
        add_span(spans, from_ms, offset * 1000);
    }
    return true;
}

/* Of two spans from one time on the later counts; some changes are of the zone's name only. */
static void add_span(ZoneSpans *spans, int64_t from_ms, int64_t offset_ms) {
    if (spans->count > 0 && spans->rows[spans->count - 1].from_ms == from_ms)
        spans->count--;
    if (spans->count > 0 && spans->rows[spans->count - 1].offset_ms == offset_ms)
        return;
    ARRAY_RESERVE(spans->rows, spans->count, spans->capacity);
    spans->rows[spans->count++] = (ZoneSpan){from_ms, offset_ms};
}

/* ---- the rule ---- */

static bool skip_char(Reader *r, char c) {
    if (r->at == r->end || *r->at != (uint8_t)c)
        return false;
    r->at++;
    return true;
}

/* "CEST" or "<+02>". */
static bool skip_name(Reader *r) {
    bool is_quoted = skip_char(r, '<');
    const uint8_t *first = r->at;
    while (r->at < r->end) {
        uint8_t c = *r->at;
        bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool is_quoted_char = is_quoted && ((c >= '0' && c <= '9') || c == '+' || c == '-');
        if (!is_letter && !is_quoted_char)
            break;
        r->at++;
    }
    return r->at - first >= 3 && (!is_quoted || skip_char(r, '>'));
}

static bool parse_number(Reader *r, int32_t max, int32_t *ret_number) {
    int32_t number = 0;
    const uint8_t *first = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && number <= max)
        number = number * 10 + (*r->at++ - '0');
    *ret_number = number;
    return r->at > first && number <= max;
}

/* [+-]h[h[h]][:mm[:ss]] */
static bool parse_time(Reader *r, int32_t hours_max, int32_t *ret_seconds) {
    bool is_negative = skip_char(r, '-');
    if (!is_negative)
        skip_char(r, '+');
    int32_t hours;
    int32_t minutes = 0;
    int32_t seconds = 0;
    if (!parse_number(r, hours_max, &hours))
        return false;
    if (skip_char(r, ':')) {
        if (!parse_number(r, 59, &minutes))
            return false;
        if (skip_char(r, ':') && !parse_number(r, 59, &seconds))
            return false;
    }
    int32_t total = hours * 3600 + minutes * 60 + seconds;
    *ret_seconds = is_negative ? -total : total;
    return true;
}

/* Jn, n or Mm.w.d, then /time; 02:00 unless given. */
static bool parse_day(Reader *r, RuleDay *ret_day) {
    RuleDay day = {.time_seconds = 2 * 3600};
    if (!skip_char(r, ','))
        return false;
    bool is_good;
    if (skip_char(r, 'M')) {
        day.kind = DAY_OF_MONTH_AND_WEEK;
        is_good = parse_number(r, 12, &day.month) && day.month >= 1 && skip_char(r, '.') &&
                  parse_number(r, 5, &day.week) && day.week >= 1 && skip_char(r, '.') &&
                  parse_number(r, 6, &day.day);
    } else if (skip_char(r, 'J')) {
        day.kind = DAY_OF_YEAR_NO_LEAP;
        is_good = parse_number(r, 365, &day.day) && day.day >= 1;
    } else {
        day.kind = DAY_OF_YEAR;
        is_good = parse_number(r, 365, &day.day);
    }
    if (!is_good || (skip_char(r, '/') && !parse_time(r, 167, &day.time_seconds)))
        return false;
    *ret_day = day;
    return true;
}

/* std offset [dst [offset] , start , end]; offsets are west of UTC. */
static bool parse_rule(Reader r, Rule *ret_rule) {
    Rule rule = {0};
    if (!skip_name(&r) || !parse_time(&r, 24, &rule.std_seconds))
        return false;
    rule.std_seconds = -rule.std_seconds;
    if (r.at < r.end) {
        rule.has_dst = true;
        if (!skip_name(&r))
            return false;
        rule.dst_seconds = rule.std_seconds + 3600;
        if (r.at < r.end && *r.at != ',') {
            if (!parse_time(&r, 24, &rule.dst_seconds))
                return false;
            rule.dst_seconds = -rule.dst_seconds;
        }
        if (!parse_day(&r, &rule.start) || !parse_day(&r, &rule.end) || r.at != r.end)
            return false;
    }
    *ret_rule = rule;
    return true;
}

static bool is_leap_year(int32_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int64_t seconds_of_day(int32_t year, int32_t month, int32_t day) {
    CivilTime civil = {.year = year, .month = month, .day = day};
    int64_t ms = 0;
    invariant(civil_to_ms(&civil, &ms)); /* years of a rule are few */
    return ms / 1000;
}

/* Local time, in seconds since 1970, at which the clocks are changed that year. */
static int64_t change_of_year(const RuleDay *rule, int32_t year) {
    int64_t first = seconds_of_day(year, 1, 1);
    int32_t day = rule->day;
    if (rule->kind == DAY_OF_YEAR_NO_LEAP)
        day += is_leap_year(year) && rule->day >= 60 ? 0 : -1;
    if (rule->kind != DAY_OF_MONTH_AND_WEEK)
        return first + (int64_t)day * DAY_SECONDS + rule->time_seconds;
    int64_t month_begin = seconds_of_day(year, rule->month, 1);
    int64_t month_end = seconds_of_day(year, rule->month + 1, 1);
    int32_t weekday = civil_from_ms(month_begin * 1000).weekday - 1;
    int64_t days = (rule->day - weekday + 7) % 7 + (rule->week - 1) * 7;
    while (month_begin + days * DAY_SECONDS >= month_end)
        days -= 7;
    return month_begin + days * DAY_SECONDS + rule->time_seconds;
}

static void follow_rule(const Rule *rule, int32_t end_year, ZoneSpans *spans) {
    int64_t last_ms = spans->rows[spans->count - 1].from_ms;
    int64_t first_year = civil_from_ms(last_ms).year;
    first_year = first_year > RULE_YEAR_FIRST ? first_year : RULE_YEAR_FIRST;
    for (int64_t year = first_year; year < end_year; year++) {
        /* To the summer offset the clocks go by standard time, back by summer time. */
        ZoneSpan changes[2] = {
            {(change_of_year(&rule->start, (int32_t)year) - rule->std_seconds) * 1000,
             (int64_t)rule->dst_seconds * 1000},
            {(change_of_year(&rule->end, (int32_t)year) - rule->dst_seconds) * 1000,
             (int64_t)rule->std_seconds * 1000},
        };
        uint32_t first = changes[0].from_ms <= changes[1].from_ms ? 0 : 1;
        for (uint32_t i = 0; i < 2; i++) {
            const ZoneSpan *change = &changes[first ^ i];
            /* Rules can be made whose changes lie outside of their year and overtake each other. */
            if (change->from_ms > last_ms &&
                change->from_ms >= spans->rows[spans->count - 1].from_ms)
                add_span(spans, change->from_ms, change->offset_ms);
        }
    }
}
