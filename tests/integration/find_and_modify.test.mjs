/*
 * STX-3: findAndModify with a sort, while others write.
 *
 * A sort reads everything before it gives its first document, and yields meanwhile: what it has
 * read may be old by then. Queries yield as often as they can here.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails } from '../lib/expect.mjs';
import { useServer } from '../lib/fixture.mjs';

const node = useServer({ args: ['--setParameter', 'internalQueryExecYieldPeriodMS=0'] });

test('STX-3: it does not undo what others did while it sorted', async () => {
    const documents = Array.from({ length: 3000 }, (_, i) => ({ _id: i, at: i, n: 0 }));
    const c = await node.collection(documents);
    const inc = { $inc: { n: 1 } };
    let done = 0;
    let isOver = false;
    const other = (async () => {
        for (; !isOver; done++) await c.updateOne({ _id: 0 }, inc);
    })();
    for (let i = 0; i < 60; i++, done++) await c.findOneAndUpdate({}, inc, { sort: { at: 1 } });
    isOver = true;
    await other;
    assert.equal((await c.findOne({ _id: 0 })).n, done);
    assert.equal((await node.db.command({ validate: c.collectionName })).valid, true);
});

test('STX-3: of a queue that several empty each document is taken once, and all are', async () => {
    const documents = Array.from({ length: 300 }, (_, i) => ({ _id: i, at: i % 7, n: 0 }));
    /* What is read behind them leaves time to lose them. */
    const done = Array.from({ length: 1500 }, (_, i) => ({ _id: 1000 + i, at: 0, n: 1 }));
    const c = await node.collection([...documents, ...done]);
    const taken = [];
    const take = () => c.findOneAndUpdate({ n: 0 }, { $inc: { n: 1 } }, { sort: { at: 1 } });
    const worker = async () => {
        for (let got = await take(); got !== null; got = await take()) taken.push(got._id);
        /* None comes back: if one is left now, there was one to take. */
        assert.equal(await c.countDocuments({ n: 0 }), 0);
    };
    await Promise.all(Array.from({ length: 6 }, worker));
    assert.deepEqual(taken.sort((x, y) => x - y), documents.map(({ _id }) => _id));
});

test('fields that cannot be shown are refused before anything is written', async () => {
    const c = await node.collection([{ _id: 1, a: 1 }]);
    const modify = (fields) =>
        node.db.command({
            findAndModify: c.collectionName,
            query: { _id: 1 },
            sort: { a: 1 },
            update: { $inc: { a: 1 } },
            fields,
        });
    await fails(modify({ k: { $meta: 'sortKey' } }), 2);
    await fails(modify({ a: 1, b: 0 }), 31254, { name: undefined });
    assert.deepEqual(await c.findOne(), { _id: 1, a: 1 });
});
