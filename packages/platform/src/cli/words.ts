/** How the fields of the admin API are written at a terminal, where their names and schemas do not say it well enough. */
import { PartnerPaths } from '@duebridge/contract';
import { misused, type Words } from '@duebridge/runtime/cli';

/** The server that the commands ask. */
export const TARGET = { server: 'platform', defaultPort: 4001 } as const;

/** Parses a dollar amount as people write it into cents, without binary fractions. */
function cents(text: string): string {
  const match = /^\$?(\d{1,9})(?:\.(\d{2}))?$/.exec(text.replaceAll(',', ''));
  if (match === null) {
    throw misused(`--amount ${text} is not an amount: give dollars, such as 25 or 25.00`);
  }
  return String(Number(`${match[1]}${match[2] ?? '00'}`));
}

/** Parses a day or a time into an instant; a day that ends a range is included as a whole. */
function instant(text: string, isEnd: boolean): string {
  const day = /^\d{4}-\d{2}-\d{2}$/.test(text);
  const at = Date.parse(day ? `${text}T00:00:00Z` : text);
  if (Number.isNaN(at)) {
    throw misused(
      `${text} is neither a day such as 2026-03-21 nor a time such as 2026-03-21T14:00:00Z`,
    );
  }
  return new Date(day && isEnd ? at + 86_400_000 : at).toISOString();
}

export const WORDS: Words = {
  partner_id: { flags: '--partner <id>', help: 'of one partner' },
  platform_batch_id: { flags: '--batch <id>', help: 'of one batch' },
  platform_payment_id: { flags: '--payment <id>', help: 'of one payment' },
  status: {
    help: 'how it stands; needs_human: in review, paused, late, with open funds or with a case',
  },
  amount_in_cents: {
    flags: '--amount <dollars>',
    help: 'of this amount, such as 25 or 25.00',
    parse: cents,
  },
  from: {
    flags: '--from <day or time>',
    help: 'at or after; a day such as 2026-03-21 is a UTC day',
    parse: (text) => instant(text, false),
  },
  to: {
    flags: '--to <day or time>',
    help: 'before; a day counts with all its hours',
    parse: (text) => instant(text, true),
  },
  account_id: {
    flags: '--account <account_id>',
    help: 'of one account; the audit keeps that you searched',
  },
  email: {
    flags: '--email <address>',
    help: 'of one person; the audit keeps that you searched',
  },
  limit: { flags: '--limit <n>', help: 'maximum number of rows (default 50)' },
  cursor: { help: 'continue from the next_cursor of the previous page' },
  actor: { flags: '--actor <name>', help: 'of one operator, such as ada, or admin-key' },
  event: { help: 'of one kind, such as payment_ended' },
  valid_for_days: { flags: '--days <n>' },
  operator_id: { flags: '--id <id>', help: 'as the audit names them, such as ada' },
  oidc_subject: { flags: '--subject <sub>' },
  disabled: { flags: '--disable' },
  // A partner.
  biller_id: { flags: '--biller, --biller-id <biller_id>', help: 'its biller id; for a biller' },
  biller_names: { flags: '--biller-name <biller_id=name...>' },
  biller_logos: { flags: '--biller-logo <biller_id=file...>', file: 'base64' },
  origins: { flags: '--origin <origin...>' },
  support_contact: { flags: '--support <contact>' },
  colour: { flags: '--colour <#rrggbb>' },
  logo: { file: 'base64' },
  refusals: { flags: '--refusal <code...>' },
  method: { flags: '--auth <method>', help: 'how it protects them' },
  key: { secretIn: 'DUEBRIDGE_PARTNER_KEY', rotates: true },
  client_secret: { secretIn: 'DUEBRIDGE_PARTNER_CLIENT_SECRET', rotates: true },
  certificate: { file: 'text' },
  private_key: { file: 'text' },
  authority: { file: 'text' },
  proxy_url: { secretIn: 'DUEBRIDGE_PARTNER_PROXY' },
  // Path templates of a partner.
  ...Object.fromEntries(
    Object.keys(PartnerPaths.properties).map((name) => [
      name,
      {
        flags: `--path-${name.replaceAll('_', '-')} <template>`,
        help: 'its path, when it differs from the default',
      },
    ]),
  ),
};
