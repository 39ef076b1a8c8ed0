import type {
  PartnerAuth,
  PartnerChange,
  PartnerRegistration,
  PartnerTest,
  PartnerView,
} from '@duebridge/contract';
import {
  columns,
  CommandError,
  exitCodes,
  jsonOption,
  print,
  secretOption,
  table,
  type Terminal,
} from '@duebridge/runtime/cli';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { adminPath, ask } from './ask.ts';

/** `--biller-name lakeside-energy="Lakeside Energy"`, once for each biller of an aggregator. */
const billerNameOption = (): Option =>
  new Option(
    '--biller-name <biller_id=name>',
    'what customers call a biller of an aggregator; may be given again',
  ).argParser((text: string, before: Record<string, string> | undefined) => {
    const [, biller_id, name] = /^([^=]+)=(.+)$/.exec(text) ?? [];
    if (biller_id === undefined || name === undefined)
      throw new InvalidArgumentError('Write it as lakeside-energy="Lakeside Energy".');
    return { ...before, [biller_id]: name };
  });

interface PartnerOptions {
  id: string;
  name: string;
  kind: 'biller' | 'aggregator';
  mode?: 'test' | 'live';
  billerId?: string;
  billerName?: Record<string, string>;
  baseUrl: string;
  auth: 'key' | 'oauth';
  header?: string;
  key?: string;
  tokenUrl?: string;
  clientId?: string;
  clientSecret?: string;
  scope?: string;
  origin?: string[];
  support?: string;
  accountCheck?: 'when_reachable' | 'required' | 'off';
  json?: true;
}

/** `duebridge platform partner …`: registered partners, their addresses and credentials. */
export function addPartners(command: Command, terminal: Terminal): void {
  const partner = command.command('partner').description('register and list partners');
  const add = partner
    .command('add')
    .description('register a partner')
    .requiredOption('--id <id>', 'its id on the platform, such as springfield-water')
    .requiredOption('--name <name>', 'shown to customers')
    .addOption(
      new Option('--kind <kind>', 'one company that is owed, or a host of many')
        .choices(['biller', 'aggregator'])
        .makeOptionMandatory(),
    )
    .addOption(
      new Option('--mode <mode>', 'test: no money moves; live: real money; for good')
        .choices(['test', 'live'])
        .default('test'),
    )
    .option('--biller, --biller-id <biller_id>', 'its biller id; for a biller')
    .addOption(billerNameOption())
    .requiredOption('--base-url <url>', 'where its operations are, prefix included')
    .addOption(
      new Option('--auth <method>', 'how it protects them')
        .choices(['key', 'oauth'])
        .makeOptionMandatory(),
    )
    .option('--header <name>', 'key: the header that carries it')
    .option(
      '--key <key>',
      'key: the value; - reads it from standard input; else DUEBRIDGE_PARTNER_KEY',
    )
    .option('--token-url <url>', 'oauth: the token endpoint')
    .option('--client-id <id>', 'oauth: issued by the partner')
    .option(
      '--client-secret <secret>',
      'oauth: - reads it from standard input; else DUEBRIDGE_PARTNER_CLIENT_SECRET',
    )
    .option('--scope <scopes>', 'oauth: such as "read write"')
    .option('--origin <origin...>', 'sites that may show the payment page')
    .option('--support <contact>', 'where customers get help; printed on receipts')
    .addOption(
      new Option(
        '--account-check <mode>',
        'whether a token waits for the account to be found',
      ).choices(['when_reachable', 'required', 'off']),
    )
    .addOption(jsonOption());
  add.action(async (options: PartnerOptions) => {
    const registration: PartnerRegistration = {
      partner_id: options.id,
      name: options.name,
      kind: options.kind,
      ...(options.mode === undefined ? {} : { mode: options.mode }),
      ...(options.billerId === undefined ? {} : { biller_id: options.billerId }),
      ...(options.billerName === undefined ? {} : { biller_names: options.billerName }),
      base_url: options.baseUrl,
      origins: options.origin ?? [],
      ...(options.support === undefined ? {} : { support_contact: options.support }),
      ...(options.accountCheck === undefined ? {} : { account_check: options.accountCheck }),
      auth: await partnerAuth(add, options, terminal),
    };
    const view = await ask<PartnerView>(terminal, 'POST', '/admin/v1/partners', registration);
    // Test it immediately, so that this command finds a typo in an address or a key, not the first customer.
    const test = await ask<PartnerTest>(
      terminal,
      'POST',
      adminPath`partners/${view.partner_id}/test`,
    );
    print(terminal, options, { ...view, test }, () =>
      [
        `Registered ${view.partner_id} (${view.mode}). Next: duebridge platform key issue --partner ${view.partner_id}`,
        test.finding,
      ].join('\n'),
    );
  });

  partner
    .command('show')
    .description('show a partner, without its secrets')
    .argument('<partner_id>')
    .addOption(jsonOption())
    .action(async (id: string, options: { json?: true }) => {
      const view = await ask<PartnerView>(terminal, 'GET', adminPath`partners/${id}`);
      print(terminal, options, view, () => describePartner(view));
    });

  const change = partner
    .command('change')
    .description('change the options that are given; the others stay')
    .argument('<partner_id>')
    .option('--name <name>', 'shown to customers')
    .option('--base-url <url>', 'where its operations are, prefix included')
    .option('--origin <origin...>', 'sites that may show the payment page; all of them')
    .addOption(billerNameOption())
    .option('--support <contact>', 'where customers get help; printed on receipts')
    .option('--reason <text>', 'kept in the audit')
    .addOption(
      new Option('--auth <method>', 'new credentials, with the options of partner add').choices([
        'key',
        'oauth',
      ]),
    )
    .option('--header <name>', 'key: the header that carries it')
    .option('--key <key>', 'key: the value; - reads it from standard input')
    .option('--token-url <url>', 'oauth: the token endpoint')
    .option('--client-id <id>', 'oauth: issued by the partner')
    .option('--client-secret <secret>', 'oauth: - reads it from standard input')
    .option('--scope <scopes>', 'oauth: such as "read write"')
    .addOption(jsonOption());
  change.action(
    async (id: string, options: Partial<PartnerOptions> & { reason?: string; json?: true }) => {
      const { name, baseUrl, origin, billerName, support, reason, auth } = options;
      const body: PartnerChange = {
        ...(name === undefined ? {} : { name }),
        ...(baseUrl === undefined ? {} : { base_url: baseUrl }),
        ...(origin === undefined ? {} : { origins: origin }),
        ...(billerName === undefined ? {} : { biller_names: billerName }),
        ...(support === undefined ? {} : { support_contact: support }),
        ...(reason === undefined ? {} : { reason }),
        ...(auth === undefined
          ? {}
          : { auth: await partnerAuth(change, { ...options, auth }, terminal) }),
      };
      const view = await ask<PartnerView>(terminal, 'PATCH', adminPath`partners/${id}`, body);
      print(terminal, options, view, () => describePartner(view));
    },
  );

  for (const [verb, paused, description] of [
    ['pause', true, 'send nothing to a partner until it is resumed; payments wait, none fails'],
    ['resume', false, 'send to a partner again'],
  ] as const) {
    partner
      .command(verb)
      .description(description)
      .argument('<partner_id>')
      .requiredOption('--reason <text>', 'kept in the audit')
      .addOption(jsonOption())
      .action(async (id: string, options: { reason: string; json?: true }) => {
        const { reason } = options;
        const body: PartnerChange = { paused, reason };
        const view = await ask<PartnerView>(terminal, 'PATCH', adminPath`partners/${id}`, body);
        print(
          terminal,
          options,
          view,
          () => `${view.partner_id} is ${view.pause_reason ?? 'active'}.`,
        );
      });
  }

  partner
    .command('test')
    .description('test the address and the credentials of a partner; changes nothing there')
    .argument('<partner_id>')
    .addOption(jsonOption())
    .action(async (id: string, options: { json?: true }) => {
      const test = await ask<PartnerTest>(terminal, 'POST', adminPath`partners/${id}/test`);
      print(terminal, options, test, () => `${test.finding} (${test.took_ms} ms)`);
      if (!test.reachable) throw new CommandError(`${id} does not answer`, exitCodes.failed);
      if (test.authorized !== true) {
        throw new CommandError(`${id} cannot be used as it is registered`, exitCodes.failed);
      }
    });

  partner
    .command('list')
    .description('list the partners')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const { partners } = await ask<{ partners: PartnerView[] }>(
        terminal,
        'GET',
        '/admin/v1/partners',
      );
      print(terminal, options, { partners }, () =>
        table(
          ['PARTNER', 'MODE', 'NAME', 'KIND', 'BILLER', 'AUTH', 'BASE URL', 'STATE'],
          partners.map((one) => [
            one.partner_id,
            one.mode,
            one.name,
            one.kind,
            one.biller_id ?? '-',
            one.auth.method,
            one.base_url,
            one.pause_reason ?? 'active',
          ]),
        ),
      );
    });
}

function describePartner(view: PartnerView): string {
  return columns(
    Object.entries(view).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  );
}

/** The credentials of a registration; calls `usage.error` for missing or contradictory ones. */
async function partnerAuth(
  usage: Command,
  options: Pick<
    PartnerOptions,
    'auth' | 'header' | 'key' | 'tokenUrl' | 'clientId' | 'clientSecret' | 'scope'
  >,
  terminal: Terminal,
): Promise<PartnerAuth> {
  if (options.auth === 'key') {
    const key = await secretOption(terminal, options.key, 'DUEBRIDGE_PARTNER_KEY');
    if (options.header === undefined) usage.error('error: --auth key needs --header');
    else if (key === undefined)
      usage.error('error: --auth key needs --key, or DUEBRIDGE_PARTNER_KEY');
    else return { method: 'key', header: options.header, key };
  }
  const { tokenUrl, clientId, scope } = options;
  const secret = await secretOption(
    terminal,
    options.clientSecret,
    'DUEBRIDGE_PARTNER_CLIENT_SECRET',
  );
  if (tokenUrl === undefined) return usage.error('error: --auth oauth needs --token-url');
  if (clientId === undefined) return usage.error('error: --auth oauth needs --client-id');
  if (secret === undefined) {
    return usage.error(
      'error: --auth oauth needs --client-secret, or DUEBRIDGE_PARTNER_CLIENT_SECRET',
    );
  }
  return {
    method: 'oauth',
    token_url: tokenUrl,
    client_id: clientId,
    client_secret: secret,
    ...(scope === undefined ? {} : { scope }),
  };
}
