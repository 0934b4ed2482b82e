/*
 * attempt.mjs - one transaction with the driver, and what is known about its outcome.
 *
 * The rules are those that applications live by: what failed before the commit was sent has no effect;
 * a commit is repeated while its result is unknown; "TransientTransactionError" means that nothing
 * happened and nothing will, so that the whole may be tried again.
 */
import { isExpected } from '../repl/load.mjs';

const UNKNOWN = 'UnknownTransactionCommitResult';
const TRANSIENT = 'TransientTransactionError';
const COMMITS_MAX = 5;
const PAUSE_MS = 50;

/* What may happen to a statement beside what faults do to any command. */
const CODES = [
    24, // LockTimeout
    112, // WriteConflict
    134, // ReadConcernMajorityNotAvailableYet
    246, // SnapshotUnavailable
    251, // NoSuchTransaction
    11602, // InterruptedDueToReplStateChange
];

const INTERRUPTED = 11601; // by killAllSessions: whoever did that knows whether to try again

export const isTransient = (error) => error.hasErrorLabel?.(TRANSIENT) === true;
const isUnderstood = (error) =>
    isExpected(error) || [...CODES, INTERRUPTED].includes(error.code) || isTransient(error);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/*
 * Runs `body(session)` and commits with w: majority. Resolves to { outcome, error, value }; outcome
 * "committed", "aborted" or "unknown". Errors that no fault explains are thrown.
 */
export async function attempt(session, body, { readConcern = { level: 'snapshot' } } = {}) {
    session.startTransaction({ readConcern, writeConcern: { w: 'majority' } });
    let value;
    try {
        value = await body(session);
    } catch (error) {
        await session.abortTransaction().catch(() => {});
        if (!isUnderstood(error)) throw error;
        // Whoever must not try again has to be told by another error.
        if (error.code !== undefined && CODES.includes(error.code) && !isTransient(error))
            throw new Error(`an error inside that is not transient: ${error.code} ${error.message}`);
        return { outcome: 'aborted', error };
    }
    return { value, ...(await commit(session)) };
}

async function commit(session) {
    for (let i = 0; ; i++) {
        try {
            await session.commitTransaction();
            return { outcome: 'committed' };
        } catch (error) {
            if (isTransient(error)) return { outcome: 'aborted', error };
            const isUnknown = error.hasErrorLabel?.(UNKNOWN) || isExpected(error) || error.code === INTERRUPTED;
            if (!isUnknown) throw error;
            if (i === COMMITS_MAX) return { outcome: 'unknown', error };
            await pause(PAUSE_MS);
        }
    }
}

/* Tries until it is known, as withTransaction does; `isOver` ends it, then with what is known. */
export async function insist(session, body, options = {}, isOver = () => false) {
    for (;;) {
        const result = await attempt(session, body, options);
        if (result.outcome !== 'aborted' || isOver()) return result;
        await pause(Math.random() * 20);
    }
}
