/** Helpers for peers under test, shared by the kill matrix, the mutants and the third-party callers. */
import type { Draft } from '../src/check/target.ts';
import { FAULT_HEADER } from './wrong-platform.ts';

/** The target file of a scripted platform: its token endpoint and flow, with small samples, so that hundreds can be judged. */
export function platformDraft(
  platform: {
    readonly url: string;
    readonly client_id: string;
    readonly api_key: string;
    readonly unknown_account_id: string;
  },
  kind: 'biller' | 'aggregator',
): Draft {
  const { url, client_id, api_key, unknown_account_id } = platform;
  return {
    base_url: url,
    client_id,
    api_key,
    kind,
    biller_id: 'judge',
    account_id: 'A-1',
    unknown_account_id,
    flow: true,
    internal_fault_headers: { [FAULT_HEADER]: '1' },
    token_sample: 20,
    burst: 80,
  };
}
