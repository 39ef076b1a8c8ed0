/** How payments went over time: how many ended in which way, and how long that took. */
import type { Figures } from '@duebridge/contract';
import { Choices, chosen, lasting, moment, Show, Table } from './parts.tsx';

/** Below this many samples a percentile means little. */
const FEW_SAMPLES = 20;

const time = (ms: number | null): string => (ms === null ? '–' : lasting(ms));

/** The figures of the chosen period: of all partners, or of one. */
export function FiguresOf({ partner_id }: { partner_id?: string }) {
  const range = chosen('range', '24h');
  const search = new URLSearchParams({ range, ...(partner_id && { partner_id }) });
  return (
    <>
      <Choices label="Time" name="range" all={['24h', '7d']} chosen={range} />
      <Show<Figures> path={`/figures?${search}`}>
        {({ points }) => (
          <Table
            caption="Payments by the time of their confirm, newest first, and the time to their end"
            rows={points
              .filter((one) => one.succeeded + one.failed + one.canceled + one.processing > 0)
              .toReversed()}
            empty="No payments in this period."
            columns={[
              ['From', (one) => moment(one.at)],
              ['Succeeded', (one) => one.succeeded, 'number'],
              ['Failed', (one) => one.failed, 'number'],
              ['Canceled', (one) => one.canceled, 'number'],
              ['Processing', (one) => one.processing, 'number'],
              ['p50', (one) => time(one.p50_ms), 'number'],
              ['p95', (one) => time(one.p95_ms), 'number'],
              ['p99', (one) => time(one.p99_ms), 'number'],
              ['Samples', ({ samples: n }) => `${n}${n < FEW_SAMPLES ? ' (few)' : ''}`, 'number'],
            ]}
          />
        )}
      </Show>
    </>
  );
}
