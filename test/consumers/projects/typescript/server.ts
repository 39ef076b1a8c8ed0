import { judgePartner, partnerTarget, type RunReport } from '@duebridge/conformance';
import { parseJson, type PaymentRecord } from '@duebridge/contract';
import {
  FAILURE_REASONS,
  openPartnerDatabase,
  partnerHandler,
  partnerKit,
  startPartner,
  type AccountsInTransaction,
  type AccountSystem,
} from '@duebridge/partner';
import { readPlatformConfig, startPlatform, type Platform } from '@duebridge/platform';
import { createServer, type Database } from '@duebridge/runtime';
import { duebridge } from './browser.js';
import Fastify from 'fastify';

/** Uses what each package exports, as a program would; it is compiled and never run. */
export async function everything(database: Database): Promise<readonly unknown[]> {
  const accounts: AccountsInTransaction = {
    posts: 'in_transaction',
    async findAccount(biller_id, account_id) {
      return { biller_id, account_id, status: 'active', balance: { amount_due_in_cents: 1 } };
    },
    async post(payments, transaction) {
      await transaction.query('SELECT $1::text[]', [payments.map(({ account_id }) => account_id)]);
      return payments.map(() => ({ outcome: 'failed', reason: FAILURE_REASONS.account }));
    },
  };
  const system: AccountSystem = accounts;
  const auth = { method: 'key', header: 'x-api-key', keys: ['k'] } as const;
  const app = Fastify({ logger: true });
  await app.register(partnerKit, { database, auth, accounts: system });
  const handler = await partnerHandler({ database, auth });
  const partner = await startPartner({ auth, accounts: () => accounts });
  const platform: Platform = await startPlatform(readPlatformConfig());
  const report: RunReport = await judgePartner(partnerTarget({ base_url: partner.url }));
  const record: PaymentRecord | undefined = undefined;
  return [
    app.partnerKit,
    handler.kit,
    platform,
    report,
    record,
    parseJson,
    createServer,
    openPartnerDatabase,
    duebridge,
  ];
}
