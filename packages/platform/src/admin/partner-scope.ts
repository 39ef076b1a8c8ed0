/**
 * What an operator of a partner may ask (decision 38): the one guard in front of every admin operation.
 *
 * enters: an operation of the route table, its request and who sent it.  leaves: the request, limited to the operator's partner, or a
 *         Refusal.
 *         An answer leaves without what the platform's own people wrote.
 * holds:  an operation is open to such an operator only where the table says how it is tied to one partner; a new one is closed. What is
 *         another partner's is answered like what does not exist.
 */
import { Refusal, type ErrorCode, type Route } from '@duebridge/contract';
import { sql, type Call, type Database, type Handler, type Statement } from '@duebridge/runtime';
import type { FastifyRequest } from 'fastify';
import { withoutOperatorsReason } from '../partners/registry.ts';
import { assertRole, type Operator } from './operators.ts';

/** A call with who makes it: the operator, and the name that the audit records. */
type AdminHandler<R extends Route> = (
  call: Call<R> & { readonly operator: Operator; readonly actor: string },
) => ReturnType<Handler<R>>;

/** Mounts an operation behind the role, and the tie to a partner, named in its table entry (admin.ts). */
export type Serve = <const R extends Route>(route: R, handler: AdminHandler<R>) => void;

/** Whose a thing named in the path is, and the answer to an unknown one. */
const ownerIn = (table: string, key: string): Statement =>
  sql(`SELECT partner_id FROM duebridge_platform.${table} WHERE ${key} = $1`);
type Owned = Exclude<Route['tiedBy'], 'self' | 'partner_id' | undefined>;
const OWNERS: Readonly<Record<Owned, readonly [Statement, ErrorCode]>> = {
  platform_payment_id: [ownerIn('payments', 'platform_payment_id'), 'PAYMENT_NOT_FOUND'],
  platform_batch_id: [ownerIn('batches', 'platform_batch_id'), 'BATCH_NOT_FOUND'],
  remittance_id: [ownerIn('remittances', 'remittance_id'), 'NOT_FOUND'],
};

/** Characters of an id of a payment, a batch or a remittance at most. */
const MAX_ID = 64;

/** The values in a part of a request, before they are checked against the table. */
type Values = Record<string, unknown>;

/**
 * Lets a request through to its operation, before its body is read. Throws Refusal INSUFFICIENT_ROLE, or the operation's own "not
 * found" for what is another partner's.
 */
export async function assertScope(
  database: Database,
  route: Route,
  operator: Operator,
  request: FastifyRequest,
): Promise<void> {
  const { partner_id } = operator;
  if (partner_id === null) return assertRole(operator, route.role ?? 'viewer');
  const [params, query] = [request.params as Values, request.query as Values];
  switch (route.tiedBy) {
    case undefined:
      throw new Refusal('INSUFFICIENT_ROLE', {
        message: `This is not open to ${operator.actor}, who sees the partner ${partner_id} alone`,
      });
    case 'self':
      return undefined;
    case 'partner_id': {
      const named = params['partner_id'] ?? query['partner_id'] ?? partner_id;
      if (named !== partner_id) throw new Refusal('NOT_FOUND');
      // Where the path does not name it, the query does: a list without it would be of all partners.
      if (params['partner_id'] === undefined) query['partner_id'] = partner_id;
      return undefined;
    }
    default: {
      const [statement, code] = OWNERS[route.tiedBy];
      const id = String(params[route.tiedBy]);
      // The path is not checked yet, and the database takes no null character.
      if (id.length > MAX_ID || id.includes('\0')) throw new Refusal(code);
      const [row] = await database.query<{ partner_id: string }>(statement, [id]);
      if (row?.partner_id !== partner_id) throw new Refusal(code);
      return undefined;
    }
  }
}

/** Fields with the words and names of the platform's own people, in whichever answer; and what a partner reads there. */
const OURS: Readonly<Record<string, unknown>> = {
  actor: '',
  audit: [],
  open_case: null,
  ask: null,
  resolution: null,
  resolved_by: null,
};
/** Fields that say why calls to a partner are held back: by an operator, who may have added a reason, or by what the partner answers. */
const HELD = new Set(['pause_reason', 'partner_held']);

/** An answer as an operator of a partner gets it: without what the platform's own people wrote. */
export function withoutOurWords<T>(answer: T): T {
  return cleaned('', JSON.parse(JSON.stringify(answer))) as T;
}

function cleaned(name: string, value: unknown): unknown {
  if (Object.hasOwn(OURS, name)) return OURS[name];
  if (HELD.has(name) && typeof value === 'string') return withoutOperatorsReason(value);
  // Its keys are the billers' ids, whatever they spell.
  if (
    name === 'biller_names' ||
    name === 'biller_logos' ||
    typeof value !== 'object' ||
    value === null
  )
    return value;
  if (Array.isArray(value)) return value.map((one) => cleaned('', one));
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, cleaned(key, one)]));
}
