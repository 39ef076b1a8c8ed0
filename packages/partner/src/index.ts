/**
 * The biller's side of the interface: a Fastify plugin that hosts all operations the platform calls, on books of its own or on the
 * biller's.
 *
 *     const app = createServer();
 *     await app.register(partnerKit, { database, auth, accounts });
 *     await app.listen({ port: 4100 });
 */
export type {
  AccountsInOwnSystem,
  AccountsInTransaction,
  AccountSystem,
  BillerRules,
  Posting,
  PostOutcome,
} from './account-system.ts';
export { formatAccountsCsv, parseAccountsCsv, type ParsedAccounts } from './accounts-csv.ts';
export { mountPartnerAdmin, type PartnerAdminOptions } from './admin.ts';
export type { AuthOptions, KeyOptions, OAuthClient, OAuthOptions } from './auth.ts';
export { partnerKit, type PartnerKit, type PartnerKitOptions } from './kit.ts';
export { importAccounts, ledger, type ImportedAccount, type ImportResult } from './ledger.ts';
export {
  migratePartner,
  partnerOpenApi,
  startPartner,
  type PartnerConfig,
  type RunningPartner,
} from './server.ts';
export type { CancelOutcome, PaymentRow } from './store.ts';
// What a partner's program needs of the ground, so that it depends on this package alone.
export { FAILURE_REASONS, Refusal } from '@duebridge/contract';
export {
  ConfigurationError,
  createLogger,
  createMetrics,
  createServer,
  DatabaseUnavailable,
  mountOperations,
  openDatabase,
  runService,
  sql,
  type Database,
  type Log,
  type Transaction,
} from '@duebridge/runtime';
