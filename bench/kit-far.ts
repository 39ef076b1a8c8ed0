/**
 * A partner kit whose database is far away: how long payments wait between acceptance and end when 50 arrive a second and each round
 * trip to the database takes 0, 100 or 300 ms. A TCP proxy on loopback holds everything back for half of that, in both directions.
 *
 *     node bench/kit-far.ts [--rate 50] [--seconds 20]
 */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { openDatabase, type Database } from '@duebridge/runtime';
import { withKit } from './kit-stream.ts';
import { benchOptions } from './options.ts';
import { quantile, report } from './report.ts';

const flags = benchOptions(import.meta.main, { rate: '50', seconds: '20' });

/** The database behind a proxy that makes each round trip last `ms` longer. */
async function behind(
  url: string,
  ms: number,
): Promise<{ database: Database; close(): Promise<void> }> {
  const to = new URL(url);
  const target = { port: Number(to.port), host: to.hostname, noDelay: true };
  const sockets = new Set<Socket>();
  const pass = (from: Socket, into: Socket): void => {
    sockets.add(from);
    // Timers of one length fire in their order.
    from.on('data', (bytes) => setTimeout(() => into.writable && into.write(bytes), ms / 2));
    from.on('close', () => setTimeout(() => into.destroy(), ms / 2));
    from.on('error', () => into.destroy());
  };
  const proxy = createServer({ noDelay: true }, (client) => {
    const server = connect(target);
    pass(client, server);
    pass(server, client);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  to.hostname = '127.0.0.1';
  to.port = String((proxy.address() as AddressInfo).port);
  const database = openDatabase({ url: to.href, applicationName: 'far', maxConnections: 10 });
  return {
    database,
    async close() {
      await database.close();
      for (const socket of sockets) socket.destroy();
      proxy.close();
    },
  };
}

for (const ms of [0, 100, 300]) {
  const waits = await withKit({ through: (url) => behind(url, ms) }, async (kit) => {
    await kit.stream(Number(flags.rate), Number(flags.seconds));
    return kit.waits();
  });
  const show = (part: number): string => `${(quantile(waits, part) / 1_000).toFixed(2)} s`;
  console.log(`${ms} ms away: p50 ${show(0.5)}, p99 ${show(0.99)}, slowest ${show(1)}`);
  report({
    figure: 'F12',
    what: `kit: slowest of ${waits.length} payments, ${flags.rate} a second, database ${ms} ms away`,
    value: quantile(waits, 1) / 1_000,
    unit: 's',
    target: 'at most 10 s',
  });
}
process.exit(0);
