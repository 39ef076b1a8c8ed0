import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import test, { type TestContext } from 'node:test';

/** Runs a service in its own process; `body` is the code of its start. Returns its exit code and what it printed. */
async function life(
  t: TestContext,
  body: string,
  act: (signal: (name: NodeJS.Signals) => void, line: string) => void = () => undefined,
): Promise<{ code: number | null; printed: string }> {
  const href = (name: string): string => JSON.stringify(new URL(name, import.meta.url).href);
  const program = `
    import { runService } from ${href('./lifecycle.ts')};
    import { ConfigurationError } from ${href('./errors.ts')};
    const say = (_details, message) => console.log(message);
    const hold = setInterval(() => undefined, 1000);
    await runService({ log: { debug: say, info: say, warn: say, error: say }, stopTimeoutMs: 200,
      start: async () => { ${body} } });`;
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    printed += chunk;
    for (const line of chunk.trim().split('\n')) act((name) => child.kill(name), line);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, printed };
}

const up = `console.log('up');`;

/** Sends the spans of a service's stop by an exporter whose `export` is this code. */
function stopWithSpans(t: TestContext, exporting: string) {
  return life(
    t,
    `const { trace } = await import(${JSON.stringify(import.meta.resolve('@opentelemetry/api'))});
     const { BatchSpanProcessor, TracerProvider } = await import(${JSON.stringify(import.meta.resolve('@opentelemetry/sdk-trace'))});
     const exporter = { export(spans, done) { ${exporting} }, shutdown: async () => {}, forceFlush: async () => {} };
     trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new BatchSpanProcessor({ exporter })] }));
     ${up} return { stop: async () => trace.getTracer('test').startSpan('last call').end() };`,
    (signal, line) => {
      if (line === 'up') signal('SIGTERM');
    },
  );
}

test('the spans of a stop are sent before the process ends; a collector that is away or silent does not make it a failure', async (t) => {
  const [sent, away, silent] = await Promise.all([
    stopWithSpans(t, `console.log('sent ' + spans[0].name); done({ code: 0 });`),
    stopWithSpans(t, `done({ code: 1, error: new Error('the collector is away') });`),
    stopWithSpans(t, ''),
  ]);
  assert.deepEqual([sent.code, away.code, silent.code], [0, 0, 0]);
  assert.match(sent.printed, /sent last call/);
  for (const { printed } of [away, silent]) assert.match(printed, /spans were not sent/);
});

test('a signal, that of a closed terminal too, stops once and gracefully; a second one ends at once [F83]', async (t) => {
  const stopOnUp = (signal: (name: NodeJS.Signals) => void, line: string): void => {
    if (line === 'up' || line === 'halfway') signal('SIGHUP');
  };
  const good = await life(t, `${up} return { stop: async () => console.log('closed') };`, stopOnUp);
  assert.equal(good.code, 0);
  assert.match(good.printed, /closed/);
  const forced = await life(
    t,
    `${up} return { stop: () => { console.log('halfway'); return new Promise(() => {}); } };`,
    stopOnUp,
  );
  assert.equal(forced.code, 1);
  assert.match(forced.printed, /second signal/);
});

test('a stop that hangs or fails, and a start that hangs, end with 1, a wrong configuration with 2, an uncaught error with 1 [F90]', async (t) => {
  const stopOnUp = (signal: (name: NodeJS.Signals) => void, line: string): void => {
    if (line === 'up') signal('SIGINT');
  };
  const ends = await Promise.all([
    life(t, `${up} return { stop: () => new Promise(() => {}) };`, stopOnUp),
    life(t, `${up} return { stop: () => Promise.reject(new Error('x')) };`, stopOnUp),
    // A start that waits forever, for a database say, is stopped in the same time.
    life(t, `${up} return new Promise(() => {});`, stopOnUp),
    life(t, `throw new ConfigurationError('set X');`),
    life(t, `throw new Error('x');`),
    life(
      t,
      `setTimeout(() => Promise.reject(new Error('x')), 1); return { stop: async () => {} };`,
    ),
  ]);
  assert.equal(ends.map(({ code }) => code).join(), '1,1,1,2,1,1');
});
