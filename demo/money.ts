/**
 * What follows the story's payment: its batch ends, the biller is owed, a file for the bank is made, and the biller checks the statement
 * against its own ledger. Each step is the admin call that an operator's command makes.
 *
 * holds: the two files stay in the data directory, to be looked at. The bank alone is not there: that it has paid is said here, as an
 *        operator does who reads the bank's report.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  formatCents,
  type BankFileView,
  type MoneyCheck,
  type PaymentDetail,
  type RemittanceView,
} from '@duebridge/contract';
import { partnerCommand } from '@duebridge/partner/main';
import { request } from 'undici';
import { bearer, call, repeated } from './admin.ts';
import { dataDirectory, type Demo } from './servers.ts';

/** An account that no bank has. */
const ACCOUNT = { routing_number: '021000021', account_number: '000111222' } as const;

/** Remits the batch of a payment. `tell` gets each step as it was done. Throws when a step is refused. */
export async function remitBatch(
  { platform, biller: { partner_id, server } }: Demo,
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
  const { owed } = await repeated('the money of the payment', async () => {
    const { balances } = await get<Pick<MoneyCheck, 'balances'>>('/money');
    return balances.find((one) => one.biller_id === biller_id && one.owed > 0);
  });
  tell('money', `${formatCents(owed)} captured, and owed to ${biller_id}`);

  const payout = { biller_id, way: 'pain001', holder_name: biller_id, held: false, ...ACCOUNT };
  await post(`/partners/${partner_id}/payout`, payout);
  await post(`/batches/${platform_batch_id}/close`, { reason: 'the demo ends its day' });
  const { remittance_id, net_in_cents } = await repeated('the remittance', async () => {
    // One round compares the batch, the next makes its remittance and sends it.
    await post('/money/remittances');
    const path = `/money/remittances?partner_id=${partner_id}&state=sent`;
    const { remittances } = await get<{ remittances: RemittanceView[] }>(path);
    return remittances.find((one) => one.platform_batch_id === platform_batch_id);
  });
  const file = await post<BankFileView>('/money/files', { way: 'pain001', mode: 'test' });
  const bankFile = join(dataDirectory, 'bank-file.xml');
  await writeFile(bankFile, file.content, { mode: 0o600 });
  const net = formatCents(net_in_cents);
  tell('bank', `${net} for ${biller_id} is in a file for the bank: ${bankFile}`);

  const paid = { outcome: 'paid', reference: 'DEMO-1' };
  await post(`/money/remittances/${file.file_id}/end`, paid);
  await post('/money/remittances');
  const statement = join(dataDirectory, 'statement.csv');
  const path = `${admin}/money/remittances/${remittance_id}/statement`;
  const answer = await request(path, { headers });
  await writeFile(statement, await answer.body.text(), { mode: 0o600 });
  tell('statement', await checkStatement(server, statement));

  const { balances, holds, faults } = await get<MoneyCheck>('/money/check');
  if (!holds) throw new Error(faults.join('; '));
  const arrived = balances.find((one) => one.biller_id === biller_id)?.paid ?? 0;
  tell('book', `${formatCents(arrived)} paid to ${biller_id}; every cent is somewhere`);
}

/** `duebridge partner check-remittance`, as the biller runs it. */
async function checkStatement(
  { adminUrl, adminKey }: Demo['biller']['server'],
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
