/* REP-4: the primary of a set of one is killed at every border of a task's phases; see task_kills.mjs. */
import { after, before, test } from 'node:test';
import { TESTS, World } from './task_kills.mjs';

const world = new World();
before(() => world.start(1));
after(() => world.set?.remove());

for (const [claim, run] of TESTS) test(claim, () => run(world));
