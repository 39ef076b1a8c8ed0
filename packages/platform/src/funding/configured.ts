/**
 * The funding adapters that a deployment offers: `DUEBRIDGE_FUNDING` names them (decision 110).
 *
 * enters: the configuration.  leaves: the adapters in that order, and whether the sandbox is on offer. Throws ConfigurationError for
 *         a name that is none, a module without an adapter, two adapters with one name or one method, and a method that no customer
 *         could be offered.
 */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { compileCheck, OfferedMethod } from '@duebridge/contract';
import { ConfigurationError, messageOf } from '@duebridge/runtime';
import type { AdapterMethod, CollectedElsewhere, FundingAdapter } from './adapter.ts';
import type { StripeSettings } from './stripe.ts';

/** The funding part of the configuration. */
export interface FundingConfig {
  /** `sandbox`, `stripe`, or the path of a module whose default export is an adapter; default sandbox alone. */
  readonly funding?: readonly string[] | undefined;
  /** Additional adapters, for a program that starts the platform itself. */
  readonly fundingAdapters?: readonly (FundingAdapter | CollectedElsewhere)[];
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
    adapters.push(await (name === 'stripe' ? openStripe(config.stripe) : load(name)));
  }
  for (const given of config.fundingAdapters ?? []) {
    const adapter = adapterOf(given);
    if (adapter === undefined) throw new ConfigurationError('a given funding adapter is none');
    adapters.push(adapter);
  }
  const seen = new Set<string>();
  for (const adapter of adapters) {
    if (!/^[a-z][a-z0-9_]{0,31}$/.test(adapter.name) || adapter.name === 'sandbox') {
      throw new ConfigurationError(
        `a funding adapter is named ${JSON.stringify(adapter.name)}: use lower-case letters, digits and _, and not sandbox`,
      );
    }
    const methods = adapter.methods();
    if (!Array.isArray(methods)) {
      throw new ConfigurationError(
        `methods() of the funding adapter ${adapter.name} must return an array, at once`,
      );
    }
    for (const method of methods) {
      const problem = problemOf(method, adapter);
      if (problem === undefined) continue;
      throw new ConfigurationError(
        `method ${JSON.stringify(method.funding_method)} of the funding adapter ${adapter.name} ${problem}`,
      );
    }
    const own = [adapter.name, ...methods.map((method) => `method ${method.funding_method}`)];
    for (const one of own) {
      if (seen.has(one) || one.startsWith('method sandbox_')) {
        throw new ConfigurationError(`two funding adapters have ${one}: each needs its own`);
      }
      seen.add(one);
    }
  }
  return { adapters, offersSandbox: names.includes('sandbox') };
}

async function openStripe(settings: StripeSettings | undefined): Promise<FundingAdapter> {
  if (settings === undefined) {
    throw new ConfigurationError(
      'DUEBRIDGE_FUNDING names stripe: set DUEBRIDGE_STRIPE_SECRET_KEY, DUEBRIDGE_STRIPE_PUBLISHABLE_KEY and DUEBRIDGE_STRIPE_WEBHOOK_SECRET',
    );
  }
  // Its library has 218 modules, which a platform without Stripe need not load.
  const { stripeAdapter } = await import('./stripe.ts');
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
  const adapter = adapterOf(made);
  if (adapter !== undefined) return adapter;
  throw new ConfigurationError(
    `the default export of ${name} is not a funding adapter: it needs name, methods, ${ACTS.join(', ')}; or name and methods, all of them collected elsewhere`,
  );
}

const ACTS = ['authorize', 'capture', 'void', 'refund'] as const;

/** The adapter, with acts that are never asked for where all its methods are collected elsewhere; undefined for what is none. */
function adapterOf(given: unknown): FundingAdapter | undefined {
  const parts = (given ?? {}) as { readonly [Part in keyof FundingAdapter]?: unknown };
  const { name, methods } = parts;
  if (typeof name !== 'string') return undefined;
  const isWhole = ACTS.every((act) => typeof parts[act] === 'function');
  if (isWhole && typeof methods === 'function') return given as FundingAdapter;
  if (!Array.isArray(methods) || methods.length === 0) return undefined;
  const fixed: readonly AdapterMethod[] = methods;
  if (!fixed.every(({ collection }) => collection === 'elsewhere')) return undefined;
  const never = (): never => {
    throw new Error(`the funds of ${name} are collected elsewhere`);
  };
  return {
    name,
    methods: () => fixed,
    authorize: never,
    capture: never,
    void: never,
    refund: never,
  };
}

const methodCheck = compileCheck(OfferedMethod);

/**
 * What is wrong with a method, as the end of a sentence. A module in JavaScript meets no compiler: without `sandbox` its method would be
 * offered in neither mode, silently, and without a label the customer would see an empty choice.
 */
function problemOf(method: AdapterMethod, adapter: FundingAdapter): string | undefined {
  const [wrong] = methodCheck.problems(method, '');
  if (wrong !== undefined) return `is not right: ${wrong.path.slice(1)} ${wrong.problem}`;
  const { min_amount_in_cents: least = 0, max_amount_in_cents: most = Infinity } = method;
  if (least > most)
    return `is offered for no amount: min_amount_in_cents ${least} is above max_amount_in_cents ${most}`;
  return method.asks === true && adapter.page === undefined
    ? 'asks for details, and the adapter has no page'
    : undefined;
}
