import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { assertInTime, unlessTooSlow } from './real-time.ts';

const execute = promisify(execFile);

test('a server that takes half a minute to start finds its port free: no other test gets it meanwhile', async () => {
  // Held by two processes at once: of 1,200 ports taken blindly from these, dozens would be the same.
  const program = `
    import { freePort } from ${JSON.stringify(new URL('testing.ts', import.meta.url).href)};
    const ports = [];
    for (let count = 0; count < 600; count += 1) ports.push(await freePort());
    console.log(JSON.stringify(ports));
    // Until the other has finished, too.
    process.stdin.resume();`;
  const running = [0, 1].map(() =>
    execute(process.execPath, ['--input-type=module', '--eval', program]),
  );
  const printed = running.map(
    ({ child }) => new Promise((resolve) => child.stdout?.once('data', resolve)),
  );
  await Promise.all(printed);
  for (const { child } of running) child.stdin?.end();
  const ports = (await Promise.all(running)).flatMap(
    ({ stdout }) => JSON.parse(stdout) as number[],
  );
  assert.equal(ports.length, 1200);
  assert.equal(new Set(ports).size, 1200);
  assert.ok(ports.every((port) => port >= 20_000 && port < 32_768));
});

test('a slow machine is forgiven a missed limit of real time, and nothing else', async () => {
  const late = (): void => assertInTime(false, 'too late');
  const skipped: (string | undefined)[] = [];
  const t = { skip: (why?: string) => void skipped.push(why) };
  await unlessTooSlow(t, late, () => 3.14);
  assert.deepEqual(skipped, ['this machine is 3.1 times too slow']);
  await assert.rejects(
    unlessTooSlow(t, late, () => 1.5),
    /too late/,
  );
  const wrong = (): void => assert.equal(1, 2);
  await assert.rejects(
    unlessTooSlow(t, wrong, () => 3.14),
    assert.AssertionError,
  );
  await unlessTooSlow(t, () => assertInTime(true, 'in time'), late as never);
  assert.equal(skipped.length, 1);
});
