/* configureFailPoint: failCommand with every option, modes, errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';
import { waitFor } from '../lib/server.mjs';

const node = useServer();
const failCommand = (mode, data, body) => node.withFailpoint('failCommand', mode, data, body);

test('errorCode makes the named commands fail and no others', () =>
    failCommand('alwaysOn', { failCommands: ['find', 'insert'], errorCode: 8 }, async () => {
        await fails(node.db.command({ find: 'c' }), 8, {
            name: 'UnknownError',
            message: /failCommand/,
        });
        await fails(node.db.command({ insert: 'c', documents: [{}] }), 8);
        assert.equal((await node.db.command({ count: 'c' })).ok, 1);
    }));

test('{times: n} fails n times', () =>
    failCommand({ times: 2 }, { failCommands: ['ping'], errorCode: 8 }, async () => {
        await fails(node.db.command({ ping: 1 }), 8);
        await fails(node.db.command({ ping: 1 }), 8);
        assert.equal((await node.db.command({ ping: 1 })).ok, 1);
    }));

test('{skip: n} lets n pass first', () =>
    failCommand({ skip: 2 }, { failCommands: ['ping'], errorCode: 8 }, async () => {
        assert.equal((await node.db.command({ ping: 1 })).ok, 1);
        assert.equal((await node.db.command({ ping: 1 })).ok, 1);
        await fails(node.db.command({ ping: 1 }), 8);
        await fails(node.db.command({ ping: 1 }), 8);
    }));

test('{activationProbability: p} fails some', () =>
    failCommand(
        { activationProbability: 0.5 },
        { failCommands: ['ping'], errorCode: 8 },
        async () => {
            let failed = 0;
            for (let i = 0; i < 200; i++) await node.db.command({ ping: 1 }).catch(() => failed++);
            assert.ok(failed > 40 && failed < 160, `${failed} of 200`);
        },
    ));

test('off ends it', async () => {
    await node.admin.command({
        configureFailPoint: 'failCommand',
        mode: 'alwaysOn',
        data: { failCommands: ['ping'], errorCode: 8 },
    });
    await node.admin.command({ configureFailPoint: 'failCommand', mode: 'off' });
    assert.equal((await node.db.command({ ping: 1 })).ok, 1);
});

test('errorLabels come with the error', () =>
    failCommand(
        { times: 1 },
        { failCommands: ['insert'], errorCode: 112, errorLabels: ['RetryableWriteError', 'Mine'] },
        () =>
            fails(node.db.command({ insert: 'c', documents: [{}] }), 112, {
                labels: ['RetryableWriteError', 'Mine'],
            }),
    ));

test('closeConnection closes without an answer, and a driver retries the read', () =>
    failCommand({ times: 1 }, { failCommands: ['find'], closeConnection: true }, async () => {
        const events = [];
        const client = await node.server.client({ monitorCommands: true });
        client.on('commandFailed', ({ commandName }) => events.push(commandName));
        assert.deepEqual(await client.db('test').collection('none').find().toArray(), []);
        assert.deepEqual(events, ['find']);
        await client.close();
    }));

test('closeConnection without retry is a network error', () =>
    failCommand({ times: 1 }, { failCommands: ['ping'], closeConnection: true }, () =>
        assert.rejects(node.db.command({ ping: 1 }), { name: 'MongoNetworkError' }),
    ));

test('writeConcernError is added to the reply of a write that was done', () =>
    failCommand(
        { times: 1 },
        { failCommands: ['insert'], writeConcernError: { code: 64, errmsg: 'mine' } },
        async () => {
            const reply = await node.db
                .command({ insert: 'wce', documents: [{ _id: 1 }] })
                .catch((error) => error.errorResponse ?? error.result);
            assert.equal(reply.writeConcernError.code, 64);
            assert.equal(reply.writeConcernError.errmsg, 'mine');
            assert.equal(await node.db.collection('wce').countDocuments(), 1);
        },
    ));

test('writeConcernError with errInfo and errorLabels', () =>
    failCommand(
        { times: 1 },
        {
            failCommands: ['delete'],
            errorLabels: ['Mine'],
            writeConcernError: { code: 64, errmsg: 'waiting', errInfo: { writeConcern: { w: 2 } } },
        },
        async () => {
            const reply = await node.db
                .command({ delete: 'wce', deletes: [{ q: {}, limit: 0 }] })
                .catch((error) => error.errorResponse ?? error.result);
            assert.deepEqual(reply.writeConcernError.errInfo, { writeConcern: { w: 2 } });
            assert.deepEqual(reply.errorLabels, ['Mine']);
        },
    ));

test('blockConnection delays and then goes on', () =>
    failCommand(
        { times: 1 },
        { failCommands: ['ping'], blockConnection: true, blockTimeMS: 300 },
        async () => {
            const started = Date.now();
            assert.equal((await node.db.command({ ping: 1 })).ok, 1);
            assert.ok(Date.now() - started >= 280);
        },
    ));

test('a blocked command keeps nobody else waiting', () =>
    failCommand(
        { times: 1 },
        { failCommands: ['count'], blockConnection: true, blockTimeMS: 1500 },
        async () => {
            const blocked = node.db.command({ count: 'c' });
            const started = Date.now();
            assert.equal((await node.db.command({ ping: 1 })).ok, 1);
            assert.ok(Date.now() - started < 1000);
            await blocked;
        },
    ));

test('appName limits it to one client', async () => {
    const other = await node.server.client({ appName: 'victim' });
    await failCommand(
        'alwaysOn',
        { failCommands: ['ping'], errorCode: 8, appName: 'victim' },
        async () => {
            assert.equal((await node.db.command({ ping: 1 })).ok, 1);
            await fails(other.db('test').command({ ping: 1 }), 8);
        },
    );
    await other.close();
});

test('namespace limits it to one collection', () =>
    failCommand(
        'alwaysOn',
        { failCommands: ['find'], errorCode: 8, namespace: 'test.victim' },
        async () => {
            assert.equal((await node.db.command({ find: 'c' })).ok, 1);
            await fails(node.db.command({ find: 'victim' }), 8);
        },
    ));

test('hello can fail without hurting other connections', async () => {
    await failCommand(
        { times: 1 },
        { failCommands: ['hello', 'isMaster'], errorCode: 91, appName: 'onlyme' },
        async () => {
            const client = await node.server.client({ appName: 'onlyme' });
            assert.equal((await client.db('test').command({ ping: 1 })).ok, 1);
            await client.close();
        },
    );
});

test('appName is known from the very hello that tells it', () =>
    failCommand(
        'alwaysOn',
        { failCommands: ['hello', 'isMaster'], closeConnection: true, appName: 'unwelcome' },
        async () => {
            const options = { appName: 'unwelcome', serverSelectionTimeoutMS: 200 };
            await assert.rejects(node.server.client(options), /MongoServerSelectionError|closed/);
            const client = await node.server.client({ appName: 'welcome' });
            assert.equal((await client.db('test').command({ ping: 1 })).ok, 1);
        },
    ));

test('failGetMoreAfterCursorCheckout fails getMore', async () => {
    const c = await node.collection(Array.from({ length: 10 }, (_, _id) => ({ _id })));
    const { cursor } = await node.db.command({ find: c.collectionName, batchSize: 1 });
    await node.withFailpoint(
        'failGetMoreAfterCursorCheckout',
        { times: 1 },
        { errorCode: 280 },
        () => fails(node.db.command({ getMore: cursor.id, collection: c.collectionName }), 280),
    );
});

test('STX-3: write conflicts are retried until the write succeeds', async () => {
    const c = await node.collection([{ _id: 1, n: 0 }]);
    await node.withFailpoint(
        'WTWriteConflictException',
        { activationProbability: 0.5 },
        undefined,
        async () => {
            for (let i = 0; i < 50; i++) await c.updateOne({ _id: 1 }, { $inc: { n: 1 } });
        },
    );
    assert.equal((await c.findOne()).n, 50);
});

test('configureFailPoint refuses what it does not know', async () => {
    const configure = (more) => node.admin.command({ configureFailPoint: 'failCommand', ...more });
    await fails(node.admin.command({ configureFailPoint: 'nonsense', mode: 'off' }), 4, {
        message: /nonsense/,
    }).catch((error) => assert.match(error.message, /249|51006/));
    await fails(configure({ mode: 'nonsense' }), 2);
    await fails(configure({ mode: { times: 'x' } }), 14);
    await fails(configure({ mode: { activationProbability: 2 } }), 2);
    await fails(configure({}), 40414);
    await fails(configure({ mode: 'off', nonsense: 1 }), 40415);
});

test('waitForFailPoint returns once it was hit that often', async () => {
    const reply = await node.admin.command({
        configureFailPoint: 'failCommand',
        mode: { times: 1 },
        data: { failCommands: ['count'], errorCode: 8 },
    });
    const waiting = node.admin.command({
        waitForFailPoint: 'failCommand',
        timesEntered: Number(reply.count) + 1,
        maxTimeMS: 5000,
    });
    await fails(node.db.command({ count: 'c' }), 8);
    assert.equal((await waiting).ok, 1);
});

/* ---- failpoints at which an operation waits ---- */

const waitingIn = (name) =>
    waitFor(async () => {
        const { inprog } = await node.admin.command({ currentOp: 1, failpointMsg: name });
        return inprog.length === 1 && inprog[0];
    });

test('operations wait in the failpoints that are named after their places, and currentOp says where', async () => {
    const c = await node.collection([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    const coll = c.collectionName;
    const nss = `test.${coll}`;
    const cursorOf = async () => (await node.db.command({ find: coll, batchSize: 1 })).cursor.id;
    const getMore = async () => ({ getMore: await cursorOf(), collection: coll });
    const cases = [
        ['waitInFindBeforeMakingBatch', { nss }, () => ({ find: coll })],
        ['waitAfterPinningCursorBeforeGetMoreBatch', { nss }, getMore],
        ['getMoreHangAfterPinCursor', {}, getMore],
        ['waitWithPinnedCursorDuringGetMoreBatch', {}, getMore],
        ['waitBeforeUnpinningOrDeletingCursorAfterGetMoreBatch', {}, getMore],
        ['hangDuringBatchInsert', { nss }, () => ({ insert: coll, documents: [{}] })],
        ['hangInsertBeforeWrite', { ns: nss }, () => ({ insert: coll, documents: [{}] })],
        ['hangAfterCollectionInserts', { collectionNS: nss, first_id: 9 }, () => ({ insert: coll, documents: [{ _id: 9 }] })],
        ['hangDuringBatchUpdate', {}, () => ({ update: coll, updates: [{ q: {}, u: { $set: { a: 1 } } }] })],
        ['hangAfterBatchUpdate', {}, () => ({ update: coll, updates: [{ q: {}, u: { $set: { a: 2 } } }] })],
        ['hangBeforeUpsertPerformsInsert', {}, () => ({ update: coll, updates: [{ q: { _id: 'n' }, u: { a: 1 }, upsert: true }] })],
        ['hangDuringBatchRemove', {}, () => ({ delete: coll, deletes: [{ q: { _id: 1 }, limit: 1 }] })],
        ['hangWithLockDuringBatchInsert', { nss }, () => ({ insert: coll, documents: [{}] })],
        ['hangWithLockDuringBatchUpdate', {}, () => ({ update: coll, updates: [{ q: {}, u: { $set: { a: 3 } } }] })],
        ['hangWithLockDuringBatchRemove', {}, () => ({ delete: coll, deletes: [{ q: { _id: 2 }, limit: 1 }] })],
        ['hangAfterDatabaseLock', {}, () => ({ collMod: coll })],
        ['setYieldAllLocksHang', { namespace: nss }, () => ({ count: coll, query: { a: 1 } })],
        ['waitAfterCommandFinishesExecution', { ns: nss, commands: ['distinct'] }, () => ({ distinct: coll, key: 'a' })],
    ];
    for (const [name, data, command] of cases) {
        const body = await command();
        let running;
        await node.withFailpoint(name, 'alwaysOn', data, async () => {
            running = node.db.command(body);
            const op = await waitingIn(name);
            assert.equal(Object.keys(op.command)[0], Object.keys(body)[0], name);
            await node.db.command({ ping: 1 });
        });
        assert.equal((await running).ok, 1, name);
    }
});

test('such a failpoint lets others pass, and ends with the operation if it is told to look', async () => {
    const c = await node.collection([{ _id: 1 }]);
    await node.withFailpoint('hangDuringBatchInsert', 'alwaysOn', { nss: 'test.another' }, () => c.insertOne({}));
    await node.withFailpoint('waitAfterCommandFinishesExecution', 'alwaysOn', { commands: ['count'] }, () => c.findOne());
    await node.withFailpoint('hangDuringBatchInsert', 'alwaysOn', { shouldCheckForInterrupt: true }, () =>
        fails(node.db.command({ insert: c.collectionName, documents: [{}], maxTimeMS: 200 }), 50),
    );
});

test('maxTimeAlwaysTimeOut ends every operation that has a limit, maxTimeNeverTimeOut none', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const coll = c.collectionName;
    await node.withFailpoint('maxTimeAlwaysTimeOut', 'alwaysOn', undefined, async () => {
        await fails(node.db.command({ find: coll, maxTimeMS: 100000 }), 50);
        assert.equal(await c.countDocuments(), 1);
    });
    await node.withFailpoint('maxTimeNeverTimeOut', 'alwaysOn', undefined, async () => {
        let waiting;
        await node.withFailpoint('waitInFindBeforeMakingBatch', 'alwaysOn', { shouldCheckForInterrupt: true }, async () => {
            waiting = node.db.command({ find: coll, maxTimeMS: 1 });
            await waitingIn('waitInFindBeforeMakingBatch');
        });
        assert.equal((await waiting).ok, 1);
    });
});

test('failpoints fail all inserts, updates, removes, findAndModify and plans', async () => {
    const c = await node.collection([{ _id: 1 }]);
    const cases = [
        ['failAllInserts', () => c.insertOne({}), 1],
        ['failAllUpdates', () => c.updateOne({}, { $set: { a: 1 } }), 1],
        ['failAllRemoves', () => c.deleteOne({}), 1],
        ['failAllFindAndModify', () => c.findOneAndDelete({}), 1],
        ['planExecutorAlwaysFails', () => c.find({ a: 1 }).toArray(), 4382101],
    ];
    for (const [name, run, code] of cases) await node.withFailpoint(name, 'alwaysOn', undefined, () => fails(run(), code));
    assert.deepEqual(await c.find().toArray(), [{ _id: 1 }]);
});

test('getMore and explain show the comment of the command that they belong to, unless they have their own', async () => {
    const c = await node.collection([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    const coll = c.collectionName;
    const shown = async (command) => {
        let op, running;
        await node.withFailpoint('waitAfterCommandFinishesExecution', 'alwaysOn', { commands: [Object.keys(command)[0]] }, async () => {
            running = node.db.command(command);
            op = await waitingIn('waitAfterCommandFinishesExecution');
        });
        await running;
        return op.command.comment;
    };
    const { cursor } = await node.db.command({ find: coll, batchSize: 1, comment: { a: 1 } });
    const getMore = { getMore: cursor.id, collection: coll, batchSize: 1 };
    assert.deepEqual(await shown(getMore), { a: 1 });
    assert.deepEqual(await shown({ ...getMore, comment: 'mine' }), 'mine');
    const find = { find: coll, comment: 'inner' };
    assert.deepEqual(await shown({ explain: find }), 'inner');
    assert.deepEqual(await shown({ explain: find, comment: 'outer' }), 'outer');
});
