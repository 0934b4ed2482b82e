/* OPS-2: drivers of other languages, by their smoke tests in tests/smoke. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { useServer } from '../lib/fixture.mjs';
import { runToEnd } from '../lib/server.mjs';

const SMOKE = join(dirname(fileURLToPath(import.meta.url)), '..', 'smoke');
const PYTHON = '/usr/bin/python3'; // Debian's, which has python3-pymongo
let mongoc;
const node = useServer(
    {},
    {
        prepare: async ({ server }) => {
            const pkg = spawnSync('pkg-config', ['--cflags', '--libs', 'libmongoc-1.0'], {
                encoding: 'utf8',
            });
            assert.equal(pkg.status, 0, pkg.stderr);
            mongoc = join(server.root, 'mongoc_smoke');
            const flags = pkg.stdout.trim().split(/\s+/);
            const cc = await runToEnd(
                [
                    '-Wall',
                    '-Wextra',
                    '-Werror',
                    join(SMOKE, 'mongoc_smoke.c'),
                    '-o',
                    mongoc,
                    ...flags,
                ],
                { bin: 'cc' },
            );
            assert.equal(cc.code, 0, cc.stderr);
        },
    },
);

test('OPS-2: pymongo works', async () => {
    const { code, stdout, stderr } = await runToEnd(
        [join(SMOKE, 'pymongo_smoke.py'), node.server.uri],
        { bin: PYTHON },
    );
    assert.equal(code, 0, stdout + stderr);
});

for (const compressor of ['none', 'snappy', 'zlib', 'zstd']) {
    test(`OPS-2: libmongoc works with compressor ${compressor}`, async () => {
        const more = compressor === 'none' ? '' : `&compressors=${compressor}`;
        const { code, stdout, stderr } = await runToEnd([`${node.server.uri}${more}`], {
            bin: mongoc,
        });
        assert.equal(code, 0, stdout + stderr);
        assert.doesNotMatch(stderr, /not compiled in|unsupported compressor/i);
    });
}
