/**
 * The mutants that the judge calls right, with the reason why: what they change, nobody can see from
 * outside, or it breaks nothing that the interface says. A place is matched against the line that was
 * changed and what became of it.
 */

/** Why some mutants survive. */
interface Explanation {
  readonly why: string;
  readonly places: readonly RegExp[];
}

export const SURVIVORS: Readonly<Record<string, readonly Explanation[]>> = {
  'partner.mjs': [
    {
      why: 'The balance never moves. A right partner may refresh it at night, so a balance that stands still proves nothing.',
      places: [/ takeFromBalance\.run\(.* -> (?:;|account_id|biller_id)$/],
    },
    {
      why: 'The second lock on an ended payment: one process looks for processing payments alone, so it never comes to it.',
      places: [/ AND status = 'processing' -> nothing$/],
    },
    {
      why: 'How large a body may be is a matter of the partner; the judge sends no larger one than it must.',
      places: [/ MAX_BODY_BYTES = /, /\(text\.length > MAX_BODY_BYTES\)/],
    },
    {
      why: 'Whether the maximum itself is taken is a matter of the partner.',
      places: [/ > MAX_AMOUNT_IN_CENTS\) \| > -> >=$/],
    },
    { why: 'A start without a key, which no caller sees.', places: [/ !PARTNER_KEY -> false$/] },
    {
      why: 'Paths that nobody calls.',
      places: [/is\('PUT', 'biller', 'account', 'payment'\) && three\) /],
    },
    {
      why: 'Errors that did not happen in the run.',
      places: [/ error instanceof URIError -> true$/],
    },
    {
      why: 'What a log says, and how soon it posts.',
      places: [/ console\.error\(error\)/, /setInterval\(applyPayments, 200\)/],
    },
    {
      why: 'The body is refused all the same, by the next rule.',
      places: [/'The body is not JSON'\); \| throw /],
    },
  ],
  'partner.py': [
    {
      why: 'The balance never moves. A right partner may refresh it at night, so a balance that stands still proves nothing.',
      places: [
        / if end\[0\] == "succeeded": /,
        / database\.execute\( \| .*UPDATE account/,
        /payment\["biller_id"\], payment\["account_id"\]\), /,
      ],
    },
    {
      why: 'The second lock on an ended payment: one thread looks for processing payments alone, so it never comes to it.',
      places: [/ AND status = 'processing' -> nothing$/],
    },
    {
      why: 'How large a body may be, and how it is framed, is a matter of the partner; the judge sends small ones with their length.',
      places: [
        / MAX_BODY_BYTES/,
        / "Transfer-Encoding" in /,
        / self\.close_connection = True/,
        / "Send the body with its Content-Length"/,
        / "PAYLOAD_TOO_LARGE"/,
      ],
    },
    {
      why: 'Whether the maximum itself is taken is a matter of the partner.',
      places: [/ > MAX_AMOUNT_IN_CENTS: \| > -> >=$/],
    },
    {
      why: 'What a log says, how the process ends, and how soon it posts.',
      places: [
        / print\(repr\(error\)/,
        / os\._exit\(1\)/,
        / time\.sleep\(0\.2\)/,
        /super\(\)\.__init__/,
      ],
    },
    {
      why: 'Amounts above 2^53: a wrong partner might really take one, and the judge never asks for so much.',
      places: [/ amount < 2\*\*53: .* \| (?:< -> <=|2 -> 3|53 -> 54)$/],
    },
    {
      why: 'Get Account need not show a balance, and Get Balance is judged by itself.',
      places: [/ return account \| \{"balance"/],
    },
    { why: 'Paths that nobody calls.', places: [/ "There is nothing here"/] },
    { why: 'Errors that did not happen in the run.', places: [/ status, body = 500, /] },
    {
      why: 'Settings of the process: where it keeps its file, its port, its threads and its queue.',
      places: [
        / "PARTNER_DB" -> /,
        / "PORT" -> /,
        / request_queue_size = /,
        / daemon(?:_threads)? ?= ?True/,
      ],
    },
  ],
};

/** Why a mutant of a subject may survive; undefined when nothing explains it. */
export function explanationOf(subject: string, mutant: string): string | undefined {
  return SURVIVORS[subject]?.find(({ places }) => places.some((place) => place.test(mutant)))?.why;
}
