/** An operator's working day at a terminal, using the commands alone. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import test, { after } from 'node:test';
import type { AuditPage, CaseView, DifferencePage, PaymentPage } from '@duebridge/contract';
import { until } from '@duebridge/runtime/testing';
import { bearer, startTestPartner, startTestPlatform } from '../checkout/testing.ts';
import { runCommand, type CommandWords } from './testing.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
await platform.register(partner, { partner_id: 'water' });
const credentials = await platform.credentials('water');

const run = (words: CommandWords, key?: string): Promise<string> =>
  runCommand(platform, words, key);

async function json<T>(words: CommandWords, key?: string): Promise<T> {
  const given = typeof words === 'string' ? words.split(' ') : words;
  return JSON.parse(await run([...given, '--json'], key)) as T;
}

async function pay(amount_in_cents: number, email: string): Promise<string> {
  partner.endings.set('a1', { status: 'succeeded', posted_at: new Date().toISOString() });
  const { id, session } = await platform.pay(credentials, 'a1', email, amount_in_cents);
  await platform.ended(session, id);
  return id;
}

test('"I paid yesterday, account a1, $25" is answered with one command, and its story with a second', async () => {
  const today = (): string => new Date().toISOString().slice(0, 10);
  // At midnight two days.
  const from = today();
  const id = await pay(2_500, 'asks@example.com');
  const wanted = `payment find --amount 25 --account a1 --from ${from} --to ${today()}`;
  assert.match(await run(wanted), new RegExp(id));
  assert.match(await run(['payment', 'find', '--email', 'ASKS@example.com']), new RegExp(id));
  const story = await run(['payment', 'show', id]);
  assert.match(story, /^put .* 200 +succeeded/m);
  assert.match(story, /payment_ended/);
  for (const words of ['payments --amount 25.5', 'payments --from yesterday']) {
    await assert.rejects(run(words), { exitCode: 3 });
  }
});

test('what waits is listed, paused, has a case and is resumed', async () => {
  const { id } = await platform.pay(credentials, 'a3', 'waits@example.com', 91_700);
  const listed = async (...words: string[]): Promise<string[]> => {
    const page = await json<PaymentPage>(['payments', ...words]);
    return page.payments.map((one) => one.platform_payment_id);
  };
  await until('its next poll is known', async () =>
    / poll at 20\d\d-/.test(await run(['payments', '--id', id])),
  );
  assert.deepEqual(await listed('--amount', '917', '--status', 'processing'), [id]);
  assert.equal((await listed('--sort', 'oldest', '--partner', 'water')).at(-1), id);
  assert.deepEqual(await listed('--status', 'needs_human', '--id', id), []);

  await run(['operator', 'add', '--id', 'nils', '--name', 'Nils', '--role', 'operator']);
  const { operator_key } = await json<{ operator_key: string }>(['operator', 'key', 'nils']);
  const said = ['--reason', 'they ask us to wait'];
  await run(['payment', 'pause', id, ...said], operator_key);
  assert.deepEqual(await listed('--status', 'paused'), [id]);
  assert.ok((await listed('--status', 'needs_human')).includes(id));
  await run(
    ['case', 'open', id, '--reason-code', 'still_due', '--reason', 'ticket 7 at the partner'],
    operator_key,
  );
  assert.deepEqual(await listed('--status', 'case'), [id]);
  const { cases } = await json<{ cases: CaseView[] }>(['case', '--payment', id]);
  const case_id = cases[0]?.case_id ?? '';
  const story = await run(['payment', 'show', id]);
  assert.match(story, /^paused +yes$/m);
  assert.match(story, /reason_code=still_due note=ticket 7 at the partner opened_by=nils/);
  await assert.rejects(run(['payment', 'pause', id, ...said]), /paused already/);
  const end = ['case', 'end', case_id, '--disposition', 'answered'];
  await run([...end, '--reason', 'answered'], operator_key);
  await assert.rejects(run([...end, ...said]), /ended as answered/);
  await run(['payment', 'resume', id, '--reason', 'they are done'], operator_key);
  for (const status of ['paused', 'case', 'needs_human']) {
    assert.ok(!(await listed('--status', status)).includes(id), status);
  }
  const { entries } = await json<AuditPage>(`audit --payment ${id}`);
  const acts = entries.filter(({ actor }) => actor === 'nils').map(({ event }) => event);
  assert.deepEqual(acts.slice(1), ['case_answered', 'case_complained', 'payment_paused']);
});

test('an export opens in a spreadsheet, masked unless an admin asks otherwise', async () => {
  const id = await pay(2_600, 'export@example.com');
  const csv = await run(['export', '--id', id]);
  const [head = '', line = ''] = csv.split('\r\n');
  assert.equal(head.replace(/^\uFEFF/, '').split(',')[0], 'platform_payment_id');
  assert.ok(line.startsWith(id));
  assert.ok(line.includes('••••1') && !line.includes(',a1,'));
  assert.match(await run(['export', '--unmasked', '--id', id]), /,account_id,[^]*,a1,/);
  await run(['operator', 'add', '--id', 'olga', '--name', 'Olga', '--role', 'operator']);
  const { operator_key } = await json<{ operator_key: string }>(['operator', 'key', 'olga']);
  await assert.rejects(run(['export', '--unmasked'], operator_key), /admin/);
  assert.match(await run(['export', '--id', id], operator_key), new RegExp(id));
});

test('a partner is tested, paused with a reason, resumed and changed, and the audit shows each act', async () => {
  assert.match(await run(['partner', 'test', 'water']), /accepts the credentials/);
  await run(['partner', 'pause', 'water', '--reason', 'they migrate']);
  assert.match(await run(['partner', 'show', 'water']), /paused by an operator: they migrate/);
  // A payment that waits for it says so.
  const held = await platform.pay(credentials, 'a1', 'held@example.com', 2_750);
  assert.match(
    await run(['payment', 'show', held.id]),
    /^partner_held +paused by an operator: they migrate$/m,
  );
  await run(['partner', 'resume', 'water', '--reason', 'they are done']);
  await run(['partner', 'change', 'water', '--name', 'Springfield Water Co']);
  const { entries } = await json<AuditPage>('audit --partner water --event partner_changed');
  assert.deepEqual(
    entries.map(({ detail }) => detail['reason'] ?? '-'),
    ['-', 'they are done', 'they migrate'],
  );
  const first = await json<{ next_cursor: string }>('audit --limit 1');
  const next = `audit --limit 1 --cursor ${first.next_cursor}`;
  const second = await json<{ entries: object[] }>(next);
  assert.equal(second.entries.length, 1);
});

test('a registration that cannot work says so at once', async () => {
  const base = 'partner add --name X --kind biller --biller-id x --auth key --header x-partner-key';
  const wrongKey = `${base} --id wrong-key --base-url ${partner.url} --key not-the-key`;
  assert.match(await run(wrongKey.split(' ')), /answers 401 to the credentials/);
  await assert.rejects(run(['partner', 'test', 'wrong-key']), { exitCode: 1 });
  const nowhere = `${base} --id nowhere --base-url http://127.0.0.1:9 --key some-key-of-ours`;
  assert.match(await run(nowhere.split(' ')), /refused or broken/);
  await assert.rejects(run(['partner', 'test', 'nowhere']), /nowhere does not answer/);
});

test('a command that names nothing says that the id or the listener may be wrong', async () => {
  await assert.rejects(
    run(['partner', 'show', 'nobody']),
    /check the id .* names the admin listener/,
  );
  await assert.rejects(run(['payment', 'show', 'no/id']), /: platform_payment_id must be/);
});

test('after a key leaks, the tokens and sessions made with it can be ended', async () => {
  const leaked = await platform.credentials('water');
  const { token } = await platform.session(leaked, 'a2', 'leak@example.com');
  const client = leaked['x-client-id'] ?? '';
  const again = { headers: bearer(token), body: {} };
  const words = ['key', 'revoke-access', client, '--partner', 'water', '--reason', 'leaked'];
  // Another session is being opened at that moment. Two that wait for a row that is changed would go on in any order.
  const waiting = (): Promise<object[]> =>
    platform.database.query(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
  const { opening, ending } = await platform.database.transaction(async (tx) => {
    await tx.query(
      `SELECT 1 FROM duebridge_platform.tokens WHERE token_hash = sha256($1) FOR UPDATE`,
      [token],
    );
    const opening = platform.call('POST', '/v1/flow/session', again);
    await until('it waits for its token', async () => (await waiting()).length === 1);
    const ending = run(words);
    await until('both wait', async () => (await waiting()).length === 2);
    return { opening, ending };
  });
  const late = await opening;
  assert.match(await ending, /^sessions +2$[^]*^tokens +1$|^tokens +1$[^]*^sessions +2$/m);
  const headers = bearer(String(late.body['session']));
  assert.equal((await platform.call('GET', '/v1/flow/session', { headers })).status, 401);
  assert.equal((await platform.call('POST', '/v1/flow/session', again)).status, 401);
});

test('a person is shown, and erased on request once their payments have ended, and can no longer be found; the payment stays', async () => {
  const reason = ['--reason', 'they asked'];
  const kept = async (): Promise<number> => {
    const words = ['person', 'erase', 'forget@example.com', ...reason];
    return (await json<{ kept_for_payments: number }>(words)).kept_for_payments;
  };
  partner.endings.delete('a1');
  const { id, session } = await platform.pay(credentials, 'a1', 'forget@example.com', 2_700);
  assert.equal(await kept(), 1);
  partner.endings.set('a1', { status: 'succeeded', posted_at: new Date().toISOString() });
  await platform.ended(session, id);
  const shown = await run(['person', 'show', 'Forget@example.com', ...reason]);
  assert.match(shown, /Josephine-canary/);
  assert.match(shown, new RegExp(id));
  // A person with more payments than a page of the search holds leaves no evidence of the oldest behind.
  await platform.database.query(
    `INSERT INTO duebridge_platform.flow_payments (platform_payment_id, flow_id, token_hash, customer_id)
     SELECT 'zz-' || n, flow_id, token_hash, customer_id
       FROM duebridge_platform.flow_payments, generate_series(1, 1000) AS n WHERE platform_payment_id = $1`,
    [id],
  );
  await platform.database.query(
    `INSERT INTO duebridge_platform.attempts (platform_payment_id, at, entries) VALUES ($1, now(), '[]')`,
    [id],
  );
  // The capture of a payment's funds may not have finished yet.
  await until('nothing is kept for a payment', async () => (await kept()) === 0);
  await assert.rejects(run(['person', 'show', 'forget@example.com', ...reason]), /NOT_FOUND/);
  assert.match(await run(['payment', 'show', id]), /succeeded/);
  const rows = await platform.database.query(
    `SELECT sealed, email_digest FROM duebridge_platform.customers c
       JOIN duebridge_platform.flow_payments USING (customer_id) WHERE platform_payment_id = $1`,
    [id],
  );
  assert.deepEqual(rows, [{ sealed: null, email_digest: null }]);
  const evidence = 'SELECT 1 FROM duebridge_platform.attempts WHERE platform_payment_id = $1';
  assert.deepEqual(await platform.database.query(evidence, [id]), []);
  const lines = await platform.database.query(
    `SELECT detail FROM duebridge_platform.audit WHERE event IN ('person_shown', 'person_erased')`,
  );
  assert.ok(lines.length >= 2 && !/forget@example/i.test(JSON.stringify(lines)));
});

test('each kind of difference that a file shows stays until it is resolved', async () => {
  // Made beside the other, so that both are of one batch at midnight too: the batch cannot be closed before it ends.
  await platform.pay(credentials, 'a3', 'open@example.com', 300);
  const id = await pay(2_800, 'recon@example.com');
  const { payments } = await json<PaymentPage>(`payments --id ${id}`);
  const batch = payments[0]?.platform_batch_id ?? '';
  const { payments: all } = await json<PaymentPage>(`payments --id ${batch} --limit 1000`);
  const ours = all.map((one) => {
    const amount = one.platform_payment_id === id ? 1 : one.amount_in_cents;
    return `${one.platform_payment_id},${one.status},${amount}`;
  });
  const foreign = Array.from({ length: 100 }, (_, n) => `foreign-${n},succeeded,100`);
  const file = path.join(platform.dataDirectory, 'export.csv');
  const head = 'platform_payment_id,status,amount_in_cents';
  await writeFile(file, [head, ...ours, ...foreign].join('\r\n'));
  await assert.rejects(run(['reconcile', batch, '--csv', file]), /101 differences/);
  await writeFile(file, ours.join('\n'));
  await assert.rejects(run(['reconcile', batch, '--csv', file]), {
    exitCode: 1,
    message: /1 difference/,
  });
  const { differences } = await json<DifferencePage>(`differences --batch ${batch}`);
  const [one, ...others] = differences;
  assert.ok(one);
  assert.deepEqual([one.kind, others], ['amount', []]);
  await run(['resolve', one.difference_id, '--reason', 'they corrected their record']);
  await assert.rejects(run(['resolve', one.difference_id, '--reason', 'again']), /CONFLICT/);
  const resolved = await run(['differences', '--state', 'resolved', '--kind', 'amount']);
  assert.match(resolved, /they corrected their record/);
  await assert.rejects(
    run(['batch', 'close', batch, '--reason', 'early']),
    /A payment of the batch has not ended/,
  );
});

test('the audit is compared with its seals by one command, which fails with one sentence', async () => {
  assert.match(
    await run(['audit', 'verify']),
    /^The audit is intact: \d+ lines? under \d+ seals?, \d+ not sealed yet/,
  );
  const wrong = `7:${'0'.repeat(64)}`;
  await assert.rejects(run(['audit', 'verify', '--expect', wrong]), {
    exitCode: 1,
    message: /^the audit is broken: seal 7 is not the expected one/,
  });
  await assert.rejects(run(['audit', 'verify', '--expect', 'seven']), { exitCode: 3 });
  // A seal forged by somebody who has the database but not the key.
  await platform.database.query(
    `INSERT INTO duebridge_platform.audit_seals (seal_no, from_at, to_at, sealed_at, lines, digests, previous, seal)
     VALUES (1000000, now(), now(), now(), 0, '', decode(repeat('00', 32), 'hex'), sha256('forged'))`,
  );
  await assert.rejects(run(['audit', 'verify', '--json']), {
    exitCode: 1,
    message: 'the audit is broken at seal 1000000: a seal before it was removed',
  });
});
