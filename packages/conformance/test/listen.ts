/** Servers of the tests: opened on a free port of this machine, closed with their connections, and certified by themselves. */
import type { IncomingMessage, Server } from 'node:http';
import type { Server as TcpServer, AddressInfo } from 'node:net';

/** Listens on a free port of 127.0.0.1. Returns the port. */
export async function listen(server: TcpServer): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(0, '127.0.0.1', resolve);
  });
  return (server.address() as AddressInfo).port;
}

/** Ends every connection and stops listening. */
export async function closeAll(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => {
    server.close(resolve);
  });
}

/** The body of a request. Rejects when the caller disconnects before its end. */
export async function textOf(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const piece of request.setEncoding('utf8')) text += String(piece);
  return text;
}

/** A self-signed certificate for 127.0.0.1 and partner.example until 2049 that is its own authority. */
export const CERTIFICATE = {
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgdAj03hKajlDLUkZhOtQjIttcQ4nIGZWCZ+XDIQvE+3Wh
RANCAAQ4BnDPG+TZ8B4lSaHF72Nd4I3M0r8ivdkr68T/iyk9ScjJhb/U1TmaPoHk+7GfRI/Qlfblod4SRMTDZglteqQd
-----END PRIVATE KEY-----
`,
  cert: `-----BEGIN CERTIFICATE-----
MIIBUzCCAPmgAwIBAgIBATAKBggqhkjOPQQDAjAZMRcwFQYDVQQDDA5kdWVicmlkZ2UgdGVzdDAeFw0yMDAxMDEwMDAw
MDBaFw00OTEyMzEyMzU5NTlaMBkxFzAVBgNVBAMMDmR1ZWJyaWRnZSB0ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD
QgAEOAZwzxvk2fAeJUmhxe9jXeCNzNK/Ir3ZK+vE/4spPUnIyYW/1NU5mj6B5Puxn0SP0JX25aHeEkTEw2YJbXqkHaMy
MDAwIAYDVR0RBBkwF4cEfwAAAYIPcGFydG5lci5leGFtcGxlMAwGA1UdEwQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIg
X49rDtJf1xwTjH/8FxI2IyVhnFEcpar6VBp3T8lW8WQCIQCCkpdXvHYlOd+EgtP95HEvYLsRaHHeRG4ebf7/Y7EGJg==
-----END CERTIFICATE-----
`,
};
