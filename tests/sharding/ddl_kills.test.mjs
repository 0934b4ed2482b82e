import { describe, test } from 'node:test';
import { killDuring } from './ddl_kills.mjs';

describe('operations on the cluster survive', () => {
    const { deaths } = killDuring('shardCollection', 'drop', 'rename', 'dropDatabase');
    for (const [name, body] of deaths) test(name, body);
});
