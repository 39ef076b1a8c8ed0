import type { PartnerCase } from '../../check/check.ts';
import { asObject, show, type Reply } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';

/** Consecutive reads of the account and of the balance. */
const READS = 20;

/** How many times the values must change while reading, and not change at rest, before the check reports it. */
const ROUNDS = 3;

export const p14: PartnerCase = {
  id: 'P14',
  title: 'Reading changes nothing',
  clauses: ['B1', 'B2'],
  severity: 'must',
  profile: 'contract',
  stage: 'first',
  sends: `GET account and GET balance, ${READS} times; if the values differ, again, compared with a pause of the same length`,
  expects:
    'the same status and the same amount due each time, or values that change as much during a pause as during the reads',
  likely_cause:
    'A read posts, accrues or rounds an amount, or two replicas hold different balances.',
  async run(t) {
    const first = await look(t);
    if (new Set(first.map(({ shown }) => shown)).size === 1) return;
    // The values changed. Others may use the test system, or it may be refreshed; the check must rule out every cause but the
    // reads.
    let caused = 0;
    let last = first.at(-1);
    for (let round = 0; round < ROUNDS; round += 1) {
      const started = t.run.now();
      const reads = await look(t);
      const took = t.run.now() - started;
      const [before] = await look(t, 1);
      await t.run.sleep(took);
      const [after] = await look(t, 1);
      const moved = spread(reads);
      const rested = spread([before, after].filter((one) => one !== undefined));
      if (moved > rested * 2 || (moved === 0 && flips(reads) && !flips([before, after])))
        caused += 1;
      last = reads.at(-1);
    }
    if (caused < ROUNDS) {
      t.run.unsettled = true;
      t.notes.push('Not measured: the account also changes while nothing reads it.');
      return;
    }
    t.must(false, {
      expected: `unchanged: ${first[0]?.shown ?? ''}`,
      got: last?.shown ?? '',
      ...(last === undefined ? {} : { at: last.reply }),
    });
  },
};

interface Look {
  readonly shown: string;
  readonly due: number;
  readonly reply: Reply;
}

function look(t: PartnerContext, times = READS): Promise<Look[]> {
  return Promise.all(
    Array.from({ length: times }, async () => {
      const [account, balance] = await Promise.all([
        t.readAccount(),
        t.target.paths.get_balance === null ? undefined : t.readBalance(),
      ]);
      const status = asObject(account.json)?.['status'];
      const within = asObject(asObject(account.json)?.['balance'])?.['amount_due_in_cents'];
      const alone = asObject(balance?.json)?.['amount_due_in_cents'];
      return {
        shown: `status ${show(status)}, amount due ${show(within ?? alone)} / ${show(alone)}`,
        due: typeof alone === 'number' ? alone : typeof within === 'number' ? within : 0,
        reply: balance ?? account,
      };
    }),
  );
}

function spread(looks: readonly Look[]): number {
  const dues = looks.map(({ due }) => due);
  return Math.max(...dues) - Math.min(...dues);
}

function flips(looks: readonly (Look | undefined)[]): boolean {
  return new Set(looks.map((one) => one?.shown)).size > 1;
}
