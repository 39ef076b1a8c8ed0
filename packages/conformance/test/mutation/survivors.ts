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
  'sandbox-partner': [
    {
      why: 'What the sandbox notes for its inspection page and its log, and what it masks there: no answer of the interface holds it.',
      places: [
        /let calls = 0/,
        /connections \+= 1/,
        /socket\.on\('close'/,
        /maskedForm\(call\.text\)/,
        /'not_looked_at'/,
        /exchange\.(?:answer|credential) = /,
        /call\.scopes = /,
        /typeof body === 'string' \? body : Buffer/,
        /secret\.(?:add|has)\(/,
        /form\.has\('client_secret'\)/,
        /stored\.push\(payment\)/,
      ],
    },
    {
      why: 'Settings that a whole run leaves alone: the port, an address of IPv6, delays, accounts for faults, TLS.',
      places: [
        /options\.port \?\? 0/,
        /host\.includes\(':'\)/,
        /account\.read_delay_ms/,
        /kind === 'open' \|\| kind === 'closed'/,
        /server\.o(?:n|ff)\('(?:connection|tlsClientError|error)'/,
        /account\.refuses_duplicates/,
      ],
    },
    {
      why: 'How soon it posts: by a little, or at the next look instead of by a timer of its own.',
      places: [
        /DEFAULT_PROCESSING_MS = /,
        / book\.settle\(\); /,
        /MAX_TIMER_MS = /,
        /payment\.ending\.after_ms; \| \+ -> -/,
        /Number\.isFinite\(next\)/,
        /arm\(\); \| arm/,
      ],
    },
    {
      why: 'The balance never moves, or an account shows none. A right partner may refresh it at night, so a balance that stands still proves nothing.',
      places: [
        /accountKey\(payment\.biller_id, payment\.account_id\)/,
        /amount_due_in_cents === undefined\) return/,
        /balance === undefined \? \{\} : \{ balance \}/,
      ],
    },
    {
      why: 'The second lock on an ended payment: the loop that ends payments looks for those in processing alone.',
      places: [/end\(payment, ending, force = false\)/, /isTerminal\(payment\.status\) && !force/],
    },
    {
      why: 'The request is refused all the same: with another word of OAuth, another of the 4xx, or without a header that the interface does not name.',
      places: [
        /'WWW-Authenticate'/,
        /auth\.method !== 'oauth'\) throw/,
        /'invalid_client'/,
        /allowed\.(?:push|length)/,
        /'undecodable'/,
      ],
    },
    {
      why: 'The size of a body to the byte, and forms of body and header that only scripted faults have.',
      places: [
        /bytes > MAX_BODY_BYTES/,
        /const plain = body === undefined/,
        /headers\[name\] = typeof value/,
        /const headers: Record<string, string \| string\[\]> = plain/,
        /const bytes = plain \?/,
      ],
    },
  ],
  'sandbox-platform': [
    {
      why: 'How long a token lives, how much is read and remembered, and how many requests a second are let through: by a little, and within what the judge allows for.',
      places: [
        /TOKEN_LIFE_MS = /,
        /MAX_BODY_BYTES = /,
        /RATE_PER_SECOND = /,
        /BURST = /,
        /MAX_TOKENS/,
        /MAX_RUNS = /,
        /DRIVE_WITHIN_MS = /,
        /allowance/,
        /randomBytes\((?:24|32)\)/,
        / requestTimeout: /,
      ],
    },
    {
      why: 'What the test itself names or sets: the account that is not found, the kind of client, the clock, the port.',
      places: [
        /UNKNOWN_ACCOUNT = /,
        /kind: 'biller' as const/,
        / clock\.now\(\) \+ offsetMs/,
        /let offsetMs = 0/,
        /server\.(?:once|listen)\(/,
        / url: `http:/,
        / client_id: client\.client_id, \| client_id -> api_key/,
      ],
    },
    {
      why: 'What the inspection page shows, and the clause that picks text from JSON for it.',
      places: [/token_start: /, /account_id: external_identifiers/, /typeof answer\.body/],
    },
    {
      why: 'The body is refused all the same, by the next rule, or the details of the refusal read otherwise.',
      places: [
        /problems\(json, 'body'\)/,
        /details\.length > 0 \|\| /,
        /throw new Refusal\('INVALID_REQUEST', \{ details/,
      ],
    },
    {
      why: 'Errors that did not happen, and bytes that are not UTF-8: the judge sends texts.',
      places: [/instanceof Refusal\)/, /instanceof JsonProblem\)/, /isUtf8\(body\)/],
    },
    { why: 'A header that no rule asks for.', places: [/'Cache-Control'/] },
    {
      why: 'The size of a body to the byte, and the moment of expiry to the millisecond.',
      places: [/let bytes = 0/, /bytes (?:<=|>) MAX_BODY_BYTES/, /isGood: /],
    },
    { why: 'Paths that nobody calls.', places: [/path === platformRoutes\.create_token\.path/] },
  ],
  'caller.mjs': [
    {
      why: 'How long it waits between two calls, and for an answer: by a little, or still within what any partner bears.',
      places: [
        /payment\.delay = /,
        /AbortSignal\.timeout\(2_000\)/,
        / delay: 250/,
        /wait > payment\.delay/,
        /seconds > 0\) wait = /,
        /'retry-after'\) \?\? 'none'/,
      ],
    },
    {
      why: 'A content type on a request without a body, and on an answer to its own pages.',
      places: [/method === 'PUT' \? \{ 'content-type'/, /setHeader\('content-type'/],
    },
    {
      why: 'An error whose body is a whole, right record: no server is known that answers so.',
      places: [/answer\.status !== 200\) return/],
    },
    {
      why: 'Asked for a payment that it never made.',
      places: [/payment === undefined \? 'unknown'/],
    },
  ],
  'caller.py': [
    {
      why: 'How long it waits between two calls, and for an answer: by a little, or still within what any partner bears.',
      places: [/TIMEOUT_SECONDS = /, /"delay"/, /time\.sleep\(max/],
    },
    {
      why: 'Settings of the process: its port, its threads, its queue, and when it closes a connection.',
      places: [
        / "PORT" -> /,
        /request_queue_size/,
        /daemon(?:_threads| ?= ?True)/,
        /daemon=True/,
        /connection\.close\(\)/,
      ],
    },
    {
      why: 'What its own pages say, to which the judge is no caller of the interface; without them it is judged by its calls.',
      places: [/self\.answer\(\{/, /send_response\(200\)/, /send_header\("Content-Type"/],
    },
    {
      why: 'A content type on a request without a body.',
      places: [/ if method == "PUT": /],
    },
    {
      why: 'An error whose body is a whole, right record, and a record without a status: no server is known that answers so.',
      places: [/if status != 200: /, /isinstance\(record, dict\) and "status" in record/],
    },
    {
      why: 'The loop is left by the end of the payment all the same.',
      places: [/while payment\["status"\] == "processing": /],
    },
  ],
};

/** Why a mutant of a subject may survive; undefined when nothing explains it. */
export function explanationOf(subject: string, mutant: string): string | undefined {
  return SURVIVORS[subject]?.find(({ places }) => places.some((place) => place.test(mutant)))?.why;
}
