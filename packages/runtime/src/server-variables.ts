/** The variables that both servers read, so that a name has the same meaning in both. */
import { address, integer, names, oneOf, secret, setting, text } from './config.ts';
import { dataDirectory } from './data-directory.ts';
import { believing } from './http/front.ts';

/** The rows of the environment table that both servers have; only the defaults of numbers differ. */
export function serverVariables(defaults: {
  port: number;
  adminPort: number;
  connections: number;
  leastConnections: number;
}) {
  return {
    host: setting('HOST', text, 'address of the public listener', { default: '127.0.0.1' }),
    port: setting('PORT', integer(0, 65_535), 'its port', { default: defaults.port }),
    adminHost: setting('ADMIN_HOST', text, 'address of the admin listener', {
      default: '127.0.0.1',
    }),
    adminPort: setting('ADMIN_PORT', integer(0, 65_535), 'its port', {
      default: defaults.adminPort,
    }),
    adminHosts: setting(
      'DUEBRIDGE_ADMIN_HOSTS',
      (value) => names(value.toLowerCase()),
      'host names that the admin listener answers to, comma-separated; addresses always work',
      { otherwise: 'localhost; any if ADMIN_HOST is set' },
    ),
    trustedProxies: setting(
      'DUEBRIDGE_TRUSTED_PROXIES',
      (value) => {
        const proxies = names(value);
        believing(proxies);
        return proxies;
      },
      'proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: addresses or networks, comma-separated',
      { otherwise: 'those of this machine' },
    ),
    databaseUrl: setting(
      'DATABASE_URL',
      address('postgres:', 'postgresql:'),
      'PostgreSQL to use, such as postgres://user:password@host:port/database',
      { otherwise: 'an embedded one in the data directory', secret: true },
    ),
    databaseWaitSeconds: setting(
      'DUEBRIDGE_DATABASE_WAIT',
      integer(0, 86_400),
      'seconds for which a start, or migrate, waits for a database that does not answer',
      { default: 60 },
    ),
    databaseConnections: setting(
      'DUEBRIDGE_DATABASE_CONNECTIONS',
      integer(defaults.leastConnections, 500),
      'maximum number of database connections',
      { default: defaults.connections },
    ),
    dataDirectory: setting(
      'DUEBRIDGE_DATA_DIR',
      (value: string) => dataDirectory({ DUEBRIDGE_DATA_DIR: value }),
      'folder of the embedded database and of generated secrets',
      { default: dataDirectory({}), otherwise: '.duebridge' },
    ),
    adminKey: setting('DUEBRIDGE_ADMIN_KEY', secret, 'bearer key of the admin API', {
      otherwise: 'generated once and kept in the data directory',
      secret: true,
    }),
    logLevel: setting(
      'LOG_LEVEL',
      oneOf('debug', 'info', 'warn', 'error', 'silent'),
      'lowest level that is logged: debug, info, warn, error or silent',
      { default: 'info' },
    ),
  } as const;
}
