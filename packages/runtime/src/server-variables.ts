/** The variables that both servers read, so that a name has the same meaning in both. */
import { address, fraction, integer, oneOf, secret, text } from './config.ts';
import { dataDirectory } from './data-directory.ts';
import { believing } from './http/front.ts';

/** The rows of the environment table that both servers have; only the defaults of numbers differ. */
export function serverVariables(defaults: {
  /** Name of the server in traces. */
  service: string;
  port: number;
  adminPort: number;
  connections: number;
  leastConnections: number;
}) {
  return {
    host: {
      name: 'HOST',
      parse: text,
      default: '127.0.0.1',
      description: 'address of the public listener',
    },
    port: {
      name: 'PORT',
      parse: integer(0, 65_535),
      default: defaults.port,
      description: 'its port',
    },
    adminHost: {
      name: 'ADMIN_HOST',
      parse: text,
      default: '127.0.0.1',
      description: 'address of the admin listener',
    },
    adminPort: {
      name: 'ADMIN_PORT',
      parse: integer(0, 65_535),
      default: defaults.adminPort,
      description: 'its port',
    },
    adminHosts: {
      name: 'DUEBRIDGE_ADMIN_HOSTS',
      parse: (value: string): readonly string[] =>
        value.split(',').map((name) => name.trim().toLowerCase()),
      default: undefined,
      description:
        'host names that the admin listener answers to, comma-separated; addresses always work',
      otherwise: 'localhost; any if ADMIN_HOST is set',
    },
    trustedProxies: {
      name: 'DUEBRIDGE_TRUSTED_PROXIES',
      parse: (value: string): readonly string[] => {
        const proxies = value.split(',').map((one) => one.trim());
        believing(proxies);
        return proxies;
      },
      default: undefined,
      description:
        'proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: addresses or networks, comma-separated',
      otherwise: 'those of this machine',
    },
    databaseUrl: {
      name: 'DATABASE_URL',
      parse: address('postgres:', 'postgresql:'),
      default: undefined,
      description: 'PostgreSQL to use, such as postgres://user:password@host:port/database',
      otherwise: 'an embedded one in the data directory',
      secret: true,
    },
    databaseWaitSeconds: {
      name: 'DUEBRIDGE_DATABASE_WAIT',
      parse: integer(0, 86_400),
      default: 60,
      description:
        'seconds for which a start, or migrate, waits for a database that does not answer',
    },
    databaseConnections: {
      name: 'DUEBRIDGE_DATABASE_CONNECTIONS',
      parse: integer(defaults.leastConnections, 500),
      default: defaults.connections,
      description: 'maximum number of database connections',
    },
    dataDirectory: {
      name: 'DUEBRIDGE_DATA_DIR',
      parse: (value: string) => dataDirectory({ DUEBRIDGE_DATA_DIR: value }),
      default: dataDirectory({}),
      description: 'folder of the embedded database and of generated secrets',
      otherwise: '.duebridge',
    },
    adminKey: {
      name: 'DUEBRIDGE_ADMIN_KEY',
      parse: secret,
      default: undefined,
      description: 'bearer key of the admin API',
      otherwise: 'generated once and kept in the data directory',
      secret: true,
    },
    tracesEndpoint: {
      name: 'OTEL_EXPORTER_OTLP_ENDPOINT',
      parse: address('http:', 'https:'),
      default: undefined,
      description:
        'OpenTelemetry collector that takes traces by OTLP over HTTP, such as http://collector:4318',
      otherwise: 'no traces are sent',
    },
    tracesRatio: {
      name: 'OTEL_TRACES_SAMPLER_ARG',
      parse: fraction,
      default: 1,
      description: 'fraction of the payments that is traced, from 0 to 1',
    },
    tracesService: {
      name: 'OTEL_SERVICE_NAME',
      parse: text,
      default: defaults.service,
      description: 'name of this server in the traces',
    },
    logLevel: {
      name: 'LOG_LEVEL',
      parse: oneOf('debug', 'info', 'warn', 'error', 'silent'),
      default: 'info',
      description: 'lowest level that is logged: debug, info, warn, error or silent',
    },
  } as const;
}
