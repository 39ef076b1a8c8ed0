/** The ground both servers stand on: database, time, HTTP, service life. Imports the contract only. */
export * from './clock.ts';
export * from './config.ts';
export * from './data-directory.ts';
export * from './deployment.ts';
export * from './embedded-postgres.ts';
export * from './errors.ts';
export * from './group-commit.ts';
export * from './kept-secret.ts';
export * from './log.ts';
export * from './migrations.ts';
export * from './postgres.ts';
export * from './http/index.ts';
export * from './lifecycle.ts';
export * from './logger.ts';
export * from './metrics.ts';
export * from './server-database.ts';
export * from './server-variables.ts';
