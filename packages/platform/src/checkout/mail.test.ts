/** Receipts through a real SMTP server: each payment's customer gets one mail, whatever the mail server does in between. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:net';
import test, { after } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { FlowSessionGrant } from '@duebridge/contract';
import { assertInTime, served, testInRealTime, until } from '@duebridge/runtime/testing';
import { SMTPServer } from 'smtp-server';
import {
  bearer,
  startTestPartner,
  startTestPlatform,
  tokenRequest,
  type TestPlatform,
} from './testing.ts';
import { textOf } from './mail.ts';
import { png } from '../../test/png.ts';

interface Taken {
  readonly to: string;
  readonly text: string;
}

/** A mail server that takes, or refuses as it is told. */
async function startMailServer() {
  const self = {
    url: '',
    taken: [] as Taken[],
    answer: undefined as number | undefined,
    /** Mails are answered once it resolves. */
    held: Promise.resolve(),
  };
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    onData(stream, session, done) {
      let text = '';
      stream.on('data', (chunk: Buffer) => (text += chunk.toString('utf8')));
      stream.on('end', () => {
        if (self.answer !== undefined) {
          done(Object.assign(new Error('not now'), { responseCode: self.answer }));
          return;
        }
        self.taken.push({ to: session.envelope.rcptTo.map((one) => one.address).join(), text });
        void self.held.finally(done);
      });
    },
  });
  self.url = (await served({ after }, server.server)).replace('http:', 'smtp:');
  return self;
}

const mails = await startMailServer();
const partner = await startTestPartner({ after });
const mail = { url: mails.url, from: 'Payments <pay@duebridge.example>' };
const secrets = {
  sealKey: randomBytes(32).toString('base64'),
  keyPepper: randomBytes(32).toString('base64'),
  adminKey: 'admin-key-of-two-replicas',
};
const platform: TestPlatform = await startTestPlatform({ after }, { mail, ...secrets });
await platform.register(partner, { partner_id: 'water', support_contact: 'help@water.example' });
const credentials = await platform.credentials('water');

async function pay(account_id: string, email: string, ending: object): Promise<string> {
  partner.endings.set(account_id, ending);
  return (await platform.pay(credentials, account_id, email, 2_500)).id;
}

const succeeded = { status: 'succeeded', posted_at: new Date().toISOString() };
const to = (address: string): Taken[] => mails.taken.filter((mail) => mail.to === address);

/** Whether each of these payments has a mail of which that is true. */
async function queued(ids: readonly string[], condition: string): Promise<boolean> {
  const query = `SELECT 1 FROM duebridge_platform.mails WHERE platform_payment_id = ANY($1) AND ${condition}`;
  return (await platform.database.query(query, [ids])).length === ids.length;
}

test('a customer whose payment was posted gets one receipt, with the partner and where to get help', async () => {
  const id = await pay('a1', 'paid@example.com', succeeded);
  await until('the receipt', () => to('paid@example.com').length > 0);
  const [mail] = to('paid@example.com');
  assert.match(mail?.text ?? '', /Subject: \[Test\] Receipt: \$25\.00 to Springfield Water/);
  assert.match(mail?.text ?? '', /This was a test: no money was taken\./);
  assert.match(mail?.text ?? '', /help@water\.example/);
  assert.match(mail?.text ?? '', new RegExp(id));
  assert.doesNotMatch(mail?.text ?? '', /Josephine|Quimby|Account: +a1/);
});

test('a refund is mailed to the customer, each one once', async () => {
  const id = await pay('a1', 'refunded@example.com', succeeded);
  await until('the receipt', () => to('refunded@example.com').length === 1);
  const refund = async (amount_in_cents: number): Promise<void> => {
    const body = { amount_in_cents, reason_code: 'goodwill', reason: 'ticket 7' };
    await until('the payment is settled, and refunded', async () => {
      const { status } = await platform.admin('POST', `/admin/v1/payments/${id}/refund`, body);
      return status === 200;
    });
  };
  await refund(1_000);
  await until('the first mail', () => to('refunded@example.com').length === 2);
  await refund(500);
  await until('the second mail', () => to('refunded@example.com').length === 3);
  const mail = to('refunded@example.com').map(({ text }) => ({
    subject: /Subject: (.*)/.exec(text)?.[1],
    refunded: /Refunded: +(.*)/.exec(text)?.[1]?.trim(),
    id: /Message-ID: (.*)/i.exec(text)?.[1],
  }));
  assert.deepEqual(
    mail.map((one) => one.refunded),
    [undefined, '$10.00', '$15.00'],
  );
  assert.match(mail[2]?.subject ?? '', /Refund: \$15\.00 of your payment to Springfield Water/);
  // A mailbox that knows the receipt must not take the others for it.
  assert.equal(new Set(mail.map((one) => one.id)).size, 3);
});

test('a customer of an aggregator reads the name of their biller and sees its logo, not those of the aggregator', async () => {
  await platform.register(partner, {
    partner_id: 'city-services',
    kind: 'aggregator',
    name: 'City Services',
    biller_names: { 'lakeside-energy': 'Lakeside Energy' },
    biller_logos: { 'lakeside-energy': png(48, 48).toString('base64') },
  });
  partner.accounts.set('a9', {
    ...partner.accounts.get('a1'),
    account_id: 'a9',
    biller_id: 'lakeside-energy',
  });
  partner.endings.set('a9', succeeded);
  const made = await platform.token(await platform.credentials('city-services'), {
    ...tokenRequest('a9'),
    email: 'lake@example.com',
    external_identifiers: { biller_id: 'lakeside-energy', account_id: 'a9' },
  });
  const grant = await platform.call('POST', '/v1/flow/session', {
    headers: bearer(String(made.body['token'])),
    body: {},
  });
  const { session, bill } = grant.body as unknown as FlowSessionGrant;
  const shown = await fetch(new URL(`/flow/logos/${bill?.biller.logo}`, platform.url));
  assert.deepEqual(Buffer.from(await shown.arrayBuffer()), png(48, 48));
  await platform.next(session);
  const paid = await platform.confirm(session, { amount_in_cents: 2_500 });
  assert.equal(paid.status, 200, paid.text);
  await until('the receipt', () => to('lake@example.com').length > 0);
  assert.match(to('lake@example.com')[0]?.text ?? '', /to Lakeside Energy/);
});

test('a customer whose payment failed is told why, and that nothing was charged', async () => {
  await pay('a2', 'failed@example.com', {
    status: 'failed',
    posted_at: null,
    failure_reason: 'The account is closed.',
  });
  await until('the mail', () => to('failed@example.com').length > 0);
  const text = to('failed@example.com')[0]?.text ?? '';
  assert.match(text, /was not made/);
  assert.match(text, /The account is closed\./);
  assert.match(text, /have not been charged/);
});

test('a busy mail server loses no mail, and an accepted mail is sent once', async () => {
  mails.answer = 451;
  const id = await pay('a3', 'later@example.com', succeeded);
  await until('a first try', () => queued([id], 'tries > 0'));
  mails.answer = undefined;
  await until('it is sent', async () => {
    // A try under way may have put the pause back after us.
    await platform.database.query(
      'UPDATE duebridge_platform.mails SET due_at = now() WHERE sent_at IS NULL',
    );
    return queued([id], 'sent_at IS NOT NULL');
  });
  // Another round of queueing reads the same end again, and sends nothing.
  await pay('a1', 'after@example.com', succeeded);
  await until('the next mail', () => to('after@example.com').length > 0);
  assert.equal(to('later@example.com').length, 1);
  assert.equal(to('paid@example.com').length, 1);
});

test('a permanent refusal ends the attempts, and neither queue nor log contains an address', async () => {
  mails.answer = 550;
  const id = await pay('a2', 'refused@example.com', succeeded);
  await until('it is given up', () => queued([id], 'given_up_at IS NOT NULL'));
  mails.answer = undefined;
  const rows = await platform.database.query(
    'SELECT to_jsonb(m)::text AS row FROM duebridge_platform.mails m',
  );
  assert.doesNotMatch(JSON.stringify(rows) + platform.logged.join(), /@example\.com/);
});

test('no text in a mail adds a header or turns the direction of what is read', () => {
  const { subject, text } = textOf(
    'failed',
    {
      platform_payment_id: 'id',
      account_id: 'account-1',
      amount_in_cents: 100,
      refunded_in_cents: 0,
      failure_reason: 'Refused \u202e)deen on( \u2066x\u2069\u200f',
      posted_at: null,
      created_at: '2026-03-21T10:00:00.000Z',
    },
    { name: 'Water\u202e\r\nBcc: everybody@example.com', support: null, mode: 'live' },
  );
  assert.doesNotMatch(subject, /[\r\n]/);
  assert.match(subject, /^Your payment/, 'a live payment is no test');
  assert.doesNotMatch(subject + text, /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/);
});

test('mail that was off for a week starts with the latest day, and says of what is late that it is not sent', async () => {
  const old = '01900000-0000-7000-8000-000000000001';
  await platform.database.query(
    `INSERT INTO duebridge_platform.mails (platform_payment_id, kind, due_at)
     SELECT '01900000-0000-7000-9000-' || lpad(n::text, 12, '0'), 'receipt', now() - interval '7 days' FROM generate_series(1, 6000) n`,
  );
  const ended = (id: string, ago: string) =>
    platform.database.query(
      `INSERT INTO duebridge_platform.audit (at, actor, event, platform_payment_id, detail)
       VALUES (clock_timestamp() - $2::interval, 'test', 'payment_ended', $1, '{"status": "succeeded"}')`,
      [id, ago],
    );
  const late = '01900000-0000-7000-8000-000000000002';
  await ended(old, '7 days');
  await ended(late, '3 hours');
  await platform.database.query(
    `UPDATE duebridge_platform.mail_progress SET read_to = now() - interval '8 days'`,
  );
  const id = await pay('a3', 'after-a-week@example.com', succeeded);
  await until('the newest receipt', () => to('after-a-week@example.com').length > 0);
  assert.match(to('after-a-week@example.com')[0]?.text ?? '', new RegExp(id));
  const tried = await platform.database.query<{ id: string }>(
    `SELECT platform_payment_id AS id FROM duebridge_platform.mails WHERE platform_payment_id < '01900001' AND tries > 0`,
  );
  assert.deepEqual(
    tried.map((row) => row.id),
    [late],
  );
  const [open] = await platform.database.query<{ open: number }>(
    `SELECT count(*)::int AS open FROM duebridge_platform.mails WHERE platform_payment_id < '01900001' AND sent_at IS NULL AND given_up_at IS NULL
        AND due_at < now() - interval '1 day'`,
  );
  assert.deepEqual(open, { open: 0 });
  const said = platform.logged.map((line) => JSON.parse(line) as { msg: string; mails?: number });
  const lines = said.filter(({ msg }) => msg === 'mails that are a day late are not sent');
  assert.equal(
    lines.reduce((sum, { mails = 0 }) => sum + mails, 0),
    6_000,
  );
  assert.ok(said.some(({ msg }) => msg.startsWith('mail was off for more than a day')));
});

test('a mail that takes long keeps no other with it, and none is sent twice', async () => {
  const slow = ['slow-1@example.com', 'slow-2@example.com', 'slow-3@example.com'];
  const ids = await Promise.all(slow.map((email) => pay('a1', email, succeeded)));
  await until('the receipts', () => queued(ids, 'sent_at IS NOT NULL'));
  const release = Promise.withResolvers<void>();
  mails.held = release.promise;
  const before = mails.taken.length;
  const again = (but = '') =>
    platform.database.query(
      `UPDATE duebridge_platform.mails SET sent_at = NULL, due_at = now() WHERE platform_payment_id = ANY($1) AND platform_payment_id <> $2`,
      [ids, but],
    );
  await again();
  await until('the first', () => mails.taken.length > before);
  // What was claimed with it would be free to others after a while.
  await again(/Reference: (\S+)/.exec(mails.taken[before]?.text ?? '')?.[1]);
  await startTestPlatform({ after }, { ...secrets, mail, databaseUrl: platform.database.url });
  await until('the second, by the other replica', () => mails.taken.length > before + 1);
  release.resolve();
  await until('all of them', () => queued(ids, 'sent_at IS NOT NULL'));
  await pay('a1', 'after-slow@example.com', succeeded);
  await until('the next mail', () => to('after-slow@example.com').length > 0);
  const counts = slow.map((address) => to(address).length);
  assert.deepEqual(counts, [2, 2, 2]);
});

testInRealTime(
  'a mail server that accepts a connection and says nothing holds up no stop, and the slots are given back [LV5]',
  async () => {
    const met = Promise.withResolvers<void>();
    const silent = createServer((socket) => {
      socket.on('error', () => undefined);
      met.resolve();
    });
    const url = (await served({ after }, silent)).replace('http:', 'smtp:');
    const held: TestPlatform = await startTestPlatform({ after }, { mail: { ...mail, url } });
    await held.register(partner, { partner_id: 'water' });
    partner.endings.set('a1', succeeded);
    await held.pay(await held.credentials('water'), 'a1', 'silent@example.com', 2_500);
    await met.promise;
    // Nodemailer waits thirty seconds for a greeting; a stop has ten.
    const stopped = await Promise.race([held.stop().then(() => true), delay(15_000, false)]);
    assertInTime(stopped, 'the stop waited for the mail server');
    const owned = await held.database.query(
      'SELECT slot FROM duebridge_platform.slots WHERE worker_id IS NOT NULL',
    );
    assert.deepEqual(owned, []);
  },
);
