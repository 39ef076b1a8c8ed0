import type { Migrations } from '@duebridge/runtime';

/** The kit's tables and their migrations (decision 34). */
export const migrations: Migrations = {
  schema: 'duebridge_partner',
  directory: new URL('./migrations/', import.meta.url),
};
