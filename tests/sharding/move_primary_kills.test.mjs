import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { killDuring, OPERATIONS } from './ddl_kills.mjs';

describe('moves of databases survive', () => {
    const { world, deaths, runUpTo, crashAt, checkOutcome } = killDuring('movePrimary');
    for (const [name, body] of deaths) test(name, body);

    test('DDL-2: movePrimary that cannot be done: the coordinator dies while it takes it back', async () => {
        const operation = OPERATIONS.movePrimary;
        const [donor, recipient] = world.cluster.shards;
        await operation.prepare(world);
        await world.client.db('d').collection('zz').insertOne({});
        const other = (await world.direct(recipient)).db('d');
        const [outcome] = await runUpTo(donor, operation, 'movePrimary.clone'); // it has found nothing in its way
        await other.collection('zz').insertOne({ orphan: true });
        const recover = await crashAt(donor, 'movePrimary.undo');
        await donor.release(donor.members[0], 'task.beforeRun');
        await recover();
        await outcome;
        await world.settle();
        const left = await other.listCollections({}, { nameOnly: true }).toArray();
        assert.deepEqual(left.map(({ name }) => name).sort(), ['c', 'zz']);
        assert.equal(await world.client.db('d').collection('plain').countDocuments(), 500);
        await other.collection('zz').drop();
        await world.client.db('d').collection('zz').drop();
        await checkOutcome(operation, 'taken back');
    });
});
