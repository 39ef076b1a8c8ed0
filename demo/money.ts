/**
 * What follows the story's payment: its batch ends, the biller is owed, a file for the bank is made, and the biller checks the statement
 * against its own ledger. Each step is the admin call that an operator's command makes.
 *
 * holds: the two files stay in the data directory, to be looked at. The bank alone is not there: that it has paid is said here, as an
 *        operator does who reads the bank's report.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  formatCents,
  type BankFileView,
  type MoneyCheck,
  type PaymentDetail,
  type RemittanceView,
} from '@duebridge/contract';
import { partnerCommand } from '@duebridge/partner/main';
import { request } from 'undici';
import { bearer, call } from './admin.ts';
import type { Demo } from './servers.ts';
import { dataDirectory } from './settings.ts';

/** The capture of a payment takes a fraction of a second. */
const PATIENCE_MS = 30_000;
/** A round compares the batch, the next makes its remittance and sends it: it takes three at most. */
const MAX_ROUNDS = 5;

/** An account that no bank has. */
const ACCOUNT = { routing_number: '021000021', account_number: '000111222' } as const;

/** Remits the batch of a payment of the first partner. `tell` gets each step as it was done. Throws when a step is refused. */
export async function remitBatch(
  { platform, partners: [partner] }: Demo,
  platform_payment_id: string,
  tell: (what: string, says: string) => void,
): Promise<void> {
  const admin = `${platform.adminUrl}/admin/v1`;
  const headers = bearer(platform.adminKey);
  const get = <T>(path: string): Promise<T> => call<T>('GET', `${admin}${path}`, headers);
  const post = <T>(path: string, body?: object): Promise<T> =>
    call<T>('POST', `${admin}${path}`, headers, body);

  const { payment } = await get<PaymentDetail>(`/payments/${platform_payment_id}`);
  const { biller_id, platform_batch_id } = payment;
  const taken = await ownOf(get, biller_id, (one) => one.owed > 0);
  tell('money', `${formatCents(taken.owed)} captured, and owed to ${biller_id}`);

  // Every biller of the batch has an account, whichever bills earlier starts have paid.
  for (const each of new Set(partner.accounts.map((one) => one.biller_id))) {
    const payout = { biller_id: each, way: 'pain001', holder_name: each, held: false, ...ACCOUNT };
    await post(`/partners/${partner.partner_id}/payout`, payout);
  }
  await post(`/batches/${platform_batch_id}/close`, { reason: 'the demo ends its day' });
  let remittance: RemittanceView | undefined;
  for (let round = 0; remittance === undefined && round < MAX_ROUNDS; round += 1) {
    await post('/money/remittances');
    const { remittances } = await get<{ remittances: RemittanceView[] }>(
      `/money/remittances?partner_id=${partner.partner_id}&state=sent`,
    );
    remittance = remittances.find((one) => one.platform_batch_id === platform_batch_id);
  }
  if (remittance === undefined) throw new Error(`batch ${platform_batch_id} was not remitted`);
  const { remittance_id, net_in_cents } = remittance;
  const file = await post<BankFileView>('/money/files', { way: 'pain001', mode: 'test' });
  const bankFile = join(dataDirectory, 'bank-file.xml');
  await writeFile(bankFile, file.content, { mode: 0o600 });
  tell(
    'bank',
    `${formatCents(net_in_cents)} for ${biller_id} is in a file for the bank: ${bankFile}`,
  );

  const paid = { outcome: 'paid', reference: 'DEMO-1' };
  await post(`/money/remittances/${file.file_id}/end`, paid);
  await post('/money/remittances');
  const statement = join(dataDirectory, 'statement.csv');
  const answer = await request(`${admin}/money/remittances/${remittance_id}/statement`, {
    headers,
  });
  await writeFile(statement, await answer.body.text(), { mode: 0o600 });
  tell('statement', await checkStatement(partner.server, statement));

  const { paid: arrived } = await ownOf(get, biller_id, () => true);
  const { holds, faults } = await get<MoneyCheck>('/money/check');
  if (!holds) throw new Error(faults.join('; '));
  tell('book', `${formatCents(arrived)} paid to ${biller_id}; every cent is somewhere`);
}

/** The balances of a biller, once they are as `fits` says. */
async function ownOf(
  get: <T>(path: string) => Promise<T>,
  biller_id: string,
  fits: (one: MoneyCheck['balances'][number]) => boolean,
): Promise<MoneyCheck['balances'][number]> {
  for (const until = performance.now() + PATIENCE_MS; performance.now() < until;) {
    const { balances } = await get<Pick<MoneyCheck, 'balances'>>('/money');
    const own = balances.find((one) => one.biller_id === biller_id);
    if (own !== undefined && fits(own)) return own;
    await delay(10);
  }
  throw new Error(`the money of the payment was not taken within ${PATIENCE_MS / 1000} s`);
}

/** `duebridge partner check-remittance`, as the biller runs it. */
async function checkStatement(
  { adminUrl, adminKey }: Demo['partners'][0]['server'],
  file: string,
): Promise<string> {
  let said = '';
  const terminal = {
    env: { DUEBRIDGE_ADMIN_URL: adminUrl, DUEBRIDGE_ADMIN_KEY: adminKey },
    stdin: process.stdin,
    write: (text: string) => void (said += text),
  };
  await partnerCommand(terminal).parseAsync(['check-remittance', file], { from: 'user' });
  return said.trim();
}
