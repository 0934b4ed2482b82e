#include "repl/election/feed.h"

#include "base/test.h"

#define AT(n) ((OpTime){(n), 1})

TEST(feed_takes_what_follows_its_tail) {
    Feed feed;
    feed_init(&feed);
    uint64_t stream;
    EXPECT(!feed_open(&feed, /* is_follower= */ false, AT(5), &stream));
    EXPECT(feed_open(&feed, /* is_follower= */ true, AT(5), &stream));
    EXPECT(!feed_take(&feed, stream, 1, AT(5), AT(7), 2)); /* not proved */
    EXPECT(!feed_prove(&feed, stream, 1, AT(6)));
    EXPECT(!feed_prove(&feed, stream, 1, (OpTime){5, 2}));
    EXPECT(feed_prove(&feed, stream, 1, AT(5)));
    EXPECT(feed_take(&feed, stream, 1, AT(5), AT(7), 2));
    EXPECT(!feed_take(&feed, stream, 1, AT(6), AT(9), 1)); /* a gap, or an overlap */
    EXPECT(!feed_take(&feed, stream, 2, AT(7), AT(9), 1)); /* the source has rolled back */
    EXPECT(feed_take(&feed, stream, 1, AT(7), AT(9), 1));
    EXPECT_EQ_U64(feed.pending, 3);
}

TEST(feed_of_the_next_stream_goes_on_behind_what_is_queued) {
    Feed feed;
    feed_init(&feed);
    uint64_t first, second;
    EXPECT(feed_open(&feed, true, AT(5), &first));
    EXPECT(feed_prove(&feed, first, 1, AT(5)));
    EXPECT(feed_take(&feed, first, 1, AT(5), AT(7), 2));
    feed_close(&feed, first);
    EXPECT(!feed_take(&feed, first, 1, AT(7), AT(8), 1));
    EXPECT(feed_open(&feed, true, AT(6), &second)); /* one of two is applied */
    EXPECT(optime_equal(feed.tail, AT(7)));
    EXPECT(feed_prove(&feed, second, 4, AT(7)));
    EXPECT(!feed_take(&feed, first, 4, AT(7), AT(8), 1)); /* a late one of the first */
    feed_close(&feed, first);                             /* likewise */
    EXPECT(feed_take(&feed, second, 4, AT(7), AT(8), 1));
    feed_applied(&feed, 3);
    feed_close(&feed, second);
    /* Nothing pending: what a primary wrote itself, or a rollback took away, counts. */
    EXPECT(feed_open(&feed, true, AT(6), &first));
    EXPECT(optime_equal(feed.tail, AT(6)));
}

TEST(feed_is_closed_from_the_moment_of_a_drain) {
    /* Goal: what was asked for before the drain and comes after it is refused, however far it was
     * on its way. */
    for (int progress = 0; progress < 3; progress++) {
        Feed feed;
        feed_init(&feed);
        uint64_t stream, next;
        int64_t term = 0;
        EXPECT(feed_open(&feed, true, AT(5), &stream));
        if (progress > 0)
            EXPECT(feed_prove(&feed, stream, 1, AT(5)));
        if (progress > 1)
            EXPECT(feed_take(&feed, stream, 1, AT(5), AT(7), 2));
        feed_drain(&feed, 3);
        EXPECT(!feed_prove(&feed, stream, 1, feed.tail));
        EXPECT(!feed_take(&feed, stream, 1, feed.tail, AT(9), 1));
        EXPECT(!feed_open(&feed, true, AT(5), &next));
        EXPECT(feed_drained(&feed, &term) == (progress < 2));
        if (progress > 1) {
            feed_applied(&feed, 2);
            EXPECT(feed_drained(&feed, &term));
        }
        EXPECT_EQ_I64(term, 3);
        EXPECT(!feed_drained(&feed, &term));
        /* As the primary it takes nothing; after it has stepped down, from anew. */
        EXPECT(!feed_open(&feed, /* is_follower= */ false, AT(20), &next));
        EXPECT(!feed_take(&feed, stream, 1, feed.tail, AT(9), 1));
        EXPECT(feed_open(&feed, /* is_follower= */ true, AT(20), &next));
        EXPECT(!feed_prove(&feed, stream, 1, AT(20)));
        EXPECT(feed_prove(&feed, next, 1, AT(20)));
    }
}

TEST(feed_of_a_primary_that_catches_up) {
    Feed feed;
    feed_init(&feed);
    uint64_t stream;
    int64_t term;
    feed_catch_up(&feed, 3);
    EXPECT(feed_open(&feed, /* is_follower= */ false, AT(5), &stream));
    EXPECT(feed_prove(&feed, stream, 1, AT(5)));
    EXPECT(feed_take(&feed, stream, 1, AT(5), AT(6), 1));
    feed_drain(&feed, 3);
    feed_applied(&feed, 1);
    EXPECT(feed_drained(&feed, &term));
    feed_catch_up(&feed, 3); /* the word of its begin, overtaken by that of its end */
    EXPECT(!feed_open(&feed, /* is_follower= */ false, AT(6), &stream));
    feed_catch_up(&feed, 4);
    EXPECT(feed_open(&feed, /* is_follower= */ false, AT(6), &stream));
}
