/**
 * Runs before anything is judged: is the server at the declared address, does it speak the protocol, does it accept the
 * credential, does the known account answer? Most first runs fail on one of these, and one sentence that fixes it helps more than
 * a list of failed checks. Such a failure is CONFIG, never FAIL, and is reported within ten seconds.
 */
import type { Headers } from './context.ts';
import type { ConfigProblem } from './findings.ts';
import { isSuccess, PREFLIGHT, tell, type Reply } from './http.ts';
import { accessToken, type PartnerRun } from './partner-context.ts';

/** Maximum wait for the first answer. Together with the connection it stays below ten seconds. */
const ANSWER_TIMEOUT_MS = 5_000;

/** Tests a partner's server. Returns undefined when the checks can begin. */
export async function partnerPreflight(run: PartnerRun): Promise<ConfigProblem | undefined> {
  const { authentication, accounts, base_url, ca_file } = run.target;
  const timeout_ms = ANSWER_TIMEOUT_MS;
  let headers: Headers;
  if (authentication.method === 'oauth') {
    const granted = await run.fetchToken(PREFLIGHT, {}, timeout_ms);
    const token = accessToken(granted);
    if (token === undefined) {
      return problemOf(granted, {
        what: `The token endpoint ${authentication.token_url}`,
        place: { url: authentication.token_url, name: 'the token URL', ca_file },
        flag: '--token-url',
        credential: 'the client: fix --client-id, --client-secret or --scope',
        others: '--token-url, or make the endpoint read a form and return access_token',
      });
    }
    headers = { authorization: `Bearer ${token}` };
  } else headers = await run.credential(PREFLIGHT);
  const url = run.url('get_account', { account_id: accounts.payable });
  const read = await run.wire.send(PREFLIGHT, { method: 'GET', url, headers, timeout_ms });
  const page =
    'GET account returns a web page: base_url or paths.get_account points to a website, not to the API.';
  if (isSuccess(read)) return pageProblem(read, page);
  return problemOf(read, {
    what: 'GET account',
    place: { url: base_url, name: 'base_url', ca_file },
    flag: '--base-url',
    credential:
      authentication.method === 'key'
        ? `the key in the header ${authentication.header}: fix --header and --key`
        : 'the access token: fix --scope, or make the API accept tokens from its own token endpoint',
    others: `base_url or paths.get_account, or pass an existing account with --biller and --account (now ${accounts.payable})`,
  });
}

/** Where a request went: the URL, what sets it, and the file of authorities that is trusted. */
export interface Place {
  readonly url: string;
  readonly name: string;
  readonly ca_file: string | undefined;
}

/** Why no connection was made, as the sentence to report; undefined when there was one. */
function unreachable(code: string | undefined, { url, name, ca_file }: Place): string | undefined {
  if (code === undefined || /^(?:TIMEOUT|UND_ERR_SOCKET|HPE_|UND_ERR_RES)/.test(code)) return;
  const { hostname, protocol, port } = new URL(url);
  const isSecure = protocol === 'https:';
  const place = `${hostname}:${port || (isSecure ? 443 : 80)}`;
  if (/CERT|SIGNATURE/.test(code)) {
    return `The certificate of ${place} is not accepted (${code}): fix it, or, for a test server, pass its authority with --ca FILE${ca_file === undefined ? '' : ` (now ${ca_file})`}.`;
  }
  if (code.startsWith('PROXY_')) {
    return `The proxy opens no connection to ${place} (${code}): fix HTTPS_PROXY or ${name}, or set NO_PROXY=${hostname} to go without.`;
  }
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return `The name ${hostname} does not resolve: fix the host in ${name}, or the DNS of this machine.`;
  }
  if (code === 'ECONNREFUSED') {
    return `Nothing listens on ${place}: start the server, or fix ${name}.`;
  }
  const plain = `if it uses plain http, write http:// in ${name}`;
  if (isSecure && (code === 'EPROTO' || code.startsWith('ERR_SSL'))) {
    return `${place} does not speak TLS 1.2 or later: ${plain}; otherwise fix its TLS settings.`;
  }
  return `${place} cannot be reached (${code}): fix ${name}, or the network in between${isSecure ? `; ${plain}` : ''}.`;
}

/** What was asked first, and what sets it right: the flag of its URL, the credential that may be refused, and the rest. */
export interface FirstRequest {
  readonly what: string;
  readonly place: Place;
  readonly flag: string;
  readonly credential: string;
  readonly others: string;
}

/** The problem that an answer other than the hoped for shows. */
export function problemOf(
  reply: Reply,
  { what, place, flag, credential, others }: FirstRequest,
): ConfigProblem {
  const { status, exchange } = reply;
  const away = unreachable(reply.error, place);
  if (away !== undefined) return { sentence: away };
  const say = (sentence: string): ConfigProblem => ({ sentence, exchange });
  if (status === undefined) {
    const hint = place.url.startsWith('http:') ? ', or check whether it requires https' : '';
    return say(
      `The server accepts connections, but ${what} gets no response (${tell(reply)}): see its log${hint}.`,
    );
  }
  if (status === 401 || status === 403) return say(`The server refuses (${status}) ${credential}.`);
  if (status < 300 || status >= 400) {
    return say(`${what} answers ${tell(reply)}: fix ${others}; or see the server's log.`);
  }
  const to = reply.headers['location'] ?? 'another URL';
  return say(
    `The server redirects to ${to}, and redirects are never followed: set ${flag} to that URL.`,
  );
}

/** The problem that a web page shows where JSON was expected; undefined when there is none. */
export function pageProblem(reply: Reply, sentence: string): ConfigProblem | undefined {
  return /^\s*</.test(reply.text) ? { sentence, exchange: reply.exchange } : undefined;
}
