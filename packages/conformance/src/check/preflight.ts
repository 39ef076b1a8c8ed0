/**
 * Runs before anything is judged: is the server at the declared address, does it speak the protocol, does it accept the
 * credential, does the known account answer? Most first runs fail on one of these, and one sentence that fixes it helps more than
 * a list of failed checks. Such a failure is CONFIG, never FAIL, and is reported within ten seconds.
 */
import type { Headers } from './context.ts';
import { isRefusal, isSuccess, tell, type Exchange, type Reply } from './http.ts';
import { accessToken, type PartnerRun } from './partner-context.ts';

/** Maximum wait for the first answer. Together with the connection it stays below ten seconds. */
const ANSWER_TIMEOUT_MS = 5_000;

/** Why nothing could be judged, in one sentence that says what to fix. */
export interface ConfigProblem {
  readonly sentence: string;
  readonly exchange?: Exchange;
}

/** The name under which pre-flight exchanges are recorded. */
export const PREFLIGHT = 'preflight';

/** Tests a partner's server. Returns undefined when the checks can begin. */
export async function partnerPreflight(run: PartnerRun): Promise<ConfigProblem | undefined> {
  const { target } = run;
  const { authentication } = target;
  const timeout_ms = ANSWER_TIMEOUT_MS;
  let headers: Headers;
  if (authentication.method === 'oauth') {
    const granted = await run.fetchToken(PREFLIGHT, {}, timeout_ms);
    const token = accessToken(granted);
    if (token === undefined) return tokenProblem(granted, run, authentication.token_url);
    headers = { authorization: `Bearer ${token}` };
  } else headers = await run.credential(PREFLIGHT);
  const url = run.url('get_account', { account_id: target.accounts.payable });
  const read = await run.wire.send(PREFLIGHT, { method: 'GET', url, headers, timeout_ms });
  return readProblem(read, run);
}

/** Where a request went: the URL, what sets it, and the file of authorities that is trusted. */
export interface Place {
  readonly url: string;
  readonly name: string;
  readonly ca_file: string | undefined;
}

/** Why no connection was made, as the sentence to report; undefined when there was one. */
function unreachable(code: string | undefined, { url, name, ca_file }: Place): string | undefined {
  if (code === undefined || code === 'UND_ERR_SOCKET' || /^(?:HPE_|UND_ERR_RES)/.test(code)) return;
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

/** What to say of the first answer of a server, by what it is; `flag` sets the URL, and `usual` is for all other answers. */
export interface FirstAnswer {
  readonly silent: string;
  readonly refused: string;
  readonly missing: string;
  readonly flag: string;
  readonly usual: string;
}

/** The problem that an answer other than success shows. */
export function answerProblem(reply: Reply, place: Place, say: FirstAnswer): ConfigProblem {
  const { status, exchange } = reply;
  const away = unreachable(reply.error, place);
  if (away !== undefined) return { sentence: away };
  if (status === undefined) return { sentence: say.silent, exchange };
  if (status === 401 || status === 403) return { sentence: say.refused, exchange };
  if (status === 404 || status === 405) return { sentence: say.missing, exchange };
  if (status < 300 || status >= 400) return { sentence: say.usual, exchange };
  const to = reply.headers['location'] ?? 'another URL';
  const sentence = `The server redirects to ${to}, and redirects are never followed: set ${say.flag} to that URL.`;
  return { sentence, exchange };
}

/** The problem that a web page shows where JSON was expected; undefined when there is none. */
export function pageProblem(reply: Reply, sentence: string): ConfigProblem | undefined {
  return /^\s*</.test(reply.text) ? { sentence, exchange: reply.exchange } : undefined;
}

function tokenProblem(reply: Reply, { target }: PartnerRun, token_url: string): ConfigProblem {
  const refused = `The token endpoint refuses the client (${tell(reply)}): fix --client-id, --client-secret or --scope, and make sure that the endpoint reads a form.`;
  const none = `The token endpoint ${token_url} returns no access_token (${tell(reply)}): fix --token-url, or the endpoint.`;
  const place = { url: token_url, name: 'the token URL', ca_file: target.ca_file };
  return answerProblem(reply, place, {
    silent: `The token endpoint ${token_url} sends no response (${tell(reply)}): see its log.`,
    refused,
    missing: `The token endpoint ${token_url} answers ${reply.status ?? ''}: fix --token-url.`,
    flag: '--token-url',
    usual: isRefusal(reply) ? refused : none,
  });
}

function readProblem(reply: Reply, run: PartnerRun): ConfigProblem | undefined {
  const { base_url, authentication, accounts, ca_file } = run.target;
  if (isSuccess(reply)) {
    return pageProblem(
      reply,
      'GET account returns a web page: base_url or paths.get_account points to a website, not to the API.',
    );
  }
  const hint = base_url.startsWith('http:') ? ', or check whether it requires https' : '';
  const credential =
    authentication.method === 'key'
      ? `the key in the header ${authentication.header}: fix --header and --key`
      : 'the access token: fix --scope, or make the API accept tokens from its own token endpoint';
  const place = { url: base_url, name: 'base_url', ca_file };
  return answerProblem(reply, place, {
    silent: `The server accepts connections, but GET account gets no response (${reply.exchange.no_answer ?? 'nothing'}): see its log${hint}.`,
    refused: `The server refuses (${reply.status ?? ''}) ${credential}.`,
    missing: `GET account answers ${reply.status ?? ''}: fix base_url or paths.get_account, or pass an existing account with --biller and --account (now ${accounts.payable}).`,
    flag: '--base-url',
    usual: `GET of the known account answers ${tell(reply)}: see the server's log, or fix base_url, paths.get_account, --biller or --account.`,
  });
}
