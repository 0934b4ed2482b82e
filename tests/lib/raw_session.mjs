/*
 * raw_session.mjs - a session whose commands are sent exactly as they are: the driver would number them itself.
 */
import assert from 'node:assert/strict';
import { Long, UUID } from 'mongodb';
import { RawConnection } from './wire.mjs';

/* A reply without what every reply of a member has, or every one of a write. */
export function plain({ $clusterTime: _, operationTime: __, opTime: ___, electionId: ____, ...reply }) {
    return reply;
}

/* A command without a session, as no driver sends it. */
export async function runBare(member, command, db) {
    const wire = await RawConnection.open({ host: '127.0.0.1', port: member.port });
    const reply = plain(await wire.command({ ...command, $db: db }));
    wire.close();
    assert.equal(reply.ok, 1, reply.errmsg);
    return reply;
}

/* member: whatever has a `port`. */
export class RawSession {
    constructor(member, id = new UUID()) {
        this.member = member;
        this.lsid = { id };
        this.wire = null;
    }

    async run(command, txnNumber, db = 'test') {
        this.wire ??= await RawConnection.open({ host: '127.0.0.1', port: this.member.port });
        const extra = txnNumber === undefined ? {} : { txnNumber: Long.fromNumber(txnNumber) };
        const reply = await this.wire.command({ ...command, $db: db, lsid: this.lsid, ...extra });
        return plain(reply);
    }

    /* The same command twice; both replies, of which the second is a retry. */
    async twice(command, txnNumber, db) {
        const first = await this.run(command, txnNumber, db);
        return [first, await this.run(command, txnNumber, db)];
    }

    close() {
        this.wire?.close();
        this.wire = null;
    }
}
