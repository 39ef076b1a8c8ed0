/**
 * Writes packages/platform/src/funding/stripe-schemas.json: JSON Schemas of the part of Stripe's API that our adapter uses, against
 * which the tests check the adapter and the imitation of Stripe.
 *
 *   node scripts/stripe-schemas.ts
 *
 * Run it after every update of the package `stripe`. That package (MIT) is generated from Stripe's OpenAPI description, and its file
 * OPENAPI_VERSION names the revision. The schemas are taken from its types mechanically: nothing is written by hand except which
 * operations, events and objects we use. An object that is not listed is cut out, and no value is valid in its place; so whoever uses
 * another one has to list it first.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  ChainNodeParser,
  createFormatter,
  createParser,
  createProgram,
  DEFAULT_CONFIG,
  LiteralType,
  NeverType,
  SchemaGenerator,
  UnionType,
  type CompletedConfig,
  type Schema,
  type SubNodeParser,
} from 'ts-json-schema-generator';

/** The operations: the type of their parameters and the type of their answer. */
const OPERATIONS: Readonly<Record<string, readonly [params: string | null, answer: string]>> = {
  'POST /v1/payment_intents': ['PaymentIntentCreateParams', 'PaymentIntent'],
  'GET /v1/payment_intents': ['PaymentIntentListParams', 'PaymentIntent[]'],
  'GET /v1/payment_intents/:id': ['PaymentIntentRetrieveParams', 'PaymentIntent'],
  'POST /v1/payment_intents/:id/confirm': ['PaymentIntentConfirmParams', 'PaymentIntent'],
  'POST /v1/payment_intents/:id/capture': ['PaymentIntentCaptureParams', 'PaymentIntent'],
  'POST /v1/payment_intents/:id/cancel': ['PaymentIntentCancelParams', 'PaymentIntent'],
  'POST /v1/setup_intents': ['SetupIntentCreateParams', 'SetupIntent'],
  'GET /v1/setup_intents/:id': ['SetupIntentRetrieveParams', 'SetupIntent'],
  'POST /v1/setup_intents/:id/confirm': ['SetupIntentConfirmParams', 'SetupIntent'],
  'POST /v1/setup_intents/:id/cancel': ['SetupIntentCancelParams', 'SetupIntent'],
  'POST /v1/customers': ['CustomerCreateParams', 'Customer'],
  'DELETE /v1/customers/:id': ['CustomerDeleteParams', 'DeletedCustomer'],
  'POST /v1/refunds': ['RefundCreateParams', 'Refund'],
};

/** The webhooks that the adapter reads, and one that it ignores. */
const EVENTS: Readonly<Record<string, string>> = {
  'payment_intent.amount_capturable_updated': 'PaymentIntentAmountCapturableUpdatedEvent',
  'payment_intent.succeeded': 'PaymentIntentSucceededEvent',
  'payment_intent.payment_failed': 'PaymentIntentPaymentFailedEvent',
  'payment_intent.requires_action': 'PaymentIntentRequiresActionEvent',
  'payment_intent.processing': 'PaymentIntentProcessingEvent',
  'payment_intent.canceled': 'PaymentIntentCanceledEvent',
  'setup_intent.requires_action': 'SetupIntentRequiresActionEvent',
  'setup_intent.succeeded': 'SetupIntentSucceededEvent',
  'setup_intent.setup_failed': 'SetupIntentSetupFailedEvent',
  'setup_intent.canceled': 'SetupIntentCanceledEvent',
  'charge.dispute.created': 'ChargeDisputeCreatedEvent',
  'charge.dispute.closed': 'ChargeDisputeClosedEvent',
  'charge.refunded': 'ChargeRefundedEvent',
  'customer.created': 'CustomerCreatedEvent',
};

/** Every error has this form; the description uses the same one for the last error of an intent. */
const ERROR = 'PaymentIntent.LastPaymentError';

/** Further objects that occur in the requests and answers. */
const PARTS = [
  'Charge',
  'Charge.BillingDetails',
  'Charge.FraudDetails',
  'Charge.PaymentMethodDetails',
  'Charge.PaymentMethodDetails.Card',
  'Customer.InvoiceSettings',
  'Dispute',
  'Dispute.Evidence',
  'Dispute.Evidence.EnhancedEvidence',
  'Dispute.EvidenceDetails',
  'Dispute.EvidenceDetails.EnhancedEligibility',
  'Event.Request',
  'Metadata',
  'MetadataParam',
  'PaymentIntent.NextAction',
  'PaymentIntent.NextAction.RedirectToUrl',
  'PaymentIntent.NextAction.UseStripeSdk',
  'SetupIntent.LastSetupError',
  'SetupIntent.NextAction',
  'SetupIntent.NextAction.RedirectToUrl',
  'SetupIntent.NextAction.UseStripeSdk',
  'SetupIntentCreateParams.PaymentMethodOptions',
  'SetupIntentCreateParams.PaymentMethodOptions.UsBankAccount',
];

const stripe = join(import.meta.dirname, '../node_modules/stripe');
const text = (file: string): string => readFileSync(join(stripe, file), 'utf8').trim();
const resources = [
  'PaymentIntents',
  'SetupIntents',
  'Charges',
  'Customers',
  'Disputes',
  'Events',
  'Refunds',
];
const target = join(import.meta.dirname, '../packages/platform/src/funding/stripe-schemas.json');

const roots = new Set<string>([
  ERROR,
  ...Object.values(EVENTS),
  ...Object.values(OPERATIONS).flatMap(([params, answer]) =>
    [params, answer.replace('[]', '')].filter((name) => name !== null),
  ),
]);
const followed = new Set([
  'Array',
  ...roots,
  ...PARTS,
  ...Object.values(EVENTS).map((name) => `${name}.Data`),
]);

const config: CompletedConfig = {
  ...DEFAULT_CONFIG,
  path: join(stripe, `esm/resources/{${resources.join(',')}}.d.ts`),
  expose: 'all',
  jsDoc: 'none',
  skipTypeCheck: true,
};
const program = createProgram(config);
const checker = program.getTypeChecker();

/** A reference to a type, as far as it is read here. */
type Reference = Parameters<SubNodeParser['supportsNode']>[0] & {
  readonly typeName: Parameters<typeof checker.getSymbolAtLocation>[0];
  readonly typeArguments?: readonly Reference[];
};

function isReference(node: Parameters<SubNodeParser['supportsNode']>[0]): node is Reference {
  return 'typeName' in node;
}

/** The name of a type from the top of its file, and how it is declared. */
function named({ typeName }: Reference): { readonly name: string; readonly declaration: string } {
  const found = checker.getSymbolAtLocation(typeName);
  if (found === undefined) throw new Error(`${typeName.getText()} is not known`);
  const symbol = (found.flags & ALIAS) === 0 ? found : checker.getAliasedSymbol(found);
  return {
    name: checker.getFullyQualifiedName(symbol).replace(/^".*"\./, ''),
    declaration: symbol.declarations?.[0]?.getText() ?? '',
  };
}
/** TypeScript's SymbolFlags.Alias: an import. */
const ALIAS = 2_097_152;

/** An object that is not listed: no object is valid in its place. */
const cutOut: SubNodeParser = {
  supportsNode(node) {
    if (!isReference(node)) return false;
    const { name, declaration } = named(node);
    return !followed.has(name) && /^(export |declare )*(interface|class) /.test(declaration);
  },
  createType: () => new LiteralType('cut out'),
};

/** The library leaves enumerations open, and may tell what an event changed; ours have the described values, and tell no changes. */
const unused: SubNodeParser = {
  supportsNode: (node) =>
    isReference(node) && ['OtherString', 'Partial'].includes(named(node).name),
  createType: () => new NeverType(),
};

const parser = createParser(program, config, (chain) => {
  /** The form encoding has an empty value in the place of null. */
  const emptyable: SubNodeParser = {
    supportsNode: (node) => isReference(node) && named(node).name === 'Emptyable',
    createType(node, context) {
      const [of] = isReference(node) ? (node.typeArguments ?? []) : [];
      if (of === undefined || !(chain instanceof ChainNodeParser))
        throw new Error('Emptyable of nothing');
      return new UnionType([new LiteralType(''), chain.createType(of, context)]);
    },
  };
  chain.addNodeParser(emptyable).addNodeParser(unused).addNodeParser(cutOut);
});
const definitions: Record<string, Schema> = {};
for (const root of [...roots].toSorted()) {
  // A formatter remembers types that refer to each other incompletely: each root needs its own.
  const generator = new SchemaGenerator(program, parser, createFormatter(config), config);
  Object.assign(definitions, generator.createSchema(root).definitions);
}

const list = (of: string): object => ({
  type: 'object',
  properties: {
    object: { const: 'list' },
    url: { type: 'string' },
    has_more: { type: 'boolean' },
    data: { type: 'array', items: { $ref: `#/definitions/${of}` } },
  },
  required: ['object', 'url', 'has_more', 'data'],
  additionalProperties: false,
});
const ref = (name: string): object =>
  name.endsWith('[]') ? list(name.slice(0, -2)) : { $ref: `#/definitions/${name}` };
const schemas = {
  source: `Stripe's OpenAPI description ${text('OPENAPI_VERSION')} (MIT), through the types of the npm package stripe ${text('VERSION')} (MIT)`,
  operations: Object.fromEntries(
    Object.entries(OPERATIONS).map(([route, [params, answer]]) => [
      route,
      { params: params === null ? false : ref(params), answer: ref(answer) },
    ]),
  ),
  events: Object.fromEntries(Object.entries(EVENTS).map(([type, name]) => [type, ref(name)])),
  error: ref(ERROR),
  definitions,
};
/** One schema a line, so that a difference can be read. */
const lines = Object.entries(schemas).map(([part, value]) => {
  if (typeof value !== 'object') return `${JSON.stringify(part)}: ${JSON.stringify(value)}`;
  const entries = Object.entries(value).map(
    ([name, one]) => `  ${JSON.stringify(name)}: ${JSON.stringify(one)}`,
  );
  return `${JSON.stringify(part)}: {\n${entries.join(',\n')}\n}`;
});
// The library says number for what the description calls integer: every number of these objects is an amount, a time or a count.
const json = `{\n${lines.join(',\n')}\n}\n`.replaceAll('"number"', '"integer"');
writeFileSync(target, json);
console.log(`${Object.keys(definitions).length} schemas, ${json.length} bytes`);
