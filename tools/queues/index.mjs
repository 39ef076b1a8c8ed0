export { Logger, run, runMigrations } from 'graphile-worker';
