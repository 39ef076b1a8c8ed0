/**
 * Acme Water, as tests in a browser need it: its kit with accounts that owe something, registered at a platform that serves the built
 * pages, and what the demo's site has to know to be its site.
 */
import { pathToFileURL } from 'node:url';
import type { Balance } from '@duebridge/contract';
import type { BothSides } from '../support/both-sides.ts';
import { call } from '../support/customer.ts';

const KEY = 'the-key-that-the-biller-chose';

export type Biller = Awaited<ReturnType<typeof startBiller>>;

/** Starts both sides. `due`: what each account owes, in dollars; `ports`: of its sites on this machine, the demo's first. */
export async function startBiller(
  sides: BothSides,
  dist: string,
  due: Readonly<Record<string, string>>,
  ports: readonly number[],
  config: Parameters<BothSides['platform']>[0] = {},
) {
  const partner = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [KEY] },
    billers: [{ biller_id: 'acme', max_amount_in_cents: 100_000 }],
  });
  const accounts = Object.entries(due).map(
    ([account, amount]) => `acme,${account},active,Ada,Lovelace,${amount},2099-12-01`,
  );
  await partner.importAccounts(
    ['biller_id,account_id,status,first_name,last_name,amount_due,due_date', ...accounts].join(
      '\n',
    ),
  );
  const platform = await sides.platform({ webDist: pathToFileURL(`${dist}/`), ...config });
  const client = await platform.register({
    partner_id: 'acme',
    name: 'Acme Water',
    kind: 'biller',
    biller_id: 'acme',
    support_contact: '+1 555 0100',
    base_url: partner.server.url,
    origins: ports.map((port) => `http://localhost:${port}`),
    auth: { method: 'key', header: 'x-api-key', key: KEY },
  });
  const balanceOf = async (account_id: string): Promise<Balance> => {
    const url = `${partner.server.url}/biller/acme/account/${account_id}/balance`;
    const { status, body } = await call<Balance>('GET', url, { 'x-api-key': KEY });
    return status === 200 ? body : {};
  };
  return {
    partner,
    platform,
    client,
    siteOptions: {
      port: ports[0] ?? 0,
      platformUrl: client.platformUrl,
      clientId: client.client_id,
      apiKey: client.api_key,
      partnerId: 'acme',
      billerName: 'Acme Water',
      accounts: Object.keys(due).map((account_id) => ({
        account_id,
        first_name: 'Ada',
        last_name: 'Lovelace',
        email: `${account_id}@example.com`,
        phone_number: '+15125550100',
        address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
      })),
      readBalance: ({ account_id }: { readonly account_id: string }) => balanceOf(account_id),
    },
    /** What an account owes now. */
    due: async (account_id: string) => (await balanceOf(account_id)).amount_due_in_cents,
  };
}
