/** Checks of what a partner says about its accounts (P10 to P15): customers decide by it what to pay, and to whom. */
import { AccountRecord, compileCheck, isDate } from '@duebridge/contract';
import type { Draft, PartnerCase } from '../check/check.ts';
import { asObject, isJson, isRefusal, isSuccess, type Reply, show, tell } from '../check/http.ts';
import { isTime } from '../check/payment-fields.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import { NO_BILLER } from '../check/planned-payments.ts';

const record = compileCheck(AccountRecord);

const p10: Draft<PartnerCase> = {
  id: 'P10',
  title: 'A known account can be read',
  clauses: ['B1', 'AC1', 'S2'],
  decisions: [4],
  sends: 'GET account for a known account',
  likely_cause:
    'The content type is not application/json, the object is wrapped in an array, or ids are reformatted in the response.',
  async run(t) {
    const reply = await t.readAccount();
    const account = asObject(reply.json);
    const read = t.must(
      reply.status === 200 && isJson(reply) && account !== undefined,
      '200 with a JSON object and content type application/json',
      reply,
      {
        got: `${tell(reply)} (${reply.headers['content-type'] ?? 'no content type'}${reply.json_problem === undefined ? '' : `; ${reply.json_problem}`})`,
      },
    );
    if (!read || account === undefined) return;
    const asked = { biller_id: t.target.biller_id, account_id: t.target.accounts.payable };
    for (const [name, wanted] of Object.entries(asked)) {
      const isOwn = (value: unknown): boolean => value === undefined || value === wanted;
      t.field(reply, name, `${name} ${show(wanted)}`, isOwn, { severity: 'should' });
    }
    const problems = record.problems(account, 'body');
    t.strict(problems.length === 0, 'the account record of decision 4', reply, {
      got: problems.map(({ path, problem }) => `${path} ${problem}`).join('; '),
    });
  },
};

const p11: Draft<PartnerCase> = {
  id: 'P11',
  title: 'Reading an account that does not exist returns an error',
  clauses: ['ER3', 'B1'],
  decisions: [5],
  severity: 'should',
  sends:
    'GET account with an id that no account has, and with a known id under a biller that does not exist',
  likely_cause: 'A missing row results in an empty 200 or in an unhandled exception.',
  async run(t) {
    const reply = await t.readAccount(t.target.accounts.unknown);
    t.should(isRefusal(reply) && isJson(reply), '404 with a JSON body', reply);
    t.strict(reply.status === 404, '404', reply);
    if (t.target.paths.get_account?.includes('{biller_id}') !== true) return;
    const elsewhere = await t.call('get_account', {
      biller_id: NO_BILLER,
      account_id: t.target.accounts.payable,
    });
    t.should(
      !isSuccess(elsewhere) || asObject(elsewhere.json)?.['account_id'] === undefined,
      'no account under a biller that does not exist',
      elsewhere,
      {
        cause:
          'The biller in the path is not looked at, so the accounts of all billers are one list.',
      },
    );
  },
};

const p12: Draft<PartnerCase> = {
  id: 'P12',
  title: 'Account ids with special characters are handled safely',
  clauses: ['B1'],
  decisions: [13],
  severity: 'should',
  sends:
    'GET account with ids that contain an encoded slash, an invalid percent-encoding, non-ASCII characters or 128 characters; and with a known id in another case or with a leading or trailing space',
  likely_cause:
    'A proxy or router decodes %2F before it splits the path, or the id is truncated to the length of its column.',
  async run(t) {
    const { payable } = t.target.accounts;
    const ids = [`x/../${payable}`, `${payable}/`, `${payable}-é-账户`, 'a'.repeat(128)];
    const broken = await t.send({
      method: 'GET',
      url: `${t.run.url('get_account', { biller_id: t.target.biller_id, account_id: payable })}%zz`,
      headers: await t.proof('declared'),
    });
    t.should(
      broken.status !== undefined && broken.status < 500,
      'a status below 500 for a path with an invalid percent-encoding',
      broken,
    );
    for (const id of ids) {
      const reply = await t.readAccount(id);
      t.should(
        reply.status !== undefined && reply.status < 500,
        `a status below 500 for ${JSON.stringify(id.slice(0, 40))}`,
        reply,
      );
      const account = isSuccess(reply) ? asObject(reply.json) : undefined;
      t.should(
        account === undefined || account['account_id'] === id,
        'no account other than the one requested',
        reply,
      );
    }
    const upper = payable.toUpperCase();
    const folded = upper === payable ? payable.toLowerCase() : upper;
    for (const id of [folded, `${payable} `, ` ${payable}`].filter((id) => id !== payable)) {
      const reply = await t.readAccount(id);
      const account = isSuccess(reply) ? asObject(reply.json) : undefined;
      t.strict(
        account === undefined || account['account_id'] === id,
        `no account for ${JSON.stringify(id)}: ids are compared byte for byte`,
        reply,
        {
          cause:
            'The server trims ids or changes their case before the lookup, or the column has a case-insensitive collation.',
        },
      );
    }
  },
};

const p13: Draft<PartnerCase> = {
  id: 'P13',
  title: 'A balance can be read',
  clauses: ['S5', 'B2', 'TR3'],
  decisions: [1, 4],
  // Last of all, because an amount may be whole until a payment has been posted.
  stage: 'final',
  sends: 'GET balance of a known account; every account and balance read in this run is examined',
  likely_cause: 'Amounts are stored in dollars or as decimal strings and returned unconverted.',
  unfit: (target) =>
    target.paths.get_balance === null ? 'the target does not offer Get Balance' : undefined,
  async run(t) {
    const reply = await t.readBalance();
    const balance = asObject(reply.json);
    const read = t.must(
      reply.status === 200 && balance !== undefined,
      '200 with a JSON object',
      reply,
    );
    if (!read || balance === undefined) return;
    const { amount_due_in_cents, due_date, last_updated_at } = balance;
    for (const seen of t.run.balances.filter(isSuccess)) {
      const { balance: within, amount_due_in_cents: alone } = asObject(seen.json) ?? {};
      const due = alone ?? asObject(within)?.['amount_due_in_cents'];
      const isWhole = due === undefined || typeof due === 'number';
      if (
        !t.must(isWhole, 'amount_due_in_cents as a plain JSON integer, such as 12500', seen, {
          got: `amount_due_in_cents is ${show(due)}`,
          ...(seen !== reply && {
            cause: 'Payments are subtracted in dollars, as floating-point numbers or as text.',
          }),
        })
      )
        break;
    }
    // No field of a Balance is required, so an empty one is correct.
    if ([amount_due_in_cents, due_date, last_updated_at].every((one) => one === undefined)) {
      t.notes.push('The balance has no field of the interface, so there was nothing to check.');
    }
    t.should(
      due_date === undefined || (typeof due_date === 'string' && isDate(due_date)),
      'due_date as YYYY-MM-DD, an existing date',
      reply,
      { got: `due_date is ${show(due_date)}` },
    );
    t.should(
      last_updated_at === undefined || isTime(last_updated_at),
      'last_updated_at as an ISO 8601 time',
      reply,
      { got: `last_updated_at is ${show(last_updated_at)}` },
    );
  },
};

/** Consecutive reads of the account and of the balance. */
const READS = 20;

/** How many times the values must change while reading, and not change at rest, before the check reports it. */
const ROUNDS = 3;

const p14: Draft<PartnerCase> = {
  id: 'P14',
  title: 'Reading changes nothing',
  clauses: ['B1', 'B2'],
  stage: 'first',
  sends: `GET account and GET balance, ${READS} times; if the values differ, again, compared with a pause of the same length`,
  likely_cause:
    'A read posts, accrues or rounds an amount, or two replicas hold different balances.',
  async run(t) {
    const first = await look(t);
    if (new Set(first.map(({ shown }) => shown)).size === 1) return;
    // The values changed. Others may use the test system, or it may be refreshed; the check must rule out every cause but the
    // reads.
    let caused = 0;
    let last = first.at(-1);
    for (let round = 0; round < ROUNDS; round += 1) {
      const started = t.run.now();
      const reads = await look(t);
      const took = t.run.now() - started;
      const [before] = await look(t, 1);
      await t.run.sleep(took);
      const [after] = await look(t, 1);
      const moved = spread(reads);
      const rested = spread([before, after].filter((one) => one !== undefined));
      if (moved > rested * 2 || (moved === 0 && flips(reads) && !flips([before, after])))
        caused += 1;
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
        t.target.paths.get_balance === null ? undefined : t.readBalance(),
      ]);
      const status = asObject(account.json)?.['status'];
      const within = asObject(asObject(account.json)?.['balance'])?.['amount_due_in_cents'];
      const alone = asObject(balance?.json)?.['amount_due_in_cents'];
      return {
        shown: `status ${show(status)}, amount due ${show(within ?? alone)} / ${show(alone)}`,
        due: typeof alone === 'number' ? alone : typeof within === 'number' ? within : 0,
        reply: balance ?? account,
      };
    }),
  );
}

function spread(looks: readonly Look[]): number {
  const dues = looks.map(({ due }) => due);
  return Math.max(...dues) - Math.min(...dues);
}

function flips(looks: readonly (Look | undefined)[]): boolean {
  return new Set(looks.map((one) => one?.shown)).size > 1;
}

const p15: Draft<PartnerCase> = {
  id: 'P15',
  title: 'Reading an unknown payment returns 404',
  clauses: ['B5', 'B3'],
  decisions: [5],
  severity: 'should',
  sends: 'GET payment with an id that was never used',
  likely_cause:
    'A missing row results in an empty 200 or in an unhandled exception; the platform then cannot tell a lost payment from a slow one.',
  async run(t) {
    const intent = t.intend(0);
    const replies = [await t.read(intent)];
    if (t.target.paths.get_payment !== null) replies.push(await t.readById(intent));
    for (const reply of replies) {
      t.should(reply.status === 404 && isJson(reply), '404 with a JSON body', reply);
    }
  },
};

export const ACCOUNTS = [p10, p11, p12, p13, p14, p15];
