/**
 * What the judge once did wrong beyond a check: a double effect that it could not see passed, an outage in mid-run was read as breaches, and
 * control bytes of an answer reached the terminal. The wrong and right peers of that day are in the tables (peers/).
 */
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { pageReport } from '../src/report/page.ts';
import { jsonReport, terminalReport } from '../src/report/text.ts';
import type { RunReport } from '../src/run.ts';
import { onRecords, type Behaviour } from '../src/scripted/partner.ts';
import { judgePartnerPeer as judge, judgeTokenPeer, tell } from './judged.ts';
import { atEnd, changeBody, WRONG_PARTNERS } from './peers/partners.ts';

const postsTwice = atEnd('succeeded', (payment, partner) => partner.post(payment));

describe('what the judge cannot see is not green', { concurrency: 8 }, () => {
  const unseen: readonly (readonly [string, Behaviour])[] = [
    [
      'no amount due is shown',
      {
        answer(call, answer) {
          if (answer.status !== 200 || !/^get_(account|balance)$/.test(call.operation)) return;
          const { body } = answer;
          return {
            ...answer,
            body: { ...(body as object), balance: {}, amount_due_in_cents: null },
          };
        },
      },
    ],
    [
      'the amount due stays as it was this morning',
      changeBody('get_balance', (body) => ({ ...body, amount_due_in_cents: 12_500 })),
    ],
  ];
  for (const [what, behaviour] of unseen) {
    test(`payments that post twice are not green in strict when ${what}`, async () => {
      const peer = { behaviour: () => ({ ...behaviour, ...postsTwice }) };
      const strict = await judge({ ...peer, profile: 'strict' });
      assert.notEqual(strict.verdict, 'passed', tell(strict));
      const P62 = strict.results.find(({ id }) => id === 'P62');
      assert.match(P62?.wanting?.join() ?? '', /not measured: the/);
      // The interface asks for no amount due, so in its own profile the run only says what it could not see.
      const contract = await judge(peer);
      assert.equal(contract.counts.FAIL, 0, tell(contract));
      const unmeasured = contract.results.find(({ id }) => id === 'P62');
      assert.match(unmeasured?.skipped ?? '', /not measured: the/);
    });
  }

  test('a payment that stays open does not hide that one to an inactive account was posted', async () => {
    const behaviour = (): Behaviour => ({
      born(payment, _call, partner) {
        const account = partner.account(payment.biller_id, payment.account_id);
        if (account === undefined) payment.ending = { ...payment.ending, after_ms: undefined };
        else if (account.status === 'inactive')
          payment.ending = { status: 'succeeded', after_ms: 0 };
      },
    });
    const report = await judge({ behaviour, target: { terminal_window_seconds: 86_400 } }, ['P41']);
    assert.equal(report.results.find(({ id }) => id === 'P41')?.verdict, 'FAIL', tell(report));
  });

  test('a breach that the checks show together is not run again by a part of them', async () => {
    const twice = { behaviour: () => postsTwice };
    const failed = terminalReport(await judge(twice, ['P20', 'P62']), { colour: false });
    assert.match(failed, /To run these again: all checks, as P62 judges the whole run\n/);
  });

  const outages: readonly (readonly [string, Behaviour['receive']])[] = [
    [
      'the page of a gateway',
      () => ({ status: 502, headers: { 'Content-Type': 'text/html' }, body: '<p>Bad gateway' }),
    ],
    ['reset connections', () => (wire) => void wire.socket.destroy()],
  ];
  for (const [what, answer] of outages) {
    test(`an outage in the middle of the run ends as "could not be judged": ${what}`, async () => {
      let calls = 0;
      const report = await judge({
        behaviour: () => ({
          receive(call, partner) {
            calls += 1;
            // After the burst of P27, which alone sends more than a hundred.
            return calls > 300 && calls < 390 ? answer?.(call, partner) : undefined;
          },
        }),
      });
      assert.equal(report.counts.FAIL, 0, tell(report));
      assert.equal(report.exit_code, 2);
    });
  }
});

test('what a server answers reaches no terminal raw, and equal findings are counted, not listed', async () => {
  const bad = { initiated_at: '\u001b[31mnow\u009b0m\u202e', posted_at: 7 };
  const report = await judge({
    behaviour: () =>
      onRecords(({ amount_in_cents, ...record }) => ({
        ...record,
        ...bad,
        amount_in_cents: Number(amount_in_cents) + 1,
      })),
  });
  // The judge's own escapes are left out with the colours.
  const shown = terminalReport(report, { colour: false }) + pageReport(report) + jsonReport(report);
  assert.doesNotMatch(shown, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/);
  const P60 = report.results.find(({ id }) => id === 'P60');
  assert.ok(P60 !== undefined && P60.findings.length > 0 && P60.findings.length <= 12);
  assert.ok(P60.findings.some(({ got }) => /\(and \d+ more like this\)$/.test(got)));
});

test('a finding names the cause that its answer shows, and the times of the reads that differ', async () => {
  const foundBy = async (check: string, wrong: RegExp) => {
    const peer = WRONG_PARTNERS.find((one) => one.breaks === check && wrong.test(one.wrong));
    const report = await judge(peer ?? {}, [check]);
    return report.results[0]?.findings[0];
  };
  const broken = await foundBy('P12', /long account id with 500/);
  assert.match(broken?.likely_cause ?? '', /fails inside the server/);
  const changed = await foundBy('P54', /changes posted_at/);
  assert.match(changed?.got ?? '', /posted_at was .*, is .* \(ended at \S+Z, read at \S+Z\)/);
});

describe('what the target file did not declare is said, and in strict not green', () => {
  const lacking: readonly (readonly [check: string, what: RegExp, judged: Judged])[] = [
    [
      'P12',
      /no account id with a character that a path must encode/,
      (more) => judge(more, ['P12']),
    ],
    ['T06', /no other_client/, (more) => judgeTokenPeer(more, ['T06'])],
  ];
  for (const [check, what, judged] of lacking) {
    test(`${check} lacks something`, async () => {
      const [contract, strict] = [await judged({}), await judged({ profile: 'strict' })];
      assert.match(contract.results[0]?.notes.join() ?? '', what);
      assert.match(strict.results[0]?.wanting?.join() ?? '', what);
      assert.equal(contract.verdict, 'passed', tell(contract));
      assert.equal(strict.verdict, 'partial', tell(strict));
    });
  }
});

type Judged = (more: { readonly profile?: 'strict' }) => Promise<RunReport>;
