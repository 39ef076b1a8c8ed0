/** What the commands print for people: tables, facts and sentences of the answers of the admin API. */
import type {
  Attempt,
  AuditEntry,
  AuditPage,
  BatchPage,
  BatchView,
  ClientKeyGrant,
  ClientKeyView,
  DifferencePage,
  DifferenceSummary,
  ListedPayment,
  OpenDifference,
  OperatorKeyGrant,
  OperatorView,
  PartnerAnswer,
  PartnerCallAnswer,
  PartnerHealth,
  PartnerTest,
  PartnerView,
  PaymentDetail,
  PaymentPage,
  PaymentStage,
  PaymentView,
  Person,
  PersonErasure,
  Reconciliation,
  ReviewClose,
  RevokedAccess,
  WalletDomain,
} from '@duebridge/contract';
import { columns, table } from '@duebridge/runtime/cli';

/** A column: its heading, and the cell of a row; null and undefined are a dash. */
type Column<Row> = readonly [head: string, cell: (row: Row) => string | number | null | undefined];

/** Rows in columns; a sentence when there are none. */
export function inColumns<Row>(shape: readonly Column<Row>[], rows: readonly Row[]): string {
  return table(
    shape.map(([head]) => head),
    rows.map((row) => shape.map(([, cell]) => String(cell(row) ?? '-'))),
  );
}

/** Every field of an answer. */
export function facts(answer: object): string {
  return columns(
    Object.entries(answer).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  );
}

const more = (cursor: string | null): string =>
  cursor === null ? '' : `\nMore: --cursor '${cursor}'`;

// Partners and keys --------------------------------------------------------------------------------------------------------------

export const registered = ({ partner_id, mode }: PartnerView): string =>
  `Registered ${partner_id} (${mode}). Next: duebridge platform key issue --partner ${partner_id}`;

export const partnerState = (view: PartnerView): string =>
  `${view.partner_id} is ${view.pause_reason ?? 'active'}.`;

export const tested = ({ finding, took_ms }: PartnerTest): string => `${finding} (${took_ms} ms)`;

export const partnerTable = ({ partners }: { readonly partners: readonly PartnerView[] }): string =>
  inColumns(
    [
      ['PARTNER', (one) => one.partner_id],
      ['MODE', (one) => one.mode],
      ['NAME', (one) => one.name],
      ['KIND', (one) => one.kind],
      ['BILLER', (one) => one.biller_id],
      ['AUTH', (one) => one.auth.method],
      ['BASE URL', (one) => one.base_url],
      ['STATE', (one) => one.pause_reason ?? 'active'],
    ],
    partners,
  );

export const keyGrant = (grant: ClientKeyGrant): string =>
  `${columns([
    ['client_id', grant.client_id],
    ['api_key', grant.api_key],
    ['key_id', grant.key_id],
    ['expires', grant.expires_at ?? 'never'],
    ['mode', grant.mode],
  ])}\nThe api_key is not shown again; it goes into X-Api-Key, the client_id into X-Client-Id.`;

export const domainTable = ({ domains }: { readonly domains: readonly WalletDomain[] }): string =>
  domains.length === 0
    ? 'No processor here has wallets.'
    : inColumns(
        [
          ['PROCESSOR', (one) => one.adapter],
          ['DOMAIN', (one) => one.domain],
          ['WALLETS', (one) => one.problem ?? 'shown'],
        ],
        domains,
      );

export const keyTable = ({ keys }: { readonly keys: readonly ClientKeyView[] }): string =>
  inColumns(
    [
      ['KEY', (one) => one.key_id],
      ['MODE', (one) => one.mode],
      ['CLIENT', (one) => one.client_id],
      ['ISSUED', (one) => one.created_at],
      ['LAST USED', (one) => one.last_used_at],
      ['EXPIRES', (one) => one.expires_at],
      ['REVOKED', (one) => one.revoked_at],
    ],
    keys,
  );

export const health = ({ summary, troubles }: PartnerHealth): string =>
  [
    ...summary,
    ...troubles.map((one) => `${one.count} x ${one.what} Latest: ${one.platform_payment_id}`),
  ].join('\n');

export const answerTable = ({ answers }: { answers: readonly PartnerCallAnswer[] }): string =>
  inColumns(
    [
      ['LAST', (one) => one.last_at],
      ['COUNT', (one) => one.count],
      ['STATUS', (one) => one.status],
      ['CODE', (one) => one.code || null],
      ['CAUSE', (one) => one.cause || null],
      ['CLIENT', (one) => one.client_id],
      ['LAST REQUEST', (one) => one.request_id],
    ],
    answers,
  );

export const keyRevoked = ({ key_id, client_id }: ClientKeyView): string =>
  `Revoked ${key_id} of ${client_id}.`;

export const accessRevoked = ({ tokens, sessions, client_id }: RevokedAccess): string =>
  `Ended ${tokens} tokens and ${sessions} sessions of ${client_id}.`;

// Payments -----------------------------------------------------------------------------------------------------------------------

const PAYMENT: readonly Column<PaymentView>[] = [
  ['PAYMENT', (one) => one.platform_payment_id],
  ['STATUS', (one) => one.status],
  ['STAGE', (one) => one.stage],
  ['PARTNER', (one) => one.partner_id],
  ['MODE', (one) => one.mode],
  ['ACCOUNT', (one) => one.masked_account_id],
  ['CENTS', (one) => one.amount_in_cents],
  ['CREATED', (one) => one.created_at],
];
const REASON: Column<PaymentView> = ['REASON', (one) => one.review_reason ?? one.failure_reason];

const paymentTable = (payments: readonly PaymentView[]): string =>
  inColumns([...PAYMENT, REASON], payments);

export const onePayment = (payment: PaymentView): string => paymentTable([payment]);

/** A list with what is happening to each payment now. */
export const paymentPage = ({ payments, next_cursor }: PaymentPage): string =>
  inColumns<ListedPayment>(
    [
      ...PAYMENT,
      ['CALLS', (one) => one.attempts],
      ['NEXT', nextOf],
      REASON,
      ['CASE', (one) => one.open_case?.reason_code],
    ],
    payments,
  ) + more(next_cursor);

function nextOf({ paused, next_step }: ListedPayment): string {
  if (paused) return 'paused';
  return next_step === null ? '-' : `${next_step.step} at ${next_step.at}`;
}

export function closed({ outcome, payment }: ReviewClose): string {
  return outcome === 'closed'
    ? onePayment(payment)
    : 'Noted. The amount is above the limit: a second operator has to run the same command.';
}

export function partnerSaid({ answer }: PartnerAnswer): string {
  const said = answer.replaceAll('_', ' ');
  return said.startsWith('unknown ')
    ? `Nothing was learned (${said.slice('unknown '.length)}): the payment is polled on.`
    : `The partner says: ${said}`;
}

/** Everything about one payment. */
export function paymentStory(detail: PaymentDetail): string {
  const { payment, attempts, audit, pending_close, partner_held } = detail;
  const { next_step: _next, open_case, ...shown } = payment;
  const rows = Object.entries({ ...shown, next_step: nextOf(payment) });
  const waiting = [
    payment.paused && 'It is paused: nothing is sent until an operator resumes it.',
    open_case !== null &&
      `${open_case.opened_by} opened the case ${open_case.case_id} (${open_case.reason_code}): ${open_case.note}`,
    partner_held !== null &&
      `It waits, because calls to ${payment.partner_id} are held back: ${partner_held}`,
    pending_close !== null &&
      `${pending_close.requested_by} asked to close it: ${pending_close.reason}`,
  ].filter((sentence) => sentence !== false);
  return [
    columns(rows.map(([name, value]) => [name, String(value ?? '-')])),
    ...waiting,
    attemptTable(attempts, payment.stage),
    auditTable(audit),
  ].join('\n\n');
}

function attemptTable(attempts: readonly Attempt[], stage: PaymentStage): string {
  // Once a payment has ended, retention or the erasure of a person may have removed its attempts.
  if (attempts.length === 0) {
    return stage === 'ended' ? 'No attempts are kept.' : 'Nothing was tried yet.';
  }
  return inColumns(
    [
      ['TRIED AT', (one) => one.at],
      ['CALL', (one) => one.kind.toUpperCase()],
      ['TIMES', (one) => (one.count === 1 ? 1 : `${one.count} until ${one.last_at}`)],
      ['HTTP', (one) => one.http_status],
      ['RESULT', (one) => one.result],
      ['MS', (one) => one.took_ms],
      ['REQUEST ID', (one) => one.request_id],
      ['ANSWER', (one) => one.body],
    ],
    attempts,
  );
}

// Batches and differences --------------------------------------------------------------------------------------------------------

export const batchTable = ({ batches }: BatchPage): string =>
  inColumns(
    [
      ['BATCH', (one) => one.platform_batch_id],
      ['PARTNER', (one) => one.partner_id],
      ['CUT-OFF', (one) => one.cutoff_at],
      ['CLOSED', (one) => one.closed_at],
      ['PAYMENTS', (one) => one.statement?.count],
      [
        'CENTS',
        (one) => one.statement?.totals.reduce((sum, total) => sum + total.amount_in_cents, 0),
      ],
    ],
    batches,
  );

export function batch(view: BatchView): string {
  const { statement, comparison } = view;
  const rows: Record<string, string> = {
    platform_batch_id: view.platform_batch_id,
    partner_id: view.partner_id,
    opened_at: view.opened_at,
    cutoff_at: view.cutoff_at,
    closed_at: view.closed_at ?? '-',
    count: String(statement.count),
    sha256: statement.sha256,
    compared_at: 'never',
  };
  if (comparison !== null) {
    const { compared_at, actor, method, differences, partner_statement: theirs } = comparison;
    const agrees = theirs?.sha256 === statement.sha256 ? 'the same as ours' : 'not ours';
    rows['compared_at'] =
      `${compared_at}${actor === '' ? '' : ` by ${actor}`}, by ${method}: ${differences} differences`;
    rows['partner_count'] = String(theirs?.count ?? '-');
    rows['partner_sha256'] =
      theirs === null ? '- (it has no statements)' : `${theirs.sha256} (${agrees})`;
  }
  const totals = inColumns(
    [
      ['STATUS', (one) => one.status],
      ['PAYMENTS', (one) => one.count],
      ['CENTS', (one) => one.amount_in_cents],
    ],
    statement.totals,
  );
  return `${columns(Object.entries(rows))}\n\n${totals}`;
}

const DIFFERENCE: readonly Column<OpenDifference>[] = [
  ['DIFFERENCE', (one) => one.difference_id],
  ['BATCH', (one) => one.platform_batch_id],
  ['PAYMENT', (one) => one.platform_payment_id],
  ['KIND', (one) => one.kind],
  ['HERE', (one) => one.here],
  ['THERE', (one) => one.there],
  ['FOUND', (one) => one.found_at],
  ['RESOLVED', (one) => one.resolution],
];

export const oneDifference = (one: OpenDifference): string => inColumns(DIFFERENCE, [one]);

export const differencePage = ({ differences, next_cursor }: DifferencePage): string =>
  inColumns(DIFFERENCE, differences) + more(next_cursor);

export function differenceSummary({ ages, ...totals }: DifferenceSummary): string {
  const byAge = inColumns(
    [
      ['AGE', (one) => one.age],
      ['OPEN', (one) => one.open],
      ['CENTS', (one) => one.value_at_risk_in_cents],
    ],
    ages,
  );
  const rows = Object.entries(totals).map(([name, value]) => [name, String(value ?? '-')]);
  return `${columns(rows)}\n\n${byAge}`;
}

export function reconciliation(result: Reconciliation): string {
  const hint = result.file_needed === undefined ? '' : `\n${result.file_needed}`;
  if (result.differences.length === 0) {
    return `Both sides agree on ${result.compared} payments (by ${result.method}).${hint}`;
  }
  const found = inColumns(
    [
      ['PAYMENT', (one) => one.platform_payment_id],
      ['DIFFERENCE', (one) => one.kind],
      ['HERE', (one) => one.here],
      ['THERE', (one) => one.there],
    ],
    result.differences,
  );
  return `${found}${hint}`;
}

// People, operators, the audit ---------------------------------------------------------------------------------------------------

export function person(found: Person): string {
  const records = inColumns(
    [
      ['PARTNER', (one) => one.partner_id],
      ['NAME', (one) => `${one.first_name} ${one.last_name}`],
      ['E-MAIL', (one) => one.email],
      ['PHONE', (one) => one.phone_number],
      ['ERASED AFTER', (one) => one.erase_after],
    ],
    found.records,
  );
  const saved =
    found.saved_methods === 0
      ? ''
      : `\n\nA payment processor keeps methods that they saved, for ${found.saved_methods} accounts.`;
  return `${records}${saved}\n\n${paymentTable(found.payments)}`;
}

export function erased({ customers, kept_for_payments, saved_methods }: PersonErasure): string {
  const kept =
    kept_for_payments === 0
      ? ''
      : ` ${kept_for_payments} kept until their payments have ended: run this again then.`;
  const saved =
    saved_methods === 0 ? '' : ` Methods saved for ${saved_methods} accounts are being deleted.`;
  return `Erased ${customers} records.${saved}${kept}`;
}

export const operatorTable = ({
  operators,
}: {
  readonly operators: readonly OperatorView[];
}): string =>
  inColumns(
    [
      ['OPERATOR', (one) => one.operator_id],
      ['NAME', (one) => one.name],
      ['ROLE', (one) => one.role],
      ['STATE', (one) => (one.disabled_at === null ? 'active' : 'disabled')],
      ['KEYS', keysOf],
    ],
    operators,
  );

export const oneOperator = (view: OperatorView): string => operatorTable({ operators: [view] });

function keysOf({ keys }: OperatorView): string | undefined {
  const valid = keys
    .filter((key) => key.revoked_at === null)
    .map(({ key_id, expires_at }) =>
      expires_at === null ? key_id : `${key_id} until ${expires_at}`,
    );
  return valid.length === 0 ? undefined : valid.join(' ');
}

export const operatorKey = (grant: OperatorKeyGrant): string =>
  `${columns([
    ['operator_key', grant.operator_key],
    ['key_id', grant.key_id],
    ['expires', grant.expires_at ?? 'never'],
  ])}\nThe key is not shown again; it signs in to the console, and goes into DUEBRIDGE_ADMIN_KEY of the command line.`;

const auditTable = (entries: readonly AuditEntry[]): string =>
  inColumns(
    [
      ['AT', (one) => one.at],
      ['ACTOR', (one) => one.actor],
      ['EVENT', (one) => one.event],
      [
        'DETAIL',
        (one) =>
          Object.entries(one.detail)
            .map(([name, value]) => `${name}=${value}`)
            .join(' '),
      ],
    ],
    entries,
  );

export const auditPage = ({ entries, next_cursor }: AuditPage): string =>
  auditTable(entries) + more(next_cursor);
