/**
 * The domains whose pages show the buttons of wallets: the platform's own and those of a partner's sites, as processors want to know them
 * (Apple asks for each page around the button).
 */
import type { WalletDomain } from '@duebridge/contract';
import { messageOf } from '@duebridge/runtime';
import type { Partner } from '../partners/registry.ts';
import type { FundingAdapter } from './adapter.ts';

/** Registers them with every processor that has wallets, and says for each what is still missing. May be repeated. */
export async function registerDomains(
  adapters: readonly FundingAdapter[],
  { origins }: Pick<Partner, 'origins'>,
  publicUrl: string | undefined,
): Promise<WalletDomain[]> {
  const urls = [...(publicUrl === undefined ? [] : [publicUrl]), ...origins];
  const hosts = new Set(urls.map((url) => new URL(url).hostname));
  const found: WalletDomain[] = [];
  for (const adapter of adapters) {
    if (adapter.registerDomain === undefined) continue;
    for (const domain of hosts) {
      const problem = await adapter.registerDomain(domain).catch(messageOf);
      found.push({ adapter: adapter.name, domain, problem: problem ?? null });
    }
  }
  return found;
}
