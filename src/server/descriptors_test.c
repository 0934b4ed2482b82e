#include "server/descriptors.h"

#include "base/test.h"

TEST(descriptor_shares_leave_something_for_all) {
    /* Goal: at every limit a server can start with, connections and tables together leave room for
     * the journal and for other members, and connections get at most four fifths. */
    for (uint64_t limit = 192; limit < 3000000; limit += limit / 7) {
        DescriptorShares shares = descriptors_share(limit, 1000000);
        EXPECT(shares.connections >= 16);
        EXPECT(shares.table_files >= 16);
        EXPECT(shares.connections <= 1000000);
        EXPECT(shares.connections <= limit * 4 / 5);
        EXPECT(shares.members >= 8);
        EXPECT(limit - shares.connections - shares.table_files - shares.members >= 36);
    }
}

TEST(descriptor_shares_are_those_of_the_reference_for_usual_limits) {
    EXPECT_EQ_U64(descriptors_share(20000, 1000000).connections, 16000);
    EXPECT_EQ_U64(descriptors_share(64000, 1000000).connections, 51200);
    EXPECT_EQ_U64(descriptors_share(64000, 100).connections, 100);
    /* What connections do not want is for tables. */
    EXPECT(descriptors_share(64000, 100).table_files > 30000);
    EXPECT_EQ_U64(descriptors_share(0, 1000000).connections, 16);
}
