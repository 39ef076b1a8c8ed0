/**
 * Why some mutants pass: their change cannot be observed from outside, or breaks no rule of the
 * interface. `places` are matched against Mutation.name, the changed line and the change.
 */

/** One reason, and the mutants that it explains. */
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
      why: 'The second guard on terminal payments: the only process that posts selects processing payments, so the guard never fires.',
      places: [/ AND status = 'processing' -> nothing$/],
    },
    {
      why: "The size limit of a body is the partner's choice; the judge sends small bodies.",
      places: [/ MAX_BODY_BYTES = /, /\(text\.length > MAX_BODY_BYTES\)/],
    },
    {
      why: "Whether the maximum itself is accepted is the partner's choice.",
      places: [/ > MAX_AMOUNT_IN_CENTS\) \| > -> >=$/],
    },
    {
      why: 'A start without a key, which no caller observes.',
      places: [/ !PARTNER_KEY -> false$/],
    },
    {
      why: 'Paths that the judge does not call.',
      places: [/is\('PUT', 'biller', 'account', 'payment'\) && three\) /],
    },
    {
      why: 'Errors that did not occur in the run.',
      places: [/ error instanceof URIError -> true$/],
    },
    {
      why: 'The text of a log line, and a small change of the posting delay.',
      places: [/ console\.error\(error\)/, /setInterval\(applyPayments, 200\)/],
    },
    {
      why: 'The next rule refuses the body.',
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
      why: 'The second guard on terminal payments: the only thread that posts selects processing payments, so the guard never fires.',
      places: [/ AND status = 'processing' -> nothing$/],
    },
    {
      why: "The size limit of a body and its framing are the partner's choice; the judge sends small bodies with Content-Length.",
      places: [
        / MAX_BODY_BYTES/,
        / "Transfer-Encoding" in /,
        / self\.close_connection = True/,
        / "Send the body with its Content-Length"/,
        / "PAYLOAD_TOO_LARGE"/,
      ],
    },
    {
      why: "Whether the maximum itself is accepted is the partner's choice.",
      places: [/ > MAX_AMOUNT_IN_CENTS: \| > -> >=$/],
    },
    {
      why: 'The text of a log line, the exit of the process, and a small change of the posting delay.',
      places: [
        / print\(repr\(error\)/,
        / os\._exit\(1\)/,
        / time\.sleep\(0\.2\)/,
        /super\(\)\.__init__/,
      ],
    },
    {
      why: 'Amounts above 2^53: a wrong partner might post one, so the judge never sends one.',
      places: [/ amount < 2\*\*53: .* \| (?:< -> <=|2 -> 3|53 -> 54)$/],
    },
    {
      why: 'Get Account need not include a balance; Get Balance has its own check.',
      places: [/ return account \| \{"balance"/],
    },
    { why: 'Paths that the judge does not call.', places: [/ "There is nothing here"/] },
    { why: 'Errors that did not occur in the run.', places: [/ status, body = 500, /] },
    {
      why: 'Settings of the process: the path of its database, its port, threads and queue.',
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
      why: 'What the sandbox records and masks for its inspection page and log; no response of the interface contains it.',
      places: [
        /let calls = 0/,
        /connections \+= 1/,
        /socket\.on\('close'/,
        /maskedForm\(call\.text\)/,
        /exchange\.(?:answer|credential) = /,
        /call\.scopes = /,
        /typeof body === 'string' \? body : Buffer/,
        /secret\.(?:add|has)\(/,
        /form\.has\('client_secret'\)/,
        / \| calls \+= 1; -> ;/,
        /connection\.requests \+= 1/,
        /exchanges\.(?:push|length)/,
        /const secret = new Set/,
        /^state\.ts (?:platform_payment_id|payment_id|biller_id|account_id): payment\./,
      ],
    },
    {
      why: 'Settings that the run does not use: the port, an IPv6 address, delays, accounts for faults, TLS.',
      places: [
        /host\.includes\(':'\)/,
        /account\.read_delay_ms/,
        /kind === 'open' \|\| kind === 'closed'/,
        /server\.o(?:n|ff)\('(?:connection|tlsClientError|error)'/,
        /account\.refuses_duplicates/,
        /server\.once\('error'/,
        /listen\(server, 0, host\)/,
        /REOPEN_WITHIN_MS = /,
        /scenario\?\.needs === 'oauth'/,
        /DUPLICATE_WINDOW_MS = /,
        /payment\.ending\.after_ms === undefined -> false/,
        /let offsetMs = 0/,
        /let state = seed/,
      ],
    },
    {
      why: 'A small change of the posting delay, or posting on the next read instead of by a timer.',
      places: [
        /DEFAULT_PROCESSING_MS = /,
        / book\.settle\(\); /,
        /MAX_TIMER_MS = /,
        /Number\.isFinite\(next\)/,
        /arm\(\); \| arm/,
        /Math\.max\(5, next - book\.now\(\)\)/,
        /clearTimeout\(timer\)/,
        /timer\.unref\(\)/,
        /due <= now\)/,
      ],
    },
    {
      why: 'The balance never moves, or an account shows none. A right partner may refresh it at night, so a balance that stands still proves nothing.',
      places: [
        /accountKey\(payment\.biller_id, payment\.account_id\)/,
        /amount_due_in_cents === undefined\) return/,
        /balance === undefined \? \{\} : \{ balance \}/,
        / book\.post\(payment\)/,
      ],
    },
    {
      why: 'The second guard on terminal payments: the loop that ends payments selects those in processing, so the guard never fires.',
      places: [/end\(payment, ending, force = false\)/, /!isTerminal\(payment\.status\)\) \{ \| /],
    },
    {
      why: 'The request is still refused: with another OAuth error, another 4xx, or without a header that the interface does not mention.',
      places: [
        /'WWW-Authenticate'/,
        /auth\.method !== 'oauth'\) throw/,
        /allowed\.(?:push|length)/,
        /'undecodable'/,
        /'X-Request-Id': /,
        /'Cache-Control'/,
        /error="invalid_token"/,
        /if \(problem !== undefined\) throw problem/,
        /operation === 'unknown' -> false/,
        /\.problems\(call\.(?:params|body), '(?:path|body)'\)/,
        /wanted\.length !== given\.length/,
        /error instanceof (?:Refusal|JsonProblem)\)/,
        /typeof (?:amount_in_cents|platform_batch_id) === /,
      ],
    },
    {
      why: 'The exact size limit of a body, and forms of bodies and headers that only scripted faults use.',
      places: [
        /bytes > MAX_BODY_BYTES/,
        /const plain = body === undefined/,
        /headers\[name\] = typeof value/,
        /const headers: Record<string, string \| string\[\]> = plain/,
        /const bytes = plain \?/,
        /MAX_BODY_BYTES = /,
        /body === undefined\) (?:throw new Refusal\('PAYLOAD|return oauthError\(413)/,
        /let bytes = 0/,
        /bytes \+= chunk\.length/,
        /typeof reply === 'function'/,
        /await reply\(wire\)/,
      ],
    },
    {
      why: 'Connections that the caller breaks off or garbles, which the run does not wait for.',
      places: [
        /'clientError'/,
        /socket\.on\('error'/,
        /!socket\.writable/,
        /gone\.abort\(\)/,
        /response\.headersSent/,
      ],
    },
    {
      why: 'Choices of the partner: optional fields, the scopes of a token without a scope, its length and its last millisecond, a lenient token endpoint, ids of another form, a reason for a cancellation, the maximum itself, waiting reads.',
      places: [
        /\(holder === undefined/,
        /payment_rules === undefined/,
        /asked\.length === 0/,
        /randomBytes\(32\)/,
        /expires_ms <= book\.now\(\)/,
        /wrongParams\.length > 0/,
        /payment\.amount_in_cents > maximum/,
        /seconds === undefined\) return/,
        /headers\['prefer'\]/,
        /Math\.min\(MAX_WAIT_SECONDS/,
        /ending\.status === 'failed'\) \{ \| /,
        /a field is repeated/,
        /mediaType\(call\) !== /,
        /const encoded = /,
      ],
    },
    {
      why: 'Paths of the code for scripted faults only.',
      places: [/findLast\(\(entry\)/, /auth\.method === 'oauth' && secret !== undefined/],
    },
    {
      why: 'Get Balance answers with the account: the interface does not show its payload.',
      places: [/call\.operation === 'get_balance' -> false/],
    },
    {
      why: 'Bookkeeping of ended payments, which nothing reads afterwards.',
      places: [/ (?:open|waiting)\.delete\(payment\)/, /delete payment\.failure_reason/],
    },
  ],
  'sandbox-platform': [
    {
      why: 'Token lifetime, size limits, memory and rate limits, changed by less than the judge can tell.',
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
      why: 'Values that the test itself sets: the unknown account, the kind of client, the clock, the port.',
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
      why: 'Contents of the inspection page.',
      places: [/token_start: /, /account_id: external_identifiers/, /typeof answer\.body/],
    },
    {
      why: 'The next rule refuses the body, or only the details of the refusal differ.',
      places: [
        /problems\(json, 'body'\)/,
        /details\.length > 0 \|\| /,
        /throw new Refusal\('INVALID_REQUEST', \{ details/,
      ],
    },
    {
      why: 'Errors that did not occur in the run, and bytes that are not UTF-8, which the judge does not send.',
      places: [/instanceof Refusal\)/, /instanceof JsonProblem\)/, /isUtf8\(body\)/],
    },
    { why: 'A header that no rule requires.', places: [/'Cache-Control'/] },
    {
      why: 'The exact size limit of a body, and expiry to the millisecond.',
      places: [/let bytes = 0/, /bytes (?:<=|>) MAX_BODY_BYTES/, /isGood: /],
    },
    {
      why: 'Paths that the judge does not call.',
      places: [/path === platformRoutes\.create_token\.path/],
    },
  ],
  'caller.mjs': [
    {
      why: 'A small change of a delay or timeout, within what any partner tolerates.',
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
      why: 'A content type on a request without a body, and on a response of its own pages.',
      places: [/method === 'PUT' \? \{ 'content-type'/, /setHeader\('content-type'/],
    },
    {
      why: 'An error response whose body is a complete, correct record; no known server sends one.',
      places: [/answer\.status !== 200\) return/],
    },
    {
      why: 'A status request for a payment that it never made.',
      places: [/payment === undefined \? 'unknown'/],
    },
  ],
  'caller.py': [
    {
      why: 'A small change of a delay or timeout, within what any partner tolerates.',
      places: [/TIMEOUT_SECONDS = /, /"delay"/, /time\.sleep\(max/],
    },
    {
      why: 'Settings of the process: its port, threads, queue, and the closing of connections.',
      places: [
        / "PORT" -> /,
        /request_queue_size/,
        /daemon(?:_threads| ?= ?True)/,
        /daemon=True/,
        /connection\.close\(\)/,
      ],
    },
    {
      why: 'Responses of its own pages, which are not part of the interface; without them the judge relies on its calls.',
      places: [/self\.answer\(\{/, /send_response\(200\)/, /send_header\("Content-Type"/],
    },
    {
      why: 'A content type on a request without a body.',
      places: [/ if method == "PUT": /],
    },
    {
      why: 'An error response whose body is a complete, correct record, or a record without a status; no known server sends them.',
      places: [/if status != 200: /, /isinstance\(record, dict\) and "status" in record/],
    },
    {
      why: 'The loop still returns when the payment ends.',
      places: [/while payment\["status"\] == "processing": /],
    },
  ],
};

/** Returns why a mutant of a subject may survive; undefined if nothing explains it. */
export function explanationOf(subject: string, mutant: string): string | undefined {
  return SURVIVORS[subject]?.find(({ places }) => places.some((place) => place.test(mutant)))?.why;
}
