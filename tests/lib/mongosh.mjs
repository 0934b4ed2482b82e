/*
 * mongosh.mjs - scripted runs of the shell.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const MONGOSH = join(HERE, '..', 'node_modules', '.bin', 'mongosh');

/* Output of the shell for statements, each given with --eval. `home` is a directory for what the
 * shell keeps (history, settings), which should go away with the test. */
export async function runShell({ uri, home }, ...statements) {
    const evals = statements.flatMap((statement) => ['--eval', statement]);
    const env = { ...process.env, HOME: home, MONGOSH_FORCE_DISABLE_TELEMETRY_FOR_TESTING: '1' };
    const child = spawn(MONGOSH, ['--quiet', '--norc', uri, ...evals], {
        stdio: ['ignore', 'pipe', 'pipe'],
        env,
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (data) => (stdout += data));
    child.stderr.on('data', (data) => (stderr += data));
    const [code] = await once(child, 'close');
    assert.equal(code, 0, `mongosh ended with ${code}: ${stdout} ${stderr}`);
    return stdout;
}
