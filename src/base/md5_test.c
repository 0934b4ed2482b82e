#include "base/md5.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/prng.h"
#include "base/test.h"

static void digest_of(const void *data, size_t size, char ret_hex[33]) {
    Md5 md5;
    md5_init(&md5);
    md5_add(&md5, data, size);
    uint8_t digest[MD5_DIGEST_SIZE];
    md5_end(&md5, digest);
    for (int i = 0; i < MD5_DIGEST_SIZE; i++)
        snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
}

TEST(md5_gives_the_digests_of_its_specification) {
    static const char *const PAIRS[][2] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"a", "0cc175b9c0f1b6a831c399e269772661"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
    };
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
        char hex[33];
        digest_of(PAIRS[i][0], strlen(PAIRS[i][0]), hex);
        EXPECT_STR(hex, PAIRS[i][1]);
    }
}

/* Every length up to three blocks, added in pieces of any size, against another implementation. */
TEST(md5_of_pieces_is_that_of_the_whole) {
    enum { BYTES_MAX = 3 * MD5_BLOCK_SIZE };
    Prng prng = prng_seeded(1);
    uint8_t data[BYTES_MAX];
    for (size_t size = 0; size <= BYTES_MAX; size++) {
        for (size_t i = 0; i < size; i++)
            data[i] = (uint8_t)prng_u64(&prng);
        Md5 md5;
        md5_init(&md5);
        for (size_t at = 0; at < size;) {
            size_t piece = 1 + prng_below(&prng, 80);
            if (piece > size - at)
                piece = size - at;
            md5_add(&md5, data + at, piece);
            at += piece;
        }
        uint8_t digest[MD5_DIGEST_SIZE], wanted[EVP_MAX_MD_SIZE];
        md5_end(&md5, digest);
        EXPECT(EVP_Digest(data, size, wanted, NULL, EVP_md5(), NULL) == 1);
        EXPECT(memcmp(digest, wanted, MD5_DIGEST_SIZE) == 0);
    }
}
