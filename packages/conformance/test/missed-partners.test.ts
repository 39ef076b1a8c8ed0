/**
 * Wrong partners of classes that the judge once missed, two for each class, and right ones that it once accused. None of the checks
 * was written against these: each differs from a right partner in one small thing.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test, { describe } from 'node:test';
import { pageReport } from '../src/report/page.ts';
import { jsonReport, terminalReport } from '../src/report/text.ts';
import type { RunReport } from '../src/run.ts';
import { onRecords, type Behaviour, type Call } from '../src/sandbox/partner.ts';
import { judgePartnerPeer, tell } from './judged.ts';

interface Peer {
  readonly name: string;
  readonly behaviour: () => Behaviour;
  readonly profile?: 'strict';
}

const judge = (peer: Peer): Promise<RunReport> => judgePartnerPeer(peer);

/** Runs judged side by side: all of their waits end together. */
const AT_ONCE = 40;

const isPut = (call: Call): boolean => call.operation === 'put_account_payment';
const idOf = (call: Call): string => call.params['platform_payment_id'] ?? '';
/** Accounts without a word about what is due. */
const silent: Behaviour = {
  answer(call, answer) {
    if (answer.status !== 200 || !['get_account', 'get_balance'].includes(call.operation)) {
      return undefined;
    }
    const {
      balance: _balance,
      amount_due_in_cents: _due,
      ...body
    } = answer.body as Record<string, unknown>;
    return { ...answer, body };
  },
};
const postsTwice: Behaviour = {
  ended: (payment, partner) => {
    if (payment.status === 'succeeded') partner.post(payment);
  },
};
const changeBalance = (change: (due: number, posted: number) => unknown): Behaviour => ({
  answer(call, answer, partner) {
    if (call.operation !== 'get_balance' || answer.status !== 200) return undefined;
    const body = answer.body as Record<string, unknown>;
    const due = change(Number(body['amount_due_in_cents']), partner.postings().length);
    return { ...answer, body: { ...body, amount_due_in_cents: due } };
  },
});
/** Stores payments under another key than the platform's id. */
const keyed = (key: (id: string, call: Call) => string): Behaviour => ({
  key: (call) => key(idOf(call), call),
});

/** The check that must fail (or warn, for W), and the peers. */
const MISSED: readonly (readonly [string, string, readonly Peer[]])[] = [
  [
    'a repeat of a known id is answered before the credential is looked at',
    'P01 P02',
    [
      {
        name: 'any known id',
        behaviour: () => ({
          authorize: (call, refusal, partner) =>
            isPut(call) && partner.find(idOf(call)) !== undefined ? undefined : refusal,
        }),
      },
      {
        name: 'a known id, with a wrong key only',
        behaviour: () => ({
          authorize: (call, refusal, partner) =>
            isPut(call) &&
            call.headers['x-api-key'] !== undefined &&
            partner.payments().some((one) => one.platform_payment_id === idOf(call))
              ? undefined
              : refusal,
        }),
      },
    ],
  ],
  [
    'the amount due is an integer only until something is paid',
    'P13',
    [
      {
        name: 'fractions',
        behaviour: () => changeBalance((due, posted) => (posted > 0 ? due + 0.5 : due)),
      },
      {
        name: 'text',
        behaviour: () => changeBalance((due, posted) => (posted > 0 ? String(due) : due)),
      },
    ],
  ],
  [
    'a repeat with the same fields in other bytes is another payment, or none',
    'P25',
    [
      {
        name: 'a conflict for another hash of the body',
        behaviour: () => {
          const bodies = new Map<string, string>();
          return {
            receive(call) {
              if (!isPut(call)) return undefined;
              const known = bodies.get(idOf(call)) ?? call.text;
              bodies.set(idOf(call), known);
              return known === call.text || !/^\{\s/.test(call.text)
                ? undefined
                : { status: 409, body: { code: 'CONFLICT', message: 'another body' } };
            },
          };
        },
      },
      {
        name: 'a payment for each hash of the body',
        behaviour: () =>
          keyed((id, call) =>
            call.text.includes('"platform_batch_id":')
              ? id
              : `${id} ${createHash('sha256').update(call.text).digest('hex')}`,
          ),
      },
    ],
  ],
  [
    'spellings of ids are folded',
    'P65',
    [
      {
        name: 'UUIDs in upper case',
        behaviour: () => keyed((id) => (/^[0-9a-f-]{36}$/i.test(id) ? id.toLowerCase() : id)),
      },
      { name: 'a numbered suffix', behaviour: () => keyed((id) => id.replace(/[-.]\d$/, '')) },
    ],
  ],
  [
    'payments of one kind never end, though a window is declared',
    'P50',
    [
      {
        name: 'those above 32 bits',
        behaviour: () => ({
          born(payment) {
            if (payment.amount_in_cents > 2 ** 32)
              payment.ending = { ...payment.ending, after_ms: undefined };
          },
        }),
      },
      {
        name: 'those of the second account',
        behaviour: () => ({
          born(payment) {
            if (payment.account_id === 'active-2')
              payment.ending = { ...payment.ending, after_ms: undefined };
          },
        }),
      },
    ],
  ],
  [
    'ids are forgotten while the run goes on',
    'P60',
    [
      {
        name: 'after sixty newer ones',
        behaviour: () => {
          const seen: string[] = [];
          return keyed((id) => {
            if (!seen.includes(id)) seen.push(id);
            return seen.length - seen.indexOf(id) > 60 ? `${id}#2` : id;
          });
        },
      },
      {
        name: 'after a second, counted from the last request',
        behaviour: () => {
          const last = new Map<string, number>();
          return {
            key(call, _instruction, partner) {
              const id = idOf(call);
              const idle = partner.now() - (last.get(id) ?? partner.now());
              last.set(id, partner.now());
              return idle > 1_000 ? `${id}#2` : id;
            },
          };
        },
      },
    ],
  ],
  [
    'the biller of the path is part of the key',
    'P30',
    [
      {
        name: 'its name',
        behaviour: () => keyed((id, call) => `${call.params['biller_id']} ${id}`),
      },
      {
        name: 'whether it is known',
        behaviour: () =>
          keyed((id, call) => (call.params['biller_id'] === 'sandbox-utility' ? id : `x${id}`)),
      },
    ],
  ],
  [
    'the biller of the path is not looked at',
    'P11 W',
    [
      { name: 'for every read', behaviour: () => ({ receive: anyBiller(() => true) }) },
      {
        name: 'for accounts',
        behaviour: () => ({ receive: anyBiller(({ operation }) => operation === 'get_account') }),
      },
    ],
  ],
];

function anyBiller(covers: (call: Call) => boolean): (call: Call) => undefined {
  return (call) => {
    if (call.method === 'GET' && covers(call))
      Object.assign(call.params, { biller_id: 'sandbox-utility' });
    return undefined;
  };
}

describe('a wrong partner of a class that was missed is caught', { concurrency: AT_ONCE }, () => {
  for (const [what, expected, peers] of MISSED) {
    for (const peer of peers) {
      test(`${what}: ${peer.name}`, async () => {
        const report = await judge(peer);
        const caught = expected.endsWith(' W') ? ['FAIL', 'WARN'] : ['FAIL'];
        const verdicts = report.results.filter(({ id }) => expected.includes(id));
        assert.ok(
          verdicts.some(({ verdict }) => caught.includes(verdict)),
          tell(report),
        );
        assert.deepEqual(report.judge_failed, []);
      });
    }
  }

  const unseen: readonly Peer[] = [
    { name: 'no amount due is shown', behaviour: () => ({ ...silent, ...postsTwice }) },
    {
      name: 'the amount due stays as it was this morning',
      behaviour: () => ({ ...changeBalance(() => 12_500), ...postsTwice }),
    },
  ];
  for (const peer of unseen) {
    test(`payments that post twice are not green in strict when ${peer.name}`, async () => {
      const strict = await judge({ ...peer, profile: 'strict' });
      assert.notEqual(strict.verdict, 'passed', tell(strict));
      const P26 = strict.results.find(({ id }) => id === 'P26');
      assert.match(P26?.wanting?.join() ?? '', /effect on the balance/);
      // The interface asks for no amount due, so in its own profile the run only says what it could not see.
      const contract = await judge(peer);
      assert.equal(contract.counts.FAIL, 0, tell(contract));
      assert.match(contract.results.find(({ id }) => id === 'P26')?.notes.join() ?? '', /balance/);
    });
  }
});

test('what a server answers reaches no terminal raw, and equal findings are counted, not listed', async () => {
  const report = await judge({
    name: 'colours',
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        initiated_at: '\u001b[31mnow\u009b0m\u202e',
        posted_at: 7,
      })),
  });
  // The judge's own escapes are left out with the colours.
  const shown = terminalReport(report, { colour: false }) + pageReport(report) + jsonReport(report);
  // oxlint-disable-next-line no-control-regex -- these are the characters that must not be there
  assert.doesNotMatch(shown, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/);
  const P60 = report.results.find(({ id }) => id === 'P60');
  assert.ok(P60 !== undefined && P60.findings.length > 0 && P60.findings.length <= 12);
});

const RIGHT: readonly Peer[] = [
  {
    name: 'that answers a read of an unknown payment with null',
    behaviour: () => ({
      answer: (call, answer) =>
        call.operation === 'get_account_payment' && answer.status === 404
          ? { status: 200, headers: { 'Content-Type': 'application/json' }, body: 'null' }
          : undefined,
    }),
  },
  {
    name: 'that answers it with an empty object',
    behaviour: () => ({
      answer: (call, answer) =>
        call.operation.includes('payment') && call.method === 'GET' && answer.status === 404
          ? { status: 200, body: {} }
          : undefined,
    }),
  },
  {
    name: 'that writes times in the basic format of ISO 8601',
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        initiated_at: basic(record['initiated_at']),
        posted_at: basic(record['posted_at']),
      })),
  },
  {
    name: 'that writes a comma before the fraction of a second',
    behaviour: () =>
      onRecords((record) => ({
        ...record,
        initiated_at: String(record['initiated_at']).replace('.', ','),
      })),
  },
];

function basic(time: unknown): unknown {
  return typeof time === 'string' ? time.replaceAll(/[-:]/g, '').replace(/\.\d+/, '') : time;
}

describe('a right partner that was accused is not', { concurrency: AT_ONCE }, () => {
  for (const peer of RIGHT) {
    test(peer.name, async () => {
      const report = await judge(peer);
      assert.equal(report.counts.FAIL, 0, tell(report));
    });
  }

  /** What stands in front of the partner fails for everybody, for a while. */
  const outage = (answer: Behaviour['receive']): Behaviour => {
    let calls = 0;
    return {
      receive(call, partner) {
        calls += 1;
        return calls > 60 && calls < 150 ? answer?.(call, partner) : undefined;
      },
    };
  };
  const outages: readonly Peer[] = [
    {
      name: 'the page of a gateway',
      behaviour: () =>
        outage(() => ({
          status: 502,
          headers: { 'Content-Type': 'text/html' },
          body: '<html><body>Bad gateway</body></html>',
        })),
    },
    {
      name: 'reset connections',
      behaviour: () => outage(() => (wire) => void wire.socket.destroy()),
    },
  ];
  for (const peer of outages) {
    test(`an outage in the middle of the run ends as "could not be judged": ${peer.name}`, async () => {
      const report = await judge(peer);
      assert.equal(report.counts.FAIL, 0, tell(report));
      assert.equal(report.exit_code, 2);
    });
  }
});
