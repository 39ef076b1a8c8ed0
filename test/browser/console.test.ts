/** The operator console in a real Chromium, over a real platform: what an operator is asked on a working day. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { PaymentPage } from '@duebridge/contract';
import { PATIENCE_MS } from '@duebridge/runtime/testing';
import type { Page } from 'playwright-core';
import { buildWeb } from '../../packages/web/build.ts';
import { axeIn } from './axe.ts';
import { launchChromium } from './chromium.ts';
import { CONFORMANCE_REPORT, startWorkingDay, type WorkingDay } from './console-rig.ts';

const folder = mkdtempSync(join(tmpdir(), 'duebridge-console-'));
await buildWeb(join(folder, 'dist'));
const work = await startWorkingDay({ after }, pathToFileURL(join(folder, 'dist/')));
const browser = await launchChromium();
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Opens the console as an operator. Fails the test on any error in the page or violation of its policy. */
async function signIn(
  who: keyof WorkingDay['keys'],
): Promise<{ page: Page; close: () => Promise<void> }> {
  // Without a locale of its own this Chromium calls its language "en-US@posix", which is none.
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    locale: 'en-US',
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const wrong: string[] = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  page.on('console', (message) => {
    // What a refusal leaves there is the browser's own note of the status.
    if (message.type() === 'error' && !/status of (401|403|404|409|503)/.test(message.text()))
      wrong.push(message.text());
  });
  const opened = await page.goto(`${work.platform.adminUrl}/console`);
  // A page that opened the console, or that it opens, has no hold on its window.
  assert.equal(opened?.headers()['cross-origin-opener-policy'], 'same-origin');
  await page.getByLabel('Operator key').fill(work.keys[who]);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  const first = who === 'wen' ? 'Springfield Water' : 'Overview';
  await page.getByRole('heading', { level: 1, name: first }).waitFor();
  return {
    page,
    async close() {
      await context.close();
      assert.deepEqual(wrong, []);
    },
  };
}

/** Types into the search field and takes what it suggests. */
async function search(page: Page, text: string, suggestion: string): Promise<void> {
  await page.getByRole('searchbox', { name: 'Search' }).fill(text);
  const suggestions = page.getByRole('list', { name: 'Suggestions' });
  await suggestions.getByRole('button', { name: suggestion, exact: true }).click();
}

async function act(page: Page, label: string, reason: string): Promise<void> {
  await page.getByRole('button', { name: label, exact: true }).first().click();
  const dialog = page.getByRole('dialog', { name: label });
  await dialog.getByRole('textbox').fill(reason);
  await dialog.getByRole('button', { name: label, exact: true }).click();
}

async function auditOf(
  event: string,
): Promise<{ actor: string; detail: Record<string, unknown> }[]> {
  const answer = await work.platform.admin('GET', `/admin/v1/audit?event=${event}`);
  return (answer.body as { entries: Awaited<ReturnType<typeof auditOf>> }).entries;
}

test('"I paid $25 yesterday": found by amount, its story read to the partner’s own answer', async () => {
  const id = await work.pay('pays-1', 2_500, 'story@example.com');
  const { page, close } = await signIn('vic');
  // Whoever may not search for a person is not offered it.
  await page.getByRole('searchbox', { name: 'Search' }).fill('someone@example.com');
  const suggestions = page.getByRole('list', { name: 'Suggestions' }).getByRole('button');
  assert.deepEqual(await suggestions.allTextContents(), ['Any id: someone@example.com']);
  await search(page, '$25', 'Amount: $25.00');
  await page.waitForURL(/amount=25/);
  await page.getByRole('link', { name: id }).click();
  await page.getByRole('heading', { level: 1, name: /\$25\.00\s+succeeded/ }).waitFor();
  await page.getByText('payment ended').waitFor();
  await page
    .getByText(/succeeded · HTTP 200/)
    .first()
    .waitFor();
  // The address is the state: a colleague who follows the link sees the same, and Back goes back.
  assert.ok(page.url().endsWith(`/console/payments/${id}`));
  await page.goBack();
  await page.getByRole('link', { name: id }).waitFor();
  await page.getByRole('button', { name: 'amount: 25' }).waitFor();
  await close();
});

test('a partner is paused and resumed with a reason, and tested', async () => {
  const { page, close } = await signIn('ada');
  await page.getByRole('link', { name: 'Partners', exact: true }).click();
  await page.getByRole('link', { name: 'springfield-water' }).click();
  await act(page, 'Pause', 'they migrate tonight');
  await page.getByText('paused by an operator: they migrate tonight').waitFor();
  await act(page, 'Resume', 'done');
  await page.getByText('active', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Test the connection' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Test the connection' }).click();
  await page.getByText(/accepts the credentials/).waitFor();
  await page.getByRole('columnheader', { name: 'p95' }).waitFor();
  await close();
  const changes = await auditOf('partner_changed');
  assert.deepEqual(
    changes.slice(0, 2).map(({ actor, detail }) => [actor, detail['reason']]),
    [
      ['ada', 'done'],
      ['ada', 'they migrate tonight'],
    ],
  );
});

test('a batch is compared with a file that differs in each way, and a difference is resolved', async () => {
  const ids: string[] = [];
  for (const amount of [4_100, 4_200, 4_300]) {
    ids.push(await work.pay('pays-2', amount, `batch-${amount}@example.com`));
  }
  const [first = '', second = ''] = ids;
  const list = await work.platform.admin('GET', `/admin/v1/payments/${first}`);
  const batch = (list.body as { payment: { platform_batch_id: string } }).payment.platform_batch_id;
  const all = await work.platform.admin('GET', `/admin/v1/payments?limit=1000&id=${batch}`);
  const lines = (all.body as unknown as PaymentPage).payments
    .filter(({ status }) => status === 'succeeded' || status === 'processing')
    .filter(({ platform_payment_id: id }) => id !== ids[2])
    .map(({ platform_payment_id: id, status, amount_in_cents }) => {
      const amount = id === first ? 1 : amount_in_cents;
      return `${id},${id === second ? 'failed' : status},${amount}`;
    });
  const { page, close } = await signIn('bob');
  // What was never compared is not said to agree, on any page.
  const isSilent = async (): Promise<void> =>
    assert.equal(await page.getByText(/no differences/i).count(), 0);
  await page.getByRole('link', { name: 'Batches' }).click();
  const listed = page.getByRole('row').filter({ hasText: batch });
  await listed.getByText('not compared yet').waitFor();
  await isSilent();
  await listed.getByRole('link').click();
  await page.getByText('Not compared yet.').waitFor();
  await isSilent();
  await page.getByLabel('Compare with a file').setInputFiles({
    name: 'export.csv',
    mimeType: 'text/csv',
    buffer: Buffer.from([...lines, 'only-there,succeeded,100'].join('\n')),
  });
  await page
    .getByText(/4 differences/)
    .first()
    .waitFor();
  for (const kind of ['amount', 'status', 'missing there', 'missing here']) {
    await page.getByRole('cell', { name: kind, exact: true }).waitFor();
  }
  // Both sides in dollars.
  const differs = page.getByRole('row').filter({ hasText: first });
  await differs.getByRole('cell', { name: '$41.00', exact: true }).waitFor();
  await differs.getByRole('cell', { name: '$0.01', exact: true }).waitFor();
  const row = page.getByRole('row').filter({ hasText: 'only-there' });
  await row.getByRole('button', { name: 'Resolve' }).click();
  const dialog = page.getByRole('dialog').filter({ hasText: 'only-there' });
  await dialog.getByRole('textbox').fill('they booked it twice and took it back');
  await dialog.getByRole('button', { name: 'Resolve' }).click();
  await page.getByText('they booked it twice and took it back (bob)').waitFor();
  await page.getByRole('link', { name: 'Reconciliation' }).click();
  await page.getByRole('row').filter({ hasText: first }).waitFor();
  assert.equal(await page.getByRole('row').filter({ hasText: 'only-there' }).count(), 0);
  await close();
  assert.equal((await auditOf('difference_resolved'))[0]?.actor, 'bob');
});

/** Clicks made on a page since it was opened. */
async function clicks(page: Page): Promise<() => Promise<number>> {
  const count = (): Promise<number> =>
    page.evaluate(() => (window as unknown as { clicks?: number }).clicks ?? 0);
  await page.evaluate(() =>
    addEventListener(
      'click',
      () => {
        const held = window as unknown as { clicks?: number };
        held.clicks = (held.clicks ?? 0) + 1;
      },
      { capture: true },
    ),
  );
  return count;
}

test('"why has payment X not ended": at most three clicks to both sides of the answer and what to do', async () => {
  const refused = await work.pay('refuses-8', 3_800, 'why@example.com');
  const id = await work.pay('misbooks-1', 7_001, 'why-2@example.com');
  const { page, close } = await signIn('bob');
  const made = await clicks(page);
  const waits = page.getByRole('row').filter({ hasText: 'in review: mismatch' });
  await waits.getByRole('link', { name: 'Resume or close' }).click();
  await page.getByRole('link', { name: id }).click();
  await page.getByText('waits for an operator').waitFor();
  const why = page.getByRole('region', { name: 'Why' });
  const amount = why.getByRole('row').filter({ hasText: 'Amount' });
  await amount.getByRole('cell', { name: '$70.01', exact: true }).waitFor();
  await amount.getByRole('cell', { name: '$70.02' }).waitFor();
  assert.equal(await why.getByText('✕').count(), 1, 'the amount alone differs');
  await why.getByText('Ask the partner which amount it booked.').waitFor();
  assert.ok((await made()) <= 3);
  assert.equal(await page.getByText('Josephine').count(), 0);
  // One that the partner refused: its id is at hand.
  await search(page, refused, `Any id: ${refused}`);
  await page.getByRole('row').getByRole('link', { name: refused }).click();
  await why.getByText(/answered 422:.*takes no payments online/).waitFor();
  await why.getByText('Close it as failed when it stays so').waitFor();
  await close();
});

test('"which payments of yesterday differ": at most three clicks', async () => {
  const { page, close } = await signIn('vic');
  const made = await clicks(page);
  await page.getByRole('link', { name: 'Batches' }).click();
  const day = page.getByRole('row').filter({ hasText: /\d+ differences/ });
  await day.getByRole('link').first().click();
  await page.getByRole('cell', { name: '$41.00', exact: true }).waitFor();
  await page.getByRole('cell', { name: '$0.01', exact: true }).waitFor();
  assert.ok((await made()) <= 3);
  await close();
});

test('"what did we answer this partner": at most three clicks to status, code and cause', async () => {
  const refused = await work.token({ ...work.credentials, 'x-api-key': 'dbk_live_wrong' });
  assert.equal(refused.status, 401);
  for (const who of ['vic', 'wen'] as const) {
    const { page, close } = await signIn(who);
    const made = await clicks(page);
    // Its own people are there already.
    if (who === 'vic') await search(page, 'water', 'Partner: springfield-water');
    const row = page.getByRole('row').filter({ hasText: '401 UNAUTHORIZED' });
    await row.getByText('X-Api-Key is missing, wrong, expired or revoked.').waitFor();
    assert.ok((await made()) <= 3);
    await close();
  }
});

test('a partner’s own people see its payments, the calls made for them, and its batches; they act on nothing', async () => {
  const id = await work.pay('misbooks-2', 7_003, 'own@example.com');
  const { page, close } = await signIn('wen');
  assert.deepEqual(
    await page.getByRole('navigation', { name: 'Console' }).getByRole('link').allTextContents(),
    ['Overview', 'Payments', 'Batches', 'Reconciliation'],
  );
  assert.equal(await page.getByRole('button', { name: 'Pause' }).count(), 0);
  await page.getByText(/\d+ calls for its latest \d+ payments; \d+ failed/).waitFor();
  const breach = page.getByRole('row').filter({ hasText: 'a record that breaks the interface' });
  await breach.getByRole('link', { name: id }).waitFor();
  await search(page, id, `Any id: ${id}`);
  await page.getByRole('row').getByRole('link', { name: id }).click();
  const why = page.getByRole('region', { name: 'Why' });
  await why.getByRole('cell', { name: '$70.04' }).waitFor();
  await page.getByText('What the partner answered').first().waitFor();
  assert.ok(await page.getByRole('button', { name: 'Resume', exact: true }).isDisabled());
  // What it is paid, with the statement that its books are checked against.
  await work.platform.database.query(
    `INSERT INTO duebridge_platform.remittances (remittance_id, platform_batch_id, partner_id, biller_id, payments, gross_in_cents,
       deducted_in_cents, carried_in_cents, net_in_cents, sha256, due_on, state)
     SELECT 'paid-to-us', platform_batch_id, partner_id, 'water', 1, 7003, 0, 0, 7003, 'x', '2026-03-21', 'due'
       FROM duebridge_platform.batches LIMIT 1`,
  );
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  const statement = page.getByRole('row').getByRole('link', { name: 'paid-to-us' });
  assert.match((await statement.getAttribute('href')) ?? '', /\/paid-to-us\/statement$/);
  for (const place of ['Batches', 'Reconciliation']) {
    await page.getByRole('link', { name: place, exact: true }).click();
    await page.getByRole('heading', { level: 1, name: place }).waitFor();
  }
  await page.waitForLoadState('networkidle');
  await close();
});

test('a partner’s own people and operators see its latest conformance report, every text as text', async () => {
  const { page, close } = await signIn('wen');
  await page.getByText('No report yet: run').waitFor();
  const [failed, unjudged] = CONFORMANCE_REPORT.others;
  const hostile = { ...failed, title: 'The same PUT again <img src=x onerror=alert(1)>' };
  const sent = { ...CONFORMANCE_REPORT, others: [hostile, unjudged] };
  const path = '/admin/v1/partners/springfield-water/conformance-report';
  const kept = await work.platform.admin('PUT', path, sent, {
    authorization: `Bearer ${work.keys.wen}`,
  });
  assert.equal(kept.status, 200, kept.text);
  // Without a reload.
  await page.getByText('✕ Breaks the interface').waitFor();
  await page.getByText('33 passed, 1 failed, 0 with a warning, 1 not judged').waitFor();
  await page.getByRole('row').filter({ hasText: 'P25' }).getByText('<img src=x').waitFor();
  await page.getByRole('row').filter({ hasText: 'declares no account whose' }).waitFor();
  await close();
  const viewer = await signIn('vic');
  await viewer.page.goto(`${work.platform.adminUrl}/console/partners/springfield-water`);
  await viewer.page.getByText('✕ Breaks the interface').waitFor();
  await viewer.page.waitForLoadState('networkidle');
  await viewer.close();
});

test('more differences than a page holds are read page by page, and Back leads to the page before', async () => {
  const id = await work.pay('pays-9', 9_900, 'pages@example.com');
  const detail = await work.platform.admin('GET', `/admin/v1/payments/${id}`);
  const { platform_batch_id: batch } = (detail.body as { payment: { platform_batch_id: string } })
    .payment;
  const file = Array.from({ length: 60 }, (_, n) => `only-there-${n},succeeded,100`).join('\n');
  const path = `/admin/v1/batches/${batch}/reconcile-file`;
  const compared = await work.platform.admin('POST', path, file);
  assert.equal(compared.status, 200, compared.text);
  const { page, close } = await signIn('bob');
  await page.getByRole('link', { name: 'Reconciliation', exact: true }).click();
  const rows = page.locator('tr[data-row]');
  await rows.nth(49).waitFor();
  const first = await rows.first().getAttribute('data-row');
  await page.getByRole('link', { name: 'Next page' }).click();
  await page.getByRole('link', { name: 'First page' }).waitFor();
  await page.locator(`tr[data-row="${first}"]`).waitFor({ state: 'detached' });
  assert.ok((await rows.count()) >= 10);
  await page.goBack();
  await page.locator(`tr[data-row="${first}"]`).waitFor();
  // Another filter begins at its first page.
  await page.getByRole('link', { name: 'Next page' }).click();
  await page.getByRole('link', { name: 'resolved', exact: true }).click();
  await page.getByRole('link', { name: 'First page' }).waitFor({ state: 'detached' });
  await close();
});

test('a person’s payments are found by their e-mail address, which the address bar never has', async () => {
  await work.pay('pays-3', 5_100, 'forget@example.com');
  const { page, close } = await signIn('ada');
  await search(page, 'forget@example.com', 'E-mail: forget@example.com (audited)');
  await page.getByRole('cell', { name: '$51.00' }).waitFor();
  assert.doesNotMatch(page.url(), /forget/);
  // Another filter keeps to the person; without the person, the list is everybody's again.
  await search(page, 'succ', 'Status: succeeded');
  await page.waitForURL(/status=succeeded/);
  await page.getByRole('cell', { name: '$51.00' }).waitFor();
  assert.equal(await page.locator('tr[data-row]').count(), 1);
  await page.getByRole('button', { name: 'email: forget@example.com' }).click();
  await page.locator('tr[data-row]').nth(1).waitFor();
  await close();
});

test('what one operator saw, searched and named is gone for the next person in the same tab', async () => {
  const id = await work.pay('pays-8', 8_100, 'private@example.com');
  const { page, close } = await signIn('ada');
  const row = page.getByRole('row').getByRole('link', { name: id });
  await search(page, '81', 'Amount: $81.00');
  await search(page, 'private@example.com', 'E-mail: private@example.com (audited)');
  await row.waitFor();
  const changeTo = async (who: keyof WorkingDay['keys'], shown: string): Promise<void> => {
    await page.getByLabel('Operator key').fill(work.keys[who]);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.getByText(shown).waitFor();
  };
  await page.getByRole('button', { name: 'Sign out' }).click();
  await changeTo('wen', 'Wen (partner)');
  // No list is answered from here on: what is shown was there before.
  await page.route('**/admin/v1/payments**', (route) =>
    route.fulfill({ status: 503, json: { code: 'UNAVAILABLE', message: 'Not now.' } }),
  );
  await page.getByRole('link', { name: 'Payments', exact: true }).click();
  await page.getByText('Not now.').waitFor();
  assert.equal(await page.locator('tr[data-row]').count(), 0, 'rows of the other operator');
  await page.unroute('**/admin/v1/payments**');
  // Back, over the entries of both, as far as the search for the person.
  for (let back = 0; back < 2; back += 1) await page.goBack();
  await page.waitForURL(/amount=81/);
  await page.getByRole('heading', { level: 1, name: 'Payments' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'email: private@example.com' }).count(), 0);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await changeTo('ada', 'Ada (admin)');
  await page.goto(`${work.platform.adminUrl}/console/payments?amount=81`);
  await row.waitFor();
  // A session that ended elsewhere takes what was shown with it, and whoever signs in again is where they were.
  await page.context().clearCookies();
  await page.getByRole('button', { name: 'Refresh' }).click();
  await changeTo('ada', 'Ada (admin)');
  assert.match(page.url(), /amount=81/);
  await row.waitFor();
  await close();
});

test('an export has what the filters find at the press, also from a link with a filter that is no more', async () => {
  const id = await work.pay('pays-4', 6_100, 'live@example.com');
  const { page, close } = await signIn('bob');
  const filters = 'amount=61&day=yesterday&last=24h';
  await page.goto(`${work.platform.adminUrl}/console/payments?${filters}`);
  await page.getByText('No payments match.').waitFor();
  // The page is left open over midnight.
  await page.clock.setFixedTime(Date.now() + 86_400_000);
  const stored = page.waitForEvent('download');
  await page.getByText('Export CSV').click();
  const text = await readFile(await (await stored).path(), 'utf8');
  assert.match(text.trim(), new RegExp(`^platform_payment_id,.*\\r\\n${id},.*$`));
  await close();
});

test('a payment that takes long is found by its amount, paused, has a case and is resumed', async () => {
  const id = await work.pay('waits-7', 98_700, 'slow@example.com');
  const { page, close } = await signIn('bob');
  await search(page, '987.00', 'Amount: $987.00');
  await page.waitForURL(/amount=987/);
  const row = page.locator(`tr[data-row="${id}"]`);
  await row.getByText(/poll (in \d+ m?s|due now)/).waitFor();
  await row.getByRole('link', { name: id }).click();
  await page.getByText(/poll (in \d+|due now)/).waitFor();
  await act(page, 'Pause', 'the partner repairs it');
  await page.getByRole('heading', { level: 1, name: /paused/ }).waitFor();
  await act(page, 'Open a case', 'ticket 4711');
  await page.getByText(/A case \(other\), opened by bob on .*: ticket 4711/).waitFor();
  assert.ok(await page.getByRole('button', { name: 'Pause', exact: true }).isDisabled());
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  const toFollow = page.getByRole('row').filter({ hasText: '1 case: other' });
  await toFollow.getByRole('link', { name: 'Answer and end' }).waitFor();
  const paused = page.getByRole('row').filter({ hasText: '1 payment paused by an operator' });
  await paused.getByRole('link', { name: 'Resume' }).click();
  await row.getByText('ticket 4711').waitFor();
  const viewer = await signIn('vic');
  await viewer.page.goto(`${work.platform.adminUrl}/console/payments/${id}`);
  await viewer.page.getByRole('heading', { level: 1, name: /paused/ }).waitFor();
  for (const name of ['Resume', 'Open a case', 'End the case']) {
    assert.ok(await viewer.page.getByRole('button', { name, exact: true }).isDisabled(), name);
  }
  await viewer.close();
  await row.getByRole('link', { name: id }).click();
  await act(page, 'End the case', 'they found it');
  await page.getByText('A case (other)').waitFor({ state: 'detached' });
  await act(page, 'Resume', 'go on');
  await page.getByRole('heading', { level: 1, name: /processing/ }).waitFor();
  await close();
  for (const event of ['payment_paused', 'case_complained', 'case_answered', 'payment_resumed']) {
    assert.equal((await auditOf(event))[0]?.actor, 'bob', event);
  }
});

test('money: the equation is in sight, each figure opens into its lines, and a case is ended', async () => {
  const id = await work.pay('pays-77', 4_400, 'money@example.com');
  const set = await work.platform.admin('POST', '/admin/v1/partners/springfield-water/payout', {
    way: 'by_hand',
    holder_name: 'Springfield Water',
    routing_number: '021000021',
    account_number: '12345678',
  });
  assert.equal(set.status, 200, set.text);
  const { page, close } = await signIn('bob');
  await page.goto(`${work.platform.adminUrl}/console/payments/${id}`);
  await act(page, 'Open a case', 'the bill still shows it');
  await page.getByRole('link', { name: 'Money', exact: true }).click();
  await page.getByText('every cent of it is above.').first().waitFor();
  const row = page.getByRole('row').filter({ hasText: 'the bill still shows it' });
  await row.getByRole('button', { name: 'Answered' }).click();
  await page.getByRole('dialog').getByLabel('Reason').fill('they found it');
  await page.getByRole('dialog').getByRole('button', { name: 'Answered' }).click();
  await page.getByText('The case has ended.').waitFor();
  await row.waitFor({ state: 'detached' });
  const biller = page.getByRole('row').filter({ hasText: 'springfield-water' }).first();
  await biller.getByRole('link').nth(3).click();
  await page
    .getByText(/No remittances\.|Remittances, paid/)
    .first()
    .waitFor();
  await page.getByRole('cell', { name: 'Springfield Water' }).waitFor();
  await close();
});

test('by keyboard alone: find a payment, open it, act', async () => {
  const id = await work.pay('refuses-3', 3_300, 'keys@example.com');
  const { page, close } = await signIn('bob');
  // Escape leaves the search, whose suggestions cover the page.
  const suggestions = page.getByRole('list', { name: 'Suggestions' });
  await page.keyboard.press('Control+k');
  await page.keyboard.type('nothing');
  await page.keyboard.press('Tab');
  await suggestions.waitFor();
  await page.keyboard.press('Escape');
  await suggestions.waitFor({ state: 'hidden' });
  await page.keyboard.press('Control+k');
  await page.keyboard.type(id);
  await page.keyboard.press('Enter');
  await page.waitForURL(/id=/);
  // The filter above the list has the id in its name, too.
  await page.getByRole('row').getByRole('link', { name: id }).press('Enter');
  await page.getByRole('heading', { level: 1, name: /review/ }).waitFor();
  const button = page.getByRole('button', { name: 'Close as failed' });
  for (let tabs = 0; tabs < 60; tabs += 1) {
    if (await button.evaluate((node) => node === document.activeElement)) break;
    await page.keyboard.press('Tab');
  }
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  assert.ok(await button.evaluate((node) => node === document.activeElement), 'the focus is lost');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').getByRole('textbox').focus();
  await page.keyboard.type('by keyboard');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: /failed/ }).waitFor();
  await close();
});

test('several payments are picked and acted on one after the other; what is not done says why', async () => {
  const ids = [
    await work.pay('refuses-5', 3_500, 'many-1@example.com'),
    await work.pay('refuses-6', 3_600, 'many-2@example.com'),
    await work.pay('refuses-7', 3_700, 'many-3@example.com'),
  ];
  const large = await work.pay('refuses-9', 150_000, 'many-4@example.com');
  const { page, close } = await signIn('bob');
  await page.goto(`${work.platform.adminUrl}/console/payments?status=review`);
  for (const id of [...ids, large]) await page.getByLabel(`Pick ${id}`).check();
  const picked = page.getByRole('region', { name: 'Selected payments' });
  await picked.getByText('4 selected, $1,608.00 together.').waitFor();
  // Meanwhile somebody else closes one: it is refused, and the page says why.
  await work.platform.admin('POST', `/admin/v1/payments/${ids[1]}/close`, { reason: 'faster' });
  await act(page, 'Close selected', 'ticket 13');
  await page.getByText('close: 2 done, 1 refused, 1 waiting for a second person.').waitFor();
  await picked.getByText(`${ids[1]}: The payment is not in review`).waitFor();
  await picked.getByText(`${large}: waits for a second person`).waitFor();
  // No row moves under the cursor: the list is read again by a button.
  assert.equal(await page.getByLabel(`Pick ${ids[0]}`).count(), 1);
  await page.getByRole('button', { name: 'Refresh' }).click();
  await page.getByLabel(`Pick ${ids[0]}`).waitFor({ state: 'detached' });
  for (const id of ids) {
    const { body } = await work.platform.admin('GET', `/admin/v1/payments/${id}`);
    assert.equal((body['payment'] as { status: string }).status, 'failed');
  }
  await close();
});

test('every page passes axe, light and dark', async () => {
  const id = await work.pay('refuses-4', 3_400, 'axe@example.com');
  const { page, close } = await signIn('ada');
  const batches = await work.platform.admin('GET', '/admin/v1/batches');
  const [batch] = (batches.body as { batches: { platform_batch_id: string }[] }).batches;
  for (const path of [
    '',
    '/payments',
    `/payments/${id}`,
    '/partners',
    '/partners/springfield-water',
    '/batches',
    `/batches/${batch?.platform_batch_id}`,
    '/reconciliation',
    '/money',
    '/audit',
  ]) {
    await page.goto(`${work.platform.adminUrl}/console${path}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.waitForLoadState('networkidle');
    if (path === '/payments') await page.getByLabel(`Pick ${id}`).check();
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await axeIn(page.mainFrame()), [], `${path} ${colorScheme}`);
    }
  }
  await close();
});
