/**
 * Failover by Patroni: two PostgreSQL servers of Debian's under Patroni in synchronous mode, with its own Raft as the store of the
 * cluster's state and a third member that only votes. The rig's proxies lead to the leader, as a load balancer would that asks each
 * Patroni whether its server leads. The machine of the leader dies under load; Patroni promotes the other.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chownSync,
  closeSync,
  existsSync,
  globSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { EmbeddedPostgres } from '@duebridge/runtime';
import { freePort } from '@duebridge/runtime/testing';
import { request } from 'undici';
import { pause, Rig, type Judged, type RigOptions } from './rig.ts';

/** Debian's packages patroni and python3-pysyncobj, which is its Raft. */
const PATRONI = '/usr/bin/patroni';
const WITNESS = '/usr/bin/patroni_raft_controller';
const RAFT = '/usr/lib/python3/dist-packages/pysyncobj';
/** The user that runs PostgreSQL, which refuses root. */
const NOBODY = 65_534;
/** Time limit for a cluster to start, and for a failover: Patroni waits for its `ttl` first. */
const CLUSTER_MS = 240_000;

const bin = globSync('/usr/lib/postgresql/*/bin/pg_basebackup')
  .at(-1)
  ?.replace(/\/[^/]*$/, '');

/** Why Patroni cannot be tried here; undefined where it can. */
export function patroniMissing(): string | undefined {
  if (![PATRONI, WITNESS, RAFT].every((path) => existsSync(path)) || bin === undefined)
    return 'failover by Patroni: patroni, python3-pysyncobj or postgresql is not installed';
  return undefined;
}

/** One round on a rig of its own: the leader's machine dies under load, and Patroni promotes the synchronous standby. */
export async function patroniRound(options: RigOptions): Promise<Judged> {
  const cluster = await Cluster.start(join(options.folder, 'patroni'));
  try {
    const before = await cluster.leader();
    await cluster.untilSynchronous();
    const rig = await Rig.open({ ...options, postgres: cluster.asPostgres(before) });
    try {
      rig.begin();
      const load = rig.load(14, 140);
      await pause(800 + rig.random() * 800);
      const proxies = [rig.platformProxy, rig.kitProxy];
      for (const proxy of proxies) proxy.faults.cut = true;
      await before.kill();
      for (const proxy of proxies) proxy.drop();
      const after = await cluster.leader();
      for (const proxy of proxies) proxy.upstream = { host: '127.0.0.1', port: after.port };
      await rig.connectTo(after.port);
      await rig.heal();
      return await rig.judge(load);
    } finally {
      await rig.close();
    }
  } finally {
    await cluster.stop();
  }
}

/** A server and its Patroni. */
class Member {
  readonly port: number;
  readonly #restPort: number;
  readonly #process: ChildProcess;

  constructor(member: { port: number; restPort: number; process: ChildProcess }) {
    this.port = member.port;
    this.#restPort = member.restPort;
    this.#process = member.process;
  }

  /** Whether Patroni says that this is so: `/primary`, `/synchronous`. */
  async is(what: 'primary' | 'synchronous'): Promise<boolean> {
    const answer = await request(`http://127.0.0.1:${this.#restPort}/${what}`, {
      signal: AbortSignal.timeout(5_000),
    }).catch(() => undefined);
    await answer?.body.dump();
    return answer?.statusCode === 200;
  }

  /** The machine dies: Patroni, PostgreSQL and all its processes at once. */
  async kill(): Promise<void> {
    await killTree(this.#process);
  }
}

class Cluster {
  readonly #members: readonly Member[];
  readonly #witness: ChildProcess;
  readonly #password: string;

  private constructor(members: readonly Member[], witness: ChildProcess, password: string) {
    this.#members = members;
    this.#witness = witness;
    this.#password = password;
  }

  /** Starts two members and the witness; they are not a cluster yet. Stop it, also after a failure. */
  static async start(folder: string): Promise<Cluster> {
    mkdirSync(folder, { recursive: true });
    const isRoot = process.getuid?.() === 0;
    const own = (path: string): void => {
      if (isRoot) chownSync(path, NOBODY, NOBODY);
    };
    own(folder);
    const password = randomBytes(12).toString('hex');
    const raft = await Promise.all(['one', 'two', 'witness'].map(() => freePort()));
    const addresses = raft.map((port) => `127.0.0.1:${port}`);
    const run = (program: string, name: string, settings: object): ChildProcess => {
      // Patroni reads YAML, of which JSON is a part.
      const file = join(folder, `${name}.json`);
      writeFileSync(file, JSON.stringify(settings), { mode: 0o600 });
      own(file);
      const log = openSync(join(folder, `${name}.log`), 'a');
      const child = spawn(program, [file], {
        cwd: folder,
        env: { PATH: '/usr/bin:/bin', HOME: folder },
        stdio: ['ignore', log, log],
        ...(isRoot ? { uid: NOBODY, gid: NOBODY } : {}),
      });
      closeSync(log);
      return child;
    };
    const raftOf = (name: string, index: number): object => {
      const data_dir = join(folder, `${name}-raft`);
      mkdirSync(data_dir);
      own(data_dir);
      const partner_addrs = addresses.filter((_, other) => other !== index);
      return { data_dir, self_addr: addresses[index], partner_addrs };
    };
    const members: Member[] = [];
    for (const [index, name] of ['one', 'two'].entries()) {
      const [port, restPort] = [await freePort(), await freePort()];
      const user = (username: string): object => ({ username, password });
      const process = run(PATRONI, name, {
        scope: 'rig',
        name,
        restapi: { listen: `127.0.0.1:${restPort}`, connect_address: `127.0.0.1:${restPort}` },
        raft: raftOf(name, index),
        bootstrap: {
          dcs: {
            ttl: 20,
            loop_wait: 2,
            retry_timeout: 5,
            synchronous_mode: true,
            postgresql: { parameters: { max_connections: 200, max_prepared_transactions: 0 } },
          },
          initdb: [{ encoding: 'UTF8' }, { locale: 'C' }, 'data-checksums'],
          pg_hba: [
            'host all all 127.0.0.1/32 scram-sha-256',
            'host replication all 127.0.0.1/32 scram-sha-256',
          ],
        },
        postgresql: {
          listen: `127.0.0.1:${port}`,
          connect_address: `127.0.0.1:${port}`,
          data_dir: join(folder, `${name}-data`),
          bin_dir: bin,
          pgpass: join(folder, `${name}.pgpass`),
          authentication: { superuser: user('postgres'), replication: user('replicator') },
          parameters: { unix_socket_directories: folder },
        },
      });
      members.push(new Member({ port, restPort, process }));
    }
    const witness = run(WITNESS, 'witness', { scope: 'rig', raft: raftOf('witness', 2) });
    return new Cluster(members, witness, password);
  }

  /** The member that leads, once one does. */
  async leader(): Promise<Member> {
    return this.#which('primary');
  }

  /** Resolves once the leader acknowledges nothing that the other does not have. */
  async untilSynchronous(): Promise<void> {
    await this.#which('synchronous');
  }

  /** The leader's server, as the rig knows one; the cluster is stopped separately. */
  asPostgres({ port }: Member): EmbeddedPostgres {
    return {
      url: `postgres://postgres:${this.#password}@127.0.0.1:${port}/postgres`,
      pid: 0,
      started: true,
      clusterDirectory: '',
      stop: () => Promise.resolve(),
    };
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#members.map((member) => member.kill()), killTree(this.#witness)]);
  }

  async #which(what: 'primary' | 'synchronous'): Promise<Member> {
    for (const until = performance.now() + CLUSTER_MS; ; await pause(100)) {
      for (const member of this.#members) if (await member.is(what)) return member;
      if (performance.now() > until) throw new Error(`Patroni: no member is ${what}`);
    }
  }
}

/** Kills a process and everything it started, also what has left its process group, as PostgreSQL does. */
async function killTree(root: ChildProcess): Promise<void> {
  if (root.pid === undefined || root.exitCode !== null || root.signalCode !== null) return;
  const exit = once(root, 'exit');
  for (const pid of descendants(root.pid)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
  await exit;
}

/** The process and its descendants, by the parents that /proc names. */
function descendants(root: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const [, parent] = /\) \S (\d+) /.exec(readFileSync(`/proc/${name}/stat`, 'utf8')) ?? [];
      children.set(Number(parent), [...(children.get(Number(parent)) ?? []), Number(name)]);
    } catch {
      // It has ended meanwhile.
    }
  }
  const found = [root];
  for (const pid of found) found.push(...(children.get(pid) ?? []));
  return found;
}
