/**
 * The funding adapters that a deployment offers: `DUEBRIDGE_FUNDING` names them (decision 110).
 *
 * enters: the configuration.  leaves: the adapters in that order, and whether the sandbox is on offer. Throws ConfigurationError for
 *         a name that is none, a module without an adapter, and two adapters with one name or one method.
 */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { ConfigurationError, messageOf } from '@duebridge/runtime';
import type { FundingAdapter } from './adapter.ts';
import { adapterOfHolds, type HoldProcessor } from './holds.ts';
import { stripeAdapter, type StripeSettings } from './stripe.ts';

/** The funding part of the configuration. */
export interface FundingConfig {
  /** `sandbox`, `stripe`, or the path of a module whose default export is an adapter or a processor; default sandbox alone. */
  readonly funding?: readonly string[] | undefined;
  /** Additional adapters, for a program that starts the platform itself. */
  readonly fundingAdapters?: readonly (FundingAdapter | HoldProcessor)[];
  readonly stripe?: StripeSettings | undefined;
}

/** Loads the adapters. */
export async function openAdapters(
  config: FundingConfig,
): Promise<{ readonly adapters: readonly FundingAdapter[]; readonly offersSandbox: boolean }> {
  const names = config.funding ?? ['sandbox'];
  const adapters: FundingAdapter[] = [];
  for (const name of names) {
    if (name === 'sandbox') continue;
    adapters.push(name === 'stripe' ? openStripe(config.stripe) : await load(name));
  }
  for (const given of config.fundingAdapters ?? []) adapters.push(adapterOf(given));
  const seen = new Set<string>();
  for (const adapter of adapters) {
    if (!/^[a-z][a-z0-9_]{0,31}$/.test(adapter.name) || adapter.name === 'sandbox') {
      throw new ConfigurationError(
        `a funding adapter is named ${JSON.stringify(adapter.name)}: use lower-case letters, digits and _, and not sandbox`,
      );
    }
    const own = [
      adapter.name,
      ...adapter.methods().map((method) => `method ${method.funding_method}`),
    ];
    for (const one of own) {
      if (seen.has(one) || one.startsWith('method sandbox_')) {
        throw new ConfigurationError(`two funding adapters have ${one}: each needs its own`);
      }
      seen.add(one);
    }
  }
  return { adapters, offersSandbox: names.includes('sandbox') };
}

function openStripe(settings: StripeSettings | undefined): FundingAdapter {
  if (settings === undefined) {
    throw new ConfigurationError(
      'DUEBRIDGE_FUNDING names stripe: set DUEBRIDGE_STRIPE_SECRET_KEY, DUEBRIDGE_STRIPE_PUBLISHABLE_KEY and DUEBRIDGE_STRIPE_WEBHOOK_SECRET',
    );
  }
  return stripeAdapter(settings);
}

/** The adapter of a module: its default export, or what that returns when it is a function. */
async function load(name: string): Promise<FundingAdapter> {
  if (!/^[./]/.test(name)) {
    throw new ConfigurationError(
      `DUEBRIDGE_FUNDING names ${name}: use sandbox, stripe, or the path of a module, such as ./processor.ts`,
    );
  }
  let made: unknown;
  try {
    const module = (await import(pathToFileURL(path.resolve(name)).href)) as { default?: unknown };
    made = module.default;
    if (typeof made === 'function') made = await (made as () => unknown)();
  } catch (error) {
    throw new ConfigurationError(
      `the funding adapter ${name} cannot be loaded: ${messageOf(error)}`,
    );
  }
  if (!has(made, ADAPTER) && !has(made, PROCESSOR)) {
    throw new ConfigurationError(
      `the default export of ${name} is not a funding adapter: it needs name, methods, ${PROCESSOR.join(', ')}; or name, methods, ${ADAPTER.join(', ')}`,
    );
  }
  return adapterOf(made as FundingAdapter | HoldProcessor);
}

const ADAPTER = ['prepare', 'authorize', 'capture', 'void', 'refund'];
const PROCESSOR = ['create', 'read', 'capture', 'release', 'refund'];

function has(made: unknown, acts: readonly string[]): boolean {
  if (typeof made !== 'object' || made === null) return false;
  const parts = new Map<string, unknown>(Object.entries(made));
  return (
    typeof parts.get('name') === 'string' &&
    (typeof parts.get('methods') === 'function' || Array.isArray(parts.get('methods'))) &&
    acts.every((act) => typeof parts.get(act) === 'function')
  );
}

function adapterOf(given: FundingAdapter | HoldProcessor): FundingAdapter {
  return 'prepare' in given ? given : adapterOfHolds(given);
}
