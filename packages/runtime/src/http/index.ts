/** HTTP for both servers, by job. */
export * from './admin-guard.ts';
export * from './assets.ts';
export * from './caller-limits.ts';
export * from './errors.ts';
export { addressKey, shutOut } from './front.ts';
export * from './listen.ts';
export * from './mount.ts';
export * from './operations.ts';
export * from './rate-limiter.ts';
export * from './server.ts';
