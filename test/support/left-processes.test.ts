import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { endProcessesOf } from './left-processes.ts';

test(
  'a run of the tests that is stopped leaves no process, not even one that takes no signal',
  { skip: process.platform !== 'linux' },
  async (t) => {
    const folder = join(tmpdir(), `duebridge-left-${process.pid}`);
    const start = async (program: string, env: NodeJS.ProcessEnv, ...args: string[]) => {
      const child = spawn(process.execPath, ['--eval', program, '--', ...args], {
        env,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      t.after(() => child.kill('SIGKILL'));
      const ended = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
      await once(child.stdout, 'data');
      return { child, ended };
    };
    const waits = `setInterval(() => {}, 1_000); console.log('here');`;
    const obeys = await start(waits, {}, `--data=${folder}/tmp/data`);
    const stubborn = await start(`process.on('SIGTERM', () => {}); ${waits}`, {
      TMPDIR: `${folder}/tmp`,
    });
    const other = await start(waits, { TMPDIR: tmpdir() });
    assert.deepEqual(await endProcessesOf([`${folder}/tmp`], 500), [
      process.execPath,
      process.execPath,
    ]);
    assert.equal((await obeys.ended)[1], 'SIGTERM');
    assert.equal((await stubborn.ended)[1], 'SIGKILL');
    assert.equal(other.child.exitCode ?? other.child.signalCode, null);
    assert.deepEqual(await endProcessesOf([`${folder}/tmp`]), []);
  },
);
