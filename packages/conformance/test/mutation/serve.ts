/**
 * Runs a sandbox peer in a separate process, so that its source can be mutated.
 *
 *   node serve.ts partner-key|partner-oauth|platform-biller|platform-aggregator
 *
 * Prints one line of JSON once it listens.
 */
import { startScriptedPartner } from '../../src/sandbox/partner.ts';
import { openPlatformProxy } from '../wrong-platform.ts';
import { AUTHS } from './credentials.ts';

const [what, how] = (process.argv[2] ?? '').split('-');
const told =
  what === 'platform'
    ? await openPlatformProxy(how === 'aggregator' ? 'aggregator' : 'biller')
    : await startScriptedPartner({
        auth: AUTHS[how === 'oauth' ? 'oauth' : 'key'],
        processing_ms: 40,
      });
console.log(JSON.stringify(told));
