/*
 * bank.mjs - accounts whose sum never changes: what one snapshot shows must add up.
 */

/* snapshots: [{ where, accounts: [{ _id, balance }] }]. Resolves to what is wrong, as texts. */
export function checkBank(snapshots, total) {
    const problems = [];
    for (const { where, accounts } of snapshots) {
        const sum = accounts.reduce((before, { balance }) => before + balance, 0);
        const ids = new Set(accounts.map(({ _id }) => String(_id)));
        if (sum !== total) problems.push(`${where}: the sum is ${sum} of ${total}`);
        if (ids.size !== accounts.length) problems.push(`${where}: an account is there twice`);
        for (const { _id, balance } of accounts)
            if (!Number.isInteger(balance) || balance < 0)
                problems.push(`${where}: account ${_id} has ${balance}`);
    }
    return problems;
}
