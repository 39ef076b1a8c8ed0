/** A failover of both databases to a synchronous standby. It is the last round of its rig, because the old primary is not used again. */
import { startStandby } from '../support/standby.ts';
import { pause, type Judged, type Rig } from './rig.ts';

export const FAILOVER = {
  name: 'failover to a synchronous standby under load',
  kind: 'failover',
  async run(rig: Rig): Promise<Judged> {
    const standby = await startStandby(rig.postgres.url, true);
    try {
      rig.begin();
      const load = rig.load(14, 140);
      await pause(800 + rig.random() * 800);
      for (const proxy of [rig.platformProxy, rig.kitProxy]) proxy.faults.cut = true;
      await standby.takeOver();
      for (const proxy of [rig.platformProxy, rig.kitProxy]) {
        proxy.drop();
        proxy.upstream = { host: '127.0.0.1', port: standby.port };
      }
      await rig.connectTo(standby.port);
      await rig.heal();
      return await rig.judge(load);
    } finally {
      await standby.stop();
    }
  },
} as const;
