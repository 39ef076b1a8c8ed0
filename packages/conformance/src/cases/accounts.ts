/** Checks of what a partner says about its accounts (P10 to P14): customers decide by it what to pay, and to whom. */
import { AccountRecord, compileCheck, isDate, type Json } from '@duebridge/contract';
import type { PartnerCase } from '../check/check.ts';
import {
  asObject,
  isJson,
  isRefusal,
  isSuccess,
  parsed,
  show,
  tell,
  type Reply,
} from '../check/http.ts';
import { isTime, NO_BILLER } from '../check/payment-fields.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import { otherCase } from './shared.ts';

const record = compileCheck(AccountRecord);

const p10: PartnerCase = {
  id: 'P10',
  title: 'A known account can be read',
  clauses: ['B1', 'AC1', 'S2'],
  likely_cause: 'The content type is wrong, the object is in an array, or ids are reformatted.',
  async run(t) {
    const reply = await t.readAccount();
    const account = asObject(reply.json);
    const isRead = reply.status === 200 && isJson(reply) && account !== undefined;
    const type = reply.headers['content-type'] ?? 'no content type';
    const problem = reply.json_problem === undefined ? '' : `; ${reply.json_problem}`;
    const expected = '200 with a JSON object and content type application/json';
    t.must(isRead, expected, reply, { got: `${tell(reply)} (${type}${problem})` });
    if (!isRead) return;
    const asked = { biller_id: t.target.biller_id, account_id: t.target.accounts.payable };
    for (const [name, wanted] of Object.entries(asked)) {
      if (account[name] !== undefined) t.equals(reply, name, wanted, { level: 'should' });
    }
    const problems = record.problems(account, 'body');
    t.strict(problems.length === 0, 'the account record of decision 4', reply, {
      got: problems.map(({ path, problem }) => `${path} ${problem}`).join('; '),
    });
  },
};

const p11: PartnerCase = {
  id: 'P11',
  title: 'Reading an account or a payment that does not exist returns an error',
  clauses: ['ER3', 'B1', 'B5', 'B3'],
  severity: 'should',
  likely_cause:
    'A missing row becomes an empty 200 or an exception, or the biller is not looked at.',
  async run(t) {
    const reply = await t.readAccount(t.target.accounts.unknown);
    t.should(isRefusal(reply) && isJson(reply), '404 with a JSON body', reply);
    t.strict(reply.status === 404, '404', reply);
    const intent = t.intend(0);
    const payments = [await t.read(intent)];
    if (t.offers('get_payment')) payments.push(await t.readById(intent));
    for (const read of payments) {
      const is404 = read.status === 404 && isJson(read);
      t.should(is404, '404 with a JSON body', read, { clause: 'B5' });
    }
    if (t.target.paths.get_account?.includes('{biller_id}') !== true) return;
    const place = { biller_id: NO_BILLER, account_id: t.target.accounts.payable };
    const elsewhere = await t.call('get_account', place);
    const isShown = accountIn(elsewhere)?.['account_id'] !== undefined;
    t.should(!isShown, 'no account under a biller that does not exist', elsewhere);
  },
};

/** The account that an answer shows; undefined when it is none. */
const accountIn = (reply: Reply) => (isSuccess(reply) ? asObject(reply.json) : undefined);

/** True when an answer shows this account or none, but not another one. */
function showsOnly(reply: Reply, id: string): boolean {
  const account = accountIn(reply);
  return account === undefined || account['account_id'] === id;
}

const isBelow500 = ({ status }: Reply): boolean => status !== undefined && status < 500;

const p12: PartnerCase = {
  id: 'P12',
  title: 'Account ids with special characters are handled safely',
  clauses: ['B1'],
  severity: 'should',
  likely_cause: 'The path is decoded before it is split, or ids are cut, trimmed or folded.',
  async run(t) {
    const { payable } = t.target.accounts;
    const url = `${t.run.url('get_account', { account_id: payable })}%zz`;
    const broken = await t.send({ method: 'GET', url }, () => t.run.credential(t.check));
    const expected = 'a status below 500 for a path with an invalid percent-encoding';
    t.should(isBelow500(broken), expected, broken);
    const ids = [`x/../${payable}`, `${payable}/`, `${payable}-é-账户`, 'a'.repeat(128)];
    for (const id of ids) {
      const reply = await t.readAccount(id);
      const named = JSON.stringify(id.slice(0, 40));
      t.should(isBelow500(reply), `a status below 500 for ${named}`, reply);
      t.should(showsOnly(reply, id), 'no account other than the one requested', reply);
    }
    for (const id of [otherCase(payable), `${payable} `, ` ${payable}`]) {
      if (id === payable) continue;
      const reply = await t.readAccount(id);
      const expected = `no account for ${JSON.stringify(id)}: ids are compared byte for byte`;
      t.strict(showsOnly(reply, id), expected, reply);
    }
    await declaredIds(t);
  },
};

/** Ids of the biller's own must arrive as they are written, whatever a path encodes. */
async function declaredIds(t: PartnerContext): Promise<void> {
  const { payable, other, inactive, canceled } = t.target.accounts;
  const declared = [payable, other, inactive, canceled].filter((id) => id !== undefined);
  const unusual = declared.filter((one) => /[^\w.~-]/.test(one));
  if (unusual.length === 0) {
    t.unseen('The target declares no account id with a character that a path must encode');
  }
  for (const id of unusual) {
    const reply = await t.readAccount(id);
    const { account_id = id } = accountIn(reply) ?? {};
    const isFound = isSuccess(reply) && account_id === id;
    t.should(
      isFound,
      `the declared account ${JSON.stringify(id)}, exactly as it is written`,
      reply,
    );
  }
}

const p13: PartnerCase = {
  id: 'P13',
  title: 'A balance can be read',
  clauses: ['S5', 'B2', 'TR3'],
  // Last of all, because an amount may be whole until a payment has been posted.
  stage: 'final',
  likely_cause: 'Amounts are stored in dollars or as decimal strings and returned unconverted.',
  unfit: (target) =>
    target.paths.get_balance === null ? 'the target does not offer Get Balance' : undefined,
  async run(t) {
    const reply = await t.readBalance();
    const balance = asObject(reply.json);
    const isRead = reply.status === 200 && balance !== undefined;
    t.must(isRead, '200 with a JSON object', reply);
    if (!isRead) return;
    const broken = t.run.wire.exchanges.filter(
      ({ method, status, answer_body: body }) =>
        method === 'GET' &&
        status === 200 &&
        !['undefined', 'number'].includes(typeof dueIn(parsed(body))),
    );
    t.none(
      broken,
      'amount_due_in_cents as a plain JSON integer, such as 12500',
      ({ answer_body: body }) => `amount_due_in_cents is ${show(dueIn(parsed(body)))}`,
      broken[0] === reply.exchange
        ? {}
        : { cause: 'Payments are subtracted in dollars, as floating-point numbers or as text.' },
    );
    const { amount_due_in_cents, due_date, last_updated_at } = balance;
    // No field of a Balance is required, so an empty one is correct.
    if ([amount_due_in_cents, due_date, last_updated_at].every((one) => one === undefined)) {
      t.notes.push('The balance has no field of the interface, so there was nothing to check.');
    }
    const isDay = (day: unknown): boolean =>
      day === undefined || (typeof day === 'string' && isDate(day));
    const level = 'should';
    t.field(reply, 'due_date', 'due_date as YYYY-MM-DD, an existing date', isDay, { level });
    const expected = 'last_updated_at as an ISO 8601 time';
    const isDated = (time: Json | undefined): boolean => time === undefined || isTime(time);
    t.field(reply, 'last_updated_at', expected, isDated, { level });
  },
};

/** The amount due in the answer to Get Balance or Get Account, as it was sent. */
function dueIn(answer: Readonly<Record<string, Json>> = {}): Json | undefined {
  const { balance, amount_due_in_cents: alone } = answer;
  return alone ?? asObject(balance)?.['amount_due_in_cents'];
}

/** Consecutive reads of the account and of the balance. */
const READS = 20;

/** How many times the values must change while reading, and not change at rest, before the check reports it. */
const ROUNDS = 3;

const p14: PartnerCase = {
  id: 'P14',
  title: 'Reading changes nothing',
  clauses: ['B1', 'B2'],
  stage: 'first',
  likely_cause: 'A read posts, accrues or rounds, or two replicas hold different balances.',
  async run(t) {
    const first = await look(t);
    if (!flips(first)) return;
    // The values changed. Others may use the test system, or it may be refreshed; the check must rule out every cause but the
    // reads.
    let caused = 0;
    let last = first.at(-1);
    for (let round = 0; round < ROUNDS; round += 1) {
      const started = t.run.now();
      const reads = await look(t);
      const took = t.run.now() - started;
      const before = await look(t, 1);
      await t.run.sleep(took);
      const rest = [...before, ...(await look(t, 1))];
      const moved = spread(reads);
      const isTurned = moved === 0 && flips(reads) && !flips(rest);
      if (moved > spread(rest) * 2 || isTurned) caused += 1;
      last = reads.at(-1);
    }
    if (caused < ROUNDS) {
      t.run.unsettled = true;
      t.notes.push('Not measured: the account also changes while nothing reads it.');
      return;
    }
    t.must(false, `unchanged: ${first[0]?.shown ?? ''}`, last?.reply, { got: last?.shown ?? '' });
  },
};

interface Look {
  readonly shown: string;
  readonly due: number;
  readonly reply: Reply;
}

function look(t: PartnerContext, times = READS): Promise<Look[]> {
  return Promise.all(
    Array.from({ length: times }, async () => {
      const [account, balance] = await Promise.all([
        t.readAccount(),
        t.offers('get_balance') ? t.readBalance() : undefined,
      ]);
      const status = asObject(account.json)?.['status'];
      const [within, alone] = [account, balance].map((reply) => dueIn(asObject(reply?.json)));
      const due = [alone, within].find((one) => typeof one === 'number') ?? 0;
      return {
        shown: `status ${show(status)}, amount due ${show(within ?? alone)} / ${show(alone)}`,
        due,
        reply: balance ?? account,
      };
    }),
  );
}

function spread(looks: readonly Look[]): number {
  const dues = looks.map(({ due }) => due);
  return Math.max(...dues) - Math.min(...dues);
}

function flips(looks: readonly Look[]): boolean {
  return new Set(looks.map(({ shown }) => shown)).size > 1;
}

export const ACCOUNTS = [p10, p11, p12, p13, p14];
