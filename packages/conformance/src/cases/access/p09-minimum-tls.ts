import { connect as connectTls } from 'node:tls';
import type { Clock } from '../../clock.ts';
import type { PartnerCase } from '../../check/check.ts';
import { CONNECT_TIMEOUT_MS, isSuccess, tell } from '../../check/http.ts';
import { proxyFor, tunnelTo } from '../../check/proxy.ts';
import { isLoopback } from '../../check/target.ts';

export const p09: PartnerCase = {
  id: 'P09',
  title: 'Connections below TLS 1.2 are refused',
  clauses: ['S3'],
  decisions: [30],
  severity: 'should',
  profile: 'strict',
  sends:
    'a TLS handshake that offers at most TLS 1.1; and, on port 80, GET account without a credential',
  expects: 'the handshake fails; plain http is refused or redirected to https',
  likely_cause: 'The load balancer still uses an old default for its minimum TLS version.',
  unfit: (target) =>
    target.base_url.startsWith('http:') ? 'the target uses plain http on this machine' : undefined,
  async run(t) {
    const url = new URL(
      t.run.url('get_account', {
        biller_id: t.target.biller_id,
        account_id: t.target.accounts.payable,
      }),
    );
    const version = await oldHandshake(url, t.run.clock);
    t.should(version === undefined, {
      expected: 'a handshake below TLS 1.2 fails',
      got: `the server agreed on ${version ?? 'none'}`,
    });
    // Only https goes through a proxy, and without one the server is out of reach.
    if (isLoopback(url.hostname) || proxyFor(url) !== undefined) return;
    const plain = await t.send({
      method: 'GET',
      url: `http://${url.hostname}${url.pathname}`,
      timeout_ms: CONNECT_TIMEOUT_MS,
    });
    t.should(!isSuccess(plain) && plain.status !== 401, {
      expected: 'plain http is refused or redirected to https',
      got: tell(plain),
      at: plain,
    });
  },
};

/** The protocol negotiated when the client offers at most TLS 1.1; undefined when the server refuses. */
async function oldHandshake(url: URL, clock: Clock): Promise<string | undefined> {
  const through = await tunnelTo(url, clock).catch(() => undefined);
  return new Promise((resolve) => {
    const socket = connectTls({
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: Number(url.port || 443),
      servername: url.hostname,
      ...(through === undefined ? {} : { socket: through }),
      minVersion: 'TLSv1',
      maxVersion: 'TLSv1.1',
      // OpenSSL 3 offers these versions only at a lower security level. Nothing is sent over the connection.
      ciphers: 'DEFAULT@SECLEVEL=0',
      rejectUnauthorized: false,
    });
    const end = (version: string | undefined): void => {
      cancel();
      socket.destroy();
      resolve(version);
    };
    const cancel = clock.after(CONNECT_TIMEOUT_MS, () => end(undefined));
    socket.once('secureConnect', () => end(socket.getProtocol() ?? undefined));
    socket.once('error', () => end(undefined));
  });
}
