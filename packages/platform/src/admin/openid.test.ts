/** Sign-in to the console through a real OpenID Connect provider: registered people get in with their role, others do not. */
import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import test, { after } from 'node:test';
import { freePort, served } from '@duebridge/runtime/testing';
import { Provider } from 'oidc-provider';
import { startTestPlatform } from '../checkout/testing.ts';

const adminPort = await freePort();
const redirectUrl = `http://127.0.0.1:${adminPort}/console/oidc/callback`;

/** A provider whose login page accepts any name. */
async function startProvider(): Promise<string> {
  let answer: RequestListener = (_request, response) => void response.end();
  const server = createServer((request, response) => answer(request, response));
  const issuer = await served({ after }, server);
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: 'console',
        client_secret: 'secret-of-the-console',
        redirect_uris: [redirectUrl],
        response_types: ['code'],
        grant_types: ['authorization_code'],
      },
    ],
    cookies: { keys: ['a key of the test'] },
    pkce: { required: () => true },
  });
  answer = provider.callback();
  return issuer;
}

const issuer = await startProvider();
const platform = await startTestPlatform(
  { after },
  {
    adminPort,
    openId: {
      issuer,
      clientId: 'console',
      clientSecret: 'secret-of-the-console',
      redirectUrl,
    },
  },
);

/** The parts of a browser that this flow needs: cookies by host and port, redirects, and forms. */
function browser() {
  const jars = new Map<string, Map<string, string>>();
  const cookiesFor = (host: string): string =>
    [...(jars.get(host) ?? [])].map(([name, value]) => `${name}=${value}`).join('; ');
  const visit = async (
    address: string,
    form?: Record<string, string>,
  ): Promise<{ url: string; text: string }> => {
    let url = new URL(address);
    let body = form;
    for (let hops = 0; hops < 20; hops += 1) {
      const jar = jars.get(url.host) ?? new Map<string, string>();
      jars.set(url.host, jar);
      const response = await fetch(url, {
        redirect: 'manual',
        method: body === undefined ? 'GET' : 'POST',
        headers: { cookie: cookiesFor(url.host) },
        ...(body === undefined ? {} : { body: new URLSearchParams(body) }),
      });
      for (const line of response.headers.getSetCookie()) {
        const [pair = ''] = line.split(';');
        const at = pair.indexOf('=');
        if (/max-age=0|expires=thu, 01 jan 1970/i.test(line)) jar.delete(pair.slice(0, at));
        else jar.set(pair.slice(0, at), pair.slice(at + 1));
      }
      const location = response.headers.get('location');
      const text = await response.text();
      if (location === null) return { url: url.href, text };
      url = new URL(location, url);
      body = undefined;
    }
    throw new Error('redirected forever');
  };
  return {
    visit,
    async signIn(name: string): Promise<string> {
      let page = await visit(`${platform.adminUrl}/console/oidc/start`);
      // The provider's login page, then its consent page.
      for (let forms = 0; forms < 3 && page.url.startsWith(issuer); forms += 1) {
        const action = /action="([^"]+)"/.exec(page.text)?.[1];
        assert.ok(action !== undefined, page.text);
        const prompt = /name="prompt" value="([^"]+)"/.exec(page.text)?.[1] ?? 'login';
        const fields = prompt === 'login' ? { login: name, password: 'any' } : {};
        page = await visit(new URL(action, page.url).href, { prompt, ...fields });
      }
      return page.url;
    },
    async self(): Promise<{ status: number; body: Record<string, unknown> }> {
      const cookie = cookiesFor(new URL(platform.adminUrl).host);
      const response = await fetch(`${platform.adminUrl}/admin/v1/me`, { headers: { cookie } });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    },
  };
}

test('a person known to the provider and added by an admin is signed in with their own role', async () => {
  await platform.admin('POST', '/admin/v1/operators', {
    operator_id: 'ada',
    name: 'Ada',
    role: 'operator',
    oidc_subject: 'ada@login',
  });
  const visitor = browser();
  assert.equal(await visitor.signIn('ada@login'), `${platform.adminUrl}/console`);
  const self = await visitor.self();
  assert.equal(self.body['operator_id'], 'ada');
  assert.equal(self.body['role'], 'operator');
  const audit = await platform.admin('GET', '/admin/v1/audit?event=operator_signed_in&actor=ada');
  assert.match(audit.text, /operator_signed_in/);
});

test('a person known to the provider but not added here gets no session and is told so', async () => {
  const visitor = browser();
  assert.equal(await visitor.signIn('mallory@login'), `${platform.adminUrl}/console?refused`);
  assert.equal((await visitor.self()).status, 401);
});

test('a disabled operator cannot sign in through the provider either', async () => {
  await platform.admin('PATCH', '/admin/v1/operators/ada', { disabled: true });
  const visitor = browser();
  assert.equal(await visitor.signIn('ada@login'), `${platform.adminUrl}/console?refused`);
  assert.equal((await visitor.self()).status, 401);
});

test('an unsolicited sign-in answer, or one with another state, opens no session', async () => {
  const visitor = browser();
  const unasked = await visitor.visit(`${redirectUrl}?code=x&state=y`);
  assert.match(unasked.url, /refused/);
  await visitor.visit(`${platform.adminUrl}/console/oidc/start`);
  const forged = await visitor.visit(`${redirectUrl}?code=x&state=forged`);
  assert.match(forged.url, /refused/);
  assert.equal((await visitor.self()).status, 401);
});
