#include "repl/election/feed.h"

#include "base/error.h"

void feed_init(Feed *feed) {
    *feed = (Feed){
        .tail = OPTIME_NONE,
        .catch_up_term = OPTIME_TERM_NONE,
        .drain_term = OPTIME_TERM_NONE,
        .closed_term = OPTIME_TERM_NONE,
    };
}

bool feed_open(Feed *feed, bool is_follower, OpTime end, uint64_t *ret_stream) {
    bool may_take = is_follower || feed->catch_up_term != OPTIME_TERM_NONE;
    if (!may_take || feed->drain_term != OPTIME_TERM_NONE)
        return false;
    /* With entries still queued the tail is the last of those, not the end of the oplog. */
    if (feed->pending == 0)
        feed->tail = end;
    feed->is_open = true;
    feed->is_proved = false;
    /* A new number: batches of an earlier stream that arrive late no longer match. */
    *ret_stream = ++feed->stream;
    return true;
}

static bool is_present(const Feed *feed, uint64_t stream) {
    return feed->is_open && feed->stream == stream;
}

bool feed_prove(Feed *feed, uint64_t stream, int32_t rollback_id, OpTime first) {
    if (!is_present(feed, stream) || !optime_equal(first, feed->tail))
        return false;
    feed->rollback_id = rollback_id;
    feed->is_proved = true;
    return true;
}

bool feed_take(Feed *feed, uint64_t stream, int32_t rollback_id, OpTime after, OpTime last,
               uint64_t count) {
    if (!is_present(feed, stream) || !feed->is_proved)
        return false;
    /* Either the source rolled back since the stream was opened, or another batch was accepted in
     * between. */
    if (rollback_id != feed->rollback_id || !optime_equal(after, feed->tail))
        return false;
    invariant(feed->drain_term == OPTIME_TERM_NONE);
    feed->tail = last;
    feed->pending += count;
    return true;
}

void feed_close(Feed *feed, uint64_t stream) {
    if (is_present(feed, stream))
        feed->is_open = false;
}

void feed_applied(Feed *feed, uint64_t count) {
    invariant(count <= feed->pending);
    feed->pending -= count;
}

void feed_catch_up(Feed *feed, int64_t term) {
    if (term > feed->closed_term)
        feed->catch_up_term = term;
}

void feed_drain(Feed *feed, int64_t term) {
    feed->is_open = false;
    feed->catch_up_term = OPTIME_TERM_NONE;
    feed->drain_term = term;
    if (term > feed->closed_term)
        feed->closed_term = term;
}

bool feed_drained(Feed *feed, int64_t *ret_term) {
    if (feed->drain_term == OPTIME_TERM_NONE || feed->pending > 0)
        return false;
    *ret_term = feed->drain_term;
    feed->drain_term = OPTIME_TERM_NONE;
    return true;
}
