import type { TokenCase } from '../../check/check.ts';
import { show, type Exchange } from '../../check/http.ts';
import { leastBody, type TokenContext } from '../../check/token-context.ts';
import { looksInternal, parsed } from '../shared.ts';

/** Statuses that a proxy in front of the platform may answer by itself. */
const OF_A_PROXY: readonly number[] = [408, 413, 429, 431];

export const t21: TokenCase = {
  id: 'T21',
  title: 'Errors are JSON with code and message, and repeat nothing confidential',
  clauses: ['ER3', 'ER1'],
  decisions: [5],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with an invalid email address and with an invalid phone number; all refusals of this run are examined',
  expects:
    'every refusal is JSON with the strings code and message, without a stack trace, the key, or the customer’s data',
  likely_cause:
    'A refusal comes from the router, the body parser or a proxy instead of the error handler, or it quotes the value that it refuses.',
  async run(t: TokenContext) {
    // Values that a refusal can be seen to repeat: no other request has them.
    const marks = ['private.duebridge', '+1 512 555 0199'];
    const sent = [
      await t.create({ ...leastBody(), email: { address: marks[0] } }),
      await t.create({ ...leastBody(), phone_number: [marks[1]] }),
      await t.create({ ...leastBody(), email: `${marks[0]}@example.com`, last_name: 7 }),
    ];
    const refusals = t.run.wire.exchanges.filter(
      ({ check, method, url, status = 0 }) =>
        check.startsWith('T') &&
        check !== 'T15' &&
        method === 'POST' &&
        url === t.run.url &&
        status >= 400 &&
        status < 500,
    );
    t.given(refusals.length > 0, 'the platform refused nothing');
    const unformed = refusals.filter((one) => !hasForm(one));
    const own = unformed.find(({ status }) => !OF_A_PROXY.includes(status ?? 0));
    const [any] = unformed;
    if (own !== undefined) t.must(false, unlike(own, unformed.length));
    else if (any !== undefined) t.should(false, unlike(any, unformed.length));
    const internal = refusals.find((one) => looksInternal(one.answer_body));
    t.should(internal === undefined, {
      expected: 'refusals without a stack trace',
      got: `${internal?.status ?? ''} with one`,
      ...(internal === undefined ? {} : { at: internal }),
    });
    const leak = refusals.find(({ leaked }) => leaked);
    t.should(leak === undefined, {
      expected: 'no credential in a refusal',
      got: 'a refusal repeats the key that was sent',
      ...(leak === undefined ? {} : { at: leak }),
    });
    const quoting = sent.find(({ text }) => marks.some((mark) => text.includes(mark)));
    t.should(quoting === undefined, {
      expected: 'a refusal that names the field, without the customer’s data',
      got: 'it repeats the value that was sent, which then stands in logs on both sides',
      ...(quoting === undefined ? {} : { at: quoting }),
    });
    t.tried = `${refusals.length} refusals`;
  },
};

function hasForm({ answer_body, answer_headers }: Exchange): boolean {
  const { code, message } = parsed(answer_body) ?? {};
  return (
    typeof code === 'string' &&
    code !== '' &&
    typeof message === 'string' &&
    /^application\/(?:[\w.+-]+\+)?json\b/i.test(answer_headers['content-type'] ?? '')
  );
}

function unlike(one: Exchange, count: number) {
  return {
    expected: 'a JSON object with the strings code and message',
    got: `${one.status ?? ''} ${show(one.answer_headers['content-type'])} ${one.answer_body.slice(0, 100)} (${count} such refusals)`,
    at: one,
  };
}
