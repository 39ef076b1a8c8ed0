/**
 * The commands that ask a running platform, over the operations of its admin API (decision 32). What a command takes follows from its
 * operation and from words.ts; what it prints for people is in output.ts.
 *
 * A table: one line per command.
 */
import {
  OperatorReason,
  platformAdminRoutes as routes,
  type PartnerTest,
  type PartnerView,
  type ReviewClose,
} from '@duebridge/contract';
import {
  auditVerifyLine,
  CommandError,
  exitCodes,
  facts,
  line,
  print,
  tableOf,
  type CommandLine,
  type CommandTable,
} from '@duebridge/runtime/cli';
import { Option } from 'commander';
import { conformanceReport } from './conformance.ts';
import { moneyLines } from './money.ts';
import * as output from './output.ts';
import { reconcile } from './reconcile.ts';
import { WORDS, TARGET } from './words.ts';

const PARTNER_ID = {
  partner_id: { flags: '--id <id>', help: 'its id on the platform, such as springfield-water' },
};
/** The commands of keys name the partner by an option. */
const OF_PARTNER = { partner_id: { flags: '--partner <id>', help: 'whose' } };
const changesWhy = { ...routes.change_partner, body: OperatorReason };

/** A key is stored as a digest alone. */
const keyGrant = (grant: object): string => `${facts(grant)}\nThe key is not shown again.`;
const closed = output.done<ReviewClose>(({ payment }) => output.payments(payment));
const partnerLines: readonly CommandLine[] = [
  line('partner add', routes.add_partner, facts, {
    fields: PARTNER_ID,
    defaults: { origins: [] },
    // Tested at once, so that this command finds a typo in an address or a key, not the first customer.
    run: async ({ terminal, request, options, ask }) => {
      const view = await ask<PartnerView>(request.method, request.path, request.body);
      const test = await ask<PartnerTest>('POST', `${request.path}/${view.partner_id}/test`);
      print(terminal, options, { ...view, test }, () => facts({ ...view, finding: test.finding }));
    },
  }),
  line(
    'partner list',
    routes.list_partners,
    tableOf<PartnerView>(
      'partner_id',
      'mode',
      'name',
      'kind',
      'biller_id',
      'base_url',
      'pause_reason',
    ),
  ),
  line('partner show', routes.get_partner, facts),
  line('partner change', routes.change_partner, facts, {
    help: 'change the options that are given; the others stay',
    without: ['paused'],
  }),
  line('partner direct', changesWhy, facts, {
    help: 'call a partner without certificate, authority and proxy again',
    fixed: { connection: null },
  }),
  line('partner domains', routes.register_domains, tableOf()),
  line('partner pause', changesWhy, facts, {
    help: 'send nothing to a partner until it is resumed; payments wait, none fails',
    fixed: { paused: true },
  }),
  line('partner resume', changesWhy, facts, {
    help: 'send to a partner again',
    fixed: { paused: false },
  }),
  line('partner test', routes.test_partner, facts, {
    run: async ({ terminal, request, options, values, ask }) => {
      const test = await ask<PartnerTest>(request.method, request.path);
      print(terminal, options, test, () => facts(test));
      const [id] = values;
      if (!test.reachable) throw new CommandError(`${id} does not answer`, exitCodes.failed);
      if (test.authorized !== true) {
        throw new CommandError(`${id} cannot be used as it is registered`, exitCodes.failed);
      }
    },
  }),
  line('partner health', routes.get_partner_health, facts),
  line('partner answers', routes.list_answers, tableOf()),
  line('partner report', routes.get_conformance_report, facts, {
    help: 'show the latest conformance report of a partner, or upload one',
    options: [
      new Option('--file <file>', 'upload what `duebridge conform partner TARGET --json` wrote'),
    ],
    run: conformanceReport,
  }),
  line('key issue', routes.issue_key, keyGrant, {
    args: [],
    fields: {
      ...OF_PARTNER,
      client_id: {
        flags: '--client <client_id>',
        help: 'issue a second key for this client, for a rotation',
      },
    },
  }),
  line('key list', routes.list_keys, tableOf(), { args: [], fields: OF_PARTNER }),
  line('key revoke', routes.revoke_key, facts, {
    args: ['key_id'],
    fields: OF_PARTNER,
  }),
  line('key revoke-access', routes.revoke_client_access, facts, {
    args: ['client_id'],
    fields: OF_PARTNER,
  }),
];

const paymentLines: readonly CommandLine[] = [
  line('payments', routes.list_payments, output.payments),
  // Values that identify a person or an account are not put into a URL.
  line('payment find', routes.search_payments, output.payments, {
    help: 'find payments by account, e-mail address and what `payments` takes; audited',
  }),
  line('export', routes.export_payments, String, {
    help: 'write payments to standard output, as CSV',
  }),
  line('payment show', routes.get_admin_payment, output.paymentStory, {
    help: 'everything about one payment: what was tried, what came back, who did what',
  }),
  line('payment unmask', routes.unmask_payment, facts),
  line('payment settle', routes.settle_funds, closed, {
    help: 'settle the funds of an ended payment that nothing else settles',
  }),
  line('payment resume', routes.resume_payment, output.payments),
  line('payment pause', routes.pause_payment, output.payments),
  line('payment withdraw', routes.withdraw_payment, output.payments),
  line('payment poll', routes.poll_payment, facts),
  line('review close', routes.close_review, closed, {
    help: 'close a payment that the partner refused and does not have; with --outcome, any in review or paused',
  }),
  line('asks', routes.list_asks, tableOf()),
];

const batchLines: readonly CommandLine[] = [
  line('batch', routes.list_batches, output.batches),
  line('batch show', routes.get_batch, output.batch),
  line('batch close', routes.close_batch, output.batch),
  line('differences', routes.list_differences, tableOf(), {
    defaults: { state: 'open' },
    fields: { kind: { help: 'what differs' } },
  }),
  line('resolve', routes.resolve_difference, facts),
  line('reconcile', routes.reconcile_batch, output.reconciliation, {
    help: 'compare a batch with the partner; exit code 1 when they differ',
    options: [
      new Option(
        '--csv <file>',
        "compare with the partner's file: platform_payment_id,status,amount_in_cents",
      ),
    ],
    run: reconcile,
  }),
];

const peopleLines: readonly CommandLine[] = [
  line('person show', routes.show_person, output.person, { args: ['email'] }),
  line('person erase', routes.erase_person, facts, { args: ['email'] }),
  line('operator add', routes.add_operator, output.operators),
  line('operator list', routes.list_operators, output.operators),
  line('operator change', routes.change_operator, output.operators, {
    options: [new Option('--enable', 'accept them again').implies({ disable: false })],
  }),
  line('operator key', routes.issue_operator_key, keyGrant),
  line('operator revoke', routes.revoke_operator_key, output.operators),
  line('audit', routes.list_audit, output.audit),
  auditVerifyLine(routes.verify_audit),
];

export const COMMANDS: CommandTable = {
  lines: [...partnerLines, ...paymentLines, ...batchLines, ...moneyLines, ...peopleLines],
  words: WORDS,
  target: TARGET,
  groups: {
    partner: 'register and list partners',
    key: 'API keys of the token endpoint',
    payment: 'read or act on one payment',
    review: 'payments that wait for an operator',
    person: 'the data held about a person',
    operator: 'the platform’s operators and their roles',
  },
};
