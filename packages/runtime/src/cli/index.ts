/** Shared by the commands of both servers. Loads neither a server nor a database driver. */
export * from '../config.ts';
export * from '../data-directory.ts';
export * from '../errors.ts';
export * from '../server-variables.ts';
export * from '../stop-request.ts';
export * from './admin-client.ts';
export * from './audit-verify.ts';
export * from './operation.ts';
export * from './print.ts';
export * from './terminal.ts';
