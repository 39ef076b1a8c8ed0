/**
 * The biller's side of the interface: all operations that the platform calls, on accounts of the kit's own or on the biller's, as a
 * Fastify plugin, as a handler for any other Node server, or as a whole server.
 *
 *     await app.register(partnerKit, { database, auth, accounts });          // Fastify
 *     app.use(await partnerHandler({ database, auth, accounts }));           // Express, NestJS, Koa, node:http
 *     await partnerFetch({ database, auth, accounts });                      // Next.js, Hono, Bun, Deno
 *     await startPartner({ auth, accounts, databaseUrl });                   // a server with an admin API
 */
import '@duebridge/contract/supported-node';
export {
  reasonAgainst,
  WrongAnswer,
  type AccountsInOwnSystem,
  type AccountsInTransaction,
  type AccountSystem,
  type BillerRules,
  type CallOptions,
  type FinalOutcome,
  type Later,
  type Locked,
  type Posting,
  type PostOutcome,
} from './account-system.ts';
export { accountsOverHttp, type AccountServiceOptions } from './accounts-over-http.ts';
export { importAccountsFile } from './accounts-csv.ts';
export type { CsvText } from './csv.ts';
export { mountPartnerAdmin, type PartnerAdminOptions } from './admin.ts';
export type { AuthOptions, KeyOptions, OAuthOptions } from './auth.ts';
export { importFormerPayments, type FormerPaymentsResult } from './former-payments.ts';
export {
  partnerFetch,
  partnerHandler,
  type KitRequest,
  type PartnerFetch,
  type PartnerHandler,
} from './handler.ts';
export type { KitPaths, PartnerKit, PartnerKitOptions } from './kit.ts';
export { importAccounts, ledger, type ImportedAccount, type ImportResult } from './ledger.ts';
export {
  accountServiceOpenApi,
  migratePartner,
  openPartnerDatabase,
  partnerOpenApi,
  startPartner,
  type PartnerConfig,
  type RunningPartner,
} from './server.ts';
export { partnerKit } from './plugin.ts';
export type { EndedByHand } from './end-by-hand.ts';
export type { PaymentRow } from './store.ts';
// What a partner's program needs from the runtime, so that it depends on this package alone.
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
