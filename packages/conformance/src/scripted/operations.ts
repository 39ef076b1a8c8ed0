/**
 * The operations of the scripted partner: a call enters, the answer of a correct partner leaves, unless a behaviour decides otherwise
 * on the way.
 *
 *   receive -> authorize -> validate -> find or store -> answer
 */
import { isUtf8 } from 'node:buffer';
import {
  compileCheck,
  JsonProblem,
  parseJson,
  partnerRoutes,
  PaymentInstruction,
  Refusal,
  type Detail,
  type Json,
  type Route,
} from '@duebridge/contract';
import type { openAuthenticator } from './authenticator.ts';
import type { Answer, Behaviour, Call, Reply } from './behaviour.ts';
import { mediaTypeOf } from './listeners.ts';
import type { Book } from './state.ts';

/** What the operations work on. */
export interface Inside {
  readonly book: Book;
  readonly behaviour: Required<Behaviour>;
  readonly authenticator: ReturnType<typeof openAuthenticator>;
}

/** The answer of a correct partner, with the hooks called along the way. Throws Refusal. */
export async function respond(
  inside: Inside,
  call: Call,
  body: Buffer | undefined,
  problem: Refusal | undefined,
): Promise<Reply> {
  const { behaviour, book, authenticator } = inside;
  const reply = await behaviour.receive(call, book);
  if (reply !== undefined) return reply;
  if (problem !== undefined) throw problem;
  if (call.operation === 'unknown') throw new Refusal('NOT_FOUND');
  if (call.operation === 'access_token') return authenticator.grant(call, body);

  const judged = authenticator.judge(call, partnerRoutes[call.operation].scope);
  const refusal = behaviour.authorize(call, judged, book);
  if (refusal !== undefined) throw refusal;
  const wrongParams = PARAMS[call.operation]?.problems(call.params, 'path') ?? [];
  if (wrongParams.length > 0) throw new Refusal('INVALID_REQUEST', { details: wrongParams });

  book.settle();
  switch (call.operation) {
    case 'get_account':
    case 'get_balance':
      return readAccount(book, call);
    case 'put_account_payment':
      return await putPayment(inside, call, body);
    case 'get_account_payment':
    case 'get_payment':
      return readPayment(book, call);
    default:
      throw new Refusal('NOT_FOUND');
  }
}

function readAccount(book: Book, call: Call): Answer {
  const { biller_id = '', account_id = '' } = call.params;
  const account = book.account(biller_id, account_id);
  if (account === undefined) throw new Refusal('ACCOUNT_NOT_FOUND');
  if (call.operation === 'get_balance') return { status: 200, body: { ...account.balance } };
  const { status, balance, payment_rules } = account;
  return {
    status: 200,
    body: {
      biller_id,
      account_id,
      status,
      balance,
      payment_rules,
    },
  };
}

async function putPayment(inside: Inside, call: Call, body: Buffer | undefined): Promise<Answer> {
  const { behaviour, book } = inside;
  const instruction = readInstruction(inside, call, body);
  const { biller_id = '', account_id = '', platform_payment_id = '' } = call.params;
  const key = behaviour.key(call, instruction, book);
  let payment = book.find(key);
  await behaviour.beforeStore(call, book);
  if (payment === undefined) {
    const { platform_batch_id, amount_in_cents } = instruction;
    payment = book.draft({
      key,
      platform_payment_id,
      platform_batch_id,
      biller_id,
      account_id,
      amount_in_cents,
    });
    behaviour.born(payment, call, book);
    book.store(payment);
  } else behaviour.repeat(payment, call, book);
  return { status: 200, body: book.record(payment) };
}

/** Validates the body of a PUT. A behaviour may accept an invalid one; missing fields then get usable defaults. */
function readInstruction(
  { behaviour }: Inside,
  call: Call,
  body: Buffer | undefined,
): PaymentInstruction {
  if (mediaTypeOf(call.headers) !== 'application/json') throw new Refusal('UNSUPPORTED_MEDIA_TYPE');
  if (body === undefined) throw new Refusal('PAYLOAD_TOO_LARGE');
  let problems: readonly Detail[] = [];
  try {
    if (!isUtf8(body)) throw new JsonProblem('the text is not UTF-8');
    call.body = parseJson(call.text);
    problems = INSTRUCTION.problems(call.body, 'body');
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    problems = [{ path: 'body', problem: error.message }];
  }
  const fields = isObject(call.body) ? call.body : {};
  const { platform_payment_id = '' } = call.params;
  const echoed = fields['platform_payment_id'];
  if (problems.length === 0 && echoed !== undefined && echoed !== platform_payment_id) {
    problems = [{ path: 'body.platform_payment_id', problem: 'must equal the id in the path' }];
  }
  problems = behaviour.validate(call, problems);
  if (problems.length > 0) throw new Refusal('INVALID_REQUEST', { details: problems });
  const { amount_in_cents = null, platform_batch_id } = fields;
  return {
    // Digits that are no integer are an object of their own here.
    amount_in_cents: Number(JSON.parse(JSON.stringify(amount_in_cents))) || 0,
    platform_batch_id: typeof platform_batch_id === 'string' ? platform_batch_id : '',
  };
}

function readPayment(book: Book, call: Call): Answer {
  const { biller_id, account_id, platform_payment_id = '' } = call.params;
  const payment =
    book.find(platform_payment_id) ??
    // Behaviours that use another key still read by the id that the caller knows: the newest payment wins.
    book.payments().findLast((entry) => entry.platform_payment_id === platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  if (call.operation === 'get_account_payment') {
    const here = payment.biller_id === biller_id && payment.account_id === account_id;
    if (!here) throw new Refusal('PAYMENT_NOT_FOUND');
  }
  return { status: 200, body: book.record(payment) };
}

const INSTRUCTION = compileCheck(PaymentInstruction);

const PARAMS = Object.fromEntries(
  Object.values<Route>(partnerRoutes).map(({ id, params }) => [id, params && compileCheck(params)]),
);

function isObject(value: Json | undefined): value is Readonly<Record<string, Json>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
