// @ts-check
import { createLogger, runService, startPartner } from '@duebridge/partner';
import { accounts } from './accounts.js';
import { settings } from './settings.js';

const log = createLogger({ name: '{{name}}', privateKeys: ['x-api-key'] });
await runService({ log, start: async () => startPartner({ ...settings(), accounts, log }) });
