/**
 * The image, built and run: as an unprivileged user, on a read-only root file system, without capabilities. Both
 * servers start from it on an empty PostgreSQL, a payment goes from one to the other, and both stop at SIGTERM.
 *
 * It needs podman or docker (CONTAINER_ENGINE; podman unless named). IMAGE names an image that is there already, and nothing is built.
 * Where no registry of images can be reached, test/image/debian-base.sh makes the base first.
 */
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { before } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import type { ClientKeyGrant } from '@duebridge/contract';
import { freePort, testDatabase, type TestDatabase } from '@duebridge/runtime/testing';
import { createToken, openSession } from '../support/customer.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const engine = process.env['CONTAINER_ENGINE'] || 'podman';
const isPodman = engine.endsWith('podman');
const built = process.env['IMAGE'];
const TAG = built ?? 'localhost/duebridge-rehearsal';

/** A build downloads and installs some hundred packages. */
const BUILD_MS = 900_000;
/** A server of the image is ready after two seconds on a quiet machine. */
const READY_MS = 90_000;

/** As compose.yaml and the manifests for Kubernetes start it. podman adds writable folders in memory unless it is told not to. */
const CONFINED = [
  '--read-only',
  ...(isPodman ? ['--read-only-tmpfs=false'] : []),
  '--cap-drop=ALL',
  '--security-opt=no-new-privileges',
  '--network=host',
];

const missing =
  spawnSync(engine, ['--version']).error !== undefined &&
  `"${engine}" cannot be run: install podman, or name another engine with CONTAINER_ENGINE, such as docker`;

before(() => {
  if (built !== undefined || missing !== false) return;
  // The OCI format has no health checks.
  const format = isPodman ? ['--format', 'docker'] : [];
  const words = ['build', ...format, '--tag', TAG, root];
  const { status } = spawnSync(engine, words, { stdio: 'inherit', timeout: BUILD_MS });
  assert.equal(
    status,
    0,
    `${engine} could not build the image; IMAGE names one that exists already`,
  );
});

/** Runs the engine to its end with an input; returns what it printed. */
async function say(words: readonly string[], input = ''): Promise<string> {
  const child = run(engine, [...words], { timeout: READY_MS });
  child.child.stdin?.end(input);
  return (await child).stdout;
}

/** A container that runs one command of the image to its end. */
function once(
  args: readonly string[],
  options: { env?: Readonly<Record<string, string>>; program?: string } = {},
): Promise<string> {
  const entry = options.program === undefined ? [] : [`--entrypoint=${options.program}`];
  const env = Object.entries(options.env ?? {}).map(([name, value]) => `--env=${name}=${value}`);
  return say(['run', '--rm', ...CONFINED, ...entry, ...env, TAG, ...args]);
}

/** A server of the image that has been started and is ready. */
interface Running {
  readonly url: string;
  readonly name: string;
  /** A command of an operator, given inside the container, where the settings of the server hold. */
  operate(command: string, input?: string): Promise<string>;
  /** Stops it as an engine does, by SIGTERM, and returns its exit code. */
  stop(): Promise<number>;
}

async function serve(
  side: 'platform' | 'partner',
  database: TestDatabase,
  env: Readonly<Record<string, string>>,
  secrets: Readonly<Record<string, string>>,
): Promise<Running> {
  // Secrets are files that the user of the image may read, as compose.yaml mounts them.
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-image-'));
  chmodSync(folder, 0o755);
  for (const [name, value] of Object.entries(secrets)) {
    writeFileSync(join(folder, name), value, { mode: 0o444 });
  }
  const port = await freePort();
  const adminPort = await freePort();
  const settings = {
    ...env,
    HOST: '127.0.0.1',
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    LOG_LEVEL: 'warn',
    ...Object.fromEntries(
      Object.keys(secrets).map((name) => [`${name}_FILE`, `/run/secrets/${name}`]),
    ),
  };
  const name = `duebridge-rehearsal-${side}-${randomBytes(4).toString('hex')}`;
  const words = [
    'run',
    '--detach',
    `--name=${name}`,
    ...CONFINED,
    `--volume=${folder}:/run/secrets:ro`,
    ...Object.entries(settings).map(([variable, value]) => `--env=${variable}=${value}`),
    TAG,
    side,
    'serve',
    '--no-migrate',
  ];
  await run(engine, words);
  database.closing(async () => {
    await run(engine, ['kill', name]).catch(() => undefined);
    await run(engine, ['rm', '--force', name]);
    rmSync(folder, { recursive: true });
  });
  const url = `http://127.0.0.1:${port}`;
  for (const until = performance.now() + READY_MS; ; await delay(100)) {
    const isReady = await fetch(`${url}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isReady) break;
    const { stdout, stderr } = await run(engine, ['logs', name]);
    assert.ok(performance.now() < until, `${name} is not ready:\n${stdout}\n${stderr}`);
  }
  return {
    url,
    name,
    operate: (words, input) =>
      say(['exec', '--interactive', name, 'duebridge', ...words.split(' ')], input),
    async stop() {
      await run(engine, ['stop', '--time=15', name]);
      const { stdout } = await run(engine, ['inspect', '--format={{.State.ExitCode}}', name]);
      return Number(stdout);
    },
  };
}

test(
  'the image runs as nobody in particular and can write nothing',
  { skip: missing },
  async () => {
    const report = await once(
      [
        '-c',
        'id -u; id -g; for file in /app/x /tmp/x /home/node/x /x; do touch $file 2>&1 && echo wrote; done; cat /proc/self/status',
      ],
      { program: 'sh' },
    );
    assert.match(report, /^1000\n1000\n/);
    assert.doesNotMatch(report, /wrote/);
    assert.match(report, /^CapEff:\s+0+$/m);
    assert.match(report, /^CapBnd:\s+0+$/m);
    assert.match(report, /^NoNewPrivs:\s+1$/m);
    assert.match(await once(['--help']), /Usage: duebridge/);
  },
);

test(
  'both servers of the image carry a payment, answer their health check, and end with 0 at SIGTERM',
  { skip: missing },
  async (t) => {
    const nothing = mkdtempSync(join(tmpdir(), 'duebridge-image-'));
    t.after(() => rmSync(nothing, { recursive: true }));
    const empty = { migrations: { schema: 'nothing', directory: pathToFileURL(`${nothing}/`) } };
    const books = { platform: await testDatabase(t, empty), partner: await testDatabase(t, empty) };
    const key = randomBytes(18).toString('base64url');
    const adminKey = randomBytes(18).toString('base64url');
    const platformSecrets = {
      DATABASE_URL: books.platform.url,
      DUEBRIDGE_SEAL_KEY: randomBytes(32).toString('base64'),
      DUEBRIDGE_KEY_PEPPER: randomBytes(32).toString('base64'),
      DUEBRIDGE_ADMIN_KEY: adminKey,
    };
    await once(['platform', 'migrate'], { env: { DATABASE_URL: books.platform.url } });
    await once(['partner', 'migrate'], { env: { DATABASE_URL: books.partner.url } });
    const partner = await serve(
      'partner',
      books.partner,
      {},
      {
        DATABASE_URL: books.partner.url,
        DUEBRIDGE_PARTNER_KEY: key,
        DUEBRIDGE_ADMIN_KEY: adminKey,
      },
    );
    const platform = await serve(
      'platform',
      books.platform,
      { DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES: '1' },
      platformSecrets,
    );

    const accounts = 'biller_id,account_id,amount_due\nacme,A-1,120.50\n';
    await partner.operate('partner accounts import -', accounts);
    await platform.operate(
      'platform partner add --id acme --name Acme --kind biller --biller acme ' +
        `--base-url ${partner.url} --auth key --header x-api-key --key ${key}`,
    );
    const issued = await platform.operate('platform key issue --partner acme --json');
    const { client_id, api_key } = JSON.parse(issued) as ClientKeyGrant;
    const token = await createToken(
      { platformUrl: platform.url, client_id, api_key },
      { account_id: 'A-1' },
    );
    const browser = await openSession(platform.url, token.body.token);
    const { platform_payment_id } = (await browser.confirm(5_000)).body;
    assert.equal((await browser.ended(platform_payment_id, READY_MS)).status, 'succeeded');

    for (const { name } of [platform, partner]) {
      if (isPodman) await run(engine, ['healthcheck', 'run', name]);
      else {
        const format = '--format={{.State.Health.Status}}';
        for (const until = performance.now() + READY_MS; ; await delay(500)) {
          const { stdout } = await run(engine, ['inspect', format, name]);
          if (stdout.trim() === 'healthy') break;
          assert.ok(performance.now() < until, `${name} is ${stdout}`);
        }
      }
    }
    assert.equal(await platform.stop(), 0);
    assert.equal(await partner.stop(), 0);
  },
);
