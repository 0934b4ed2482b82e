/*
 * check.mjs - tells whether a history of list-append transactions can come from a store with snapshot
 * isolation. See README.md for what is looked for and why that is all.
 */
import { findCycles } from './cycles.mjs';
import { readVersions } from './versions.mjs';

/*
 * transactions: see README.md. final: Map of key to list, read after all of them; then every committed
 * value must be there. session: later transactions of a session see the earlier ones. realtime: so do
 * all that began after the other's end was known.
 *
 * anomalies: [{ kind, text }], empty when all is well. writeSkews: groups with allowed cycles.
 */
export function checkHistory(transactions, { final, session = true, realtime = false } = {}) {
    const history = readVersions(transactions, final);
    const anomalies = [...history.anomalies];
    // Where there is no order of versions, its cycles mean nothing.
    const hasOrder = anomalies.every(({ kind }) => kind !== 'incompatible order' && kind !== 'duplicate');
    const cycles = hasOrder ? findCycles(history, { session, realtime }) : { anomalies: [], writeSkews: 0 };
    anomalies.push(...cycles.anomalies);
    return {
        anomalies,
        writeSkews: cycles.writeSkews,
        committed: history.committed.length,
        unknown: transactions.filter(({ outcome }) => outcome === 'unknown').length,
        reads: history.readCount,
    };
}

/* For messages of failures. */
export const describeAnomalies = (anomalies) =>
    anomalies.map(({ kind, text }) => `${kind}: ${text}`).join('\n');
