/**
 * The engine's figures. Labels are partners and closed lists, never ids of payments or customers (P15).
 */
import type { Metrics } from '@duebridge/runtime';

/** What the engine counts. */
export interface EngineMetrics {
  submitted(partner_id: string, outcome: string): void;
  polled(partner_id: string, outcome: string): void;
  ended(partner_id: string, status: string): void;
  /** The partner broke the interface in a way that decides nothing, or that froze a payment. */
  breached(partner_id: string, kind: string): void;
  broken(partner_id: string, open: boolean): void;
  /** Milliseconds from the end at the partner to the end here. */
  detected(partner_id: string, ms: number): void;
}

/** Registers the figures; `inFlight` and `ages` are read when they are asked for. Without metrics, counts nothing. */
export function engineMetrics(
  metrics: Metrics | undefined,
  now: { inFlight(): number; ages(): { readonly oldestSeconds: number; readonly overdue: number } },
): EngineMetrics {
  if (metrics === undefined) {
    const nothing = (): void => undefined;
    return {
      submitted: nothing,
      polled: nothing,
      ended: nothing,
      breached: nothing,
      broken: nothing,
      detected: nothing,
    };
  }
  const counter = (name: string, help: string, label: string) => {
    const made = metrics.counter(name, help, ['partner_id', label]);
    return (partner_id: string, value: string): void => made.inc({ partner_id, [label]: value });
  };
  const breaker = metrics.gauge('duebridge_breaker_open', 'Partners whose calls are held back', [
    'partner_id',
  ]);
  const detection = metrics.histogram(
    'duebridge_detection_seconds',
    'From posted_at at the partner to the end here',
    ['partner_id'],
  );
  metrics.gauge('duebridge_payments_in_flight', 'Payments driven by this worker', [], () =>
    now.inFlight(),
  );
  metrics.gauge(
    'duebridge_oldest_in_flight_seconds',
    'Age of the oldest payment driven by this worker',
    [],
    () => now.ages().oldestSeconds,
  );
  metrics.gauge(
    'duebridge_payments_overdue',
    'Payments driven by this worker that have not ended within 24 hours: for an operator',
    [],
    () => now.ages().overdue,
  );
  return {
    submitted: counter('duebridge_submits_total', 'PUTs of payments, by outcome', 'outcome'),
    polled: counter('duebridge_polls_total', 'GETs of payment status, by outcome', 'outcome'),
    ended: counter('duebridge_payments_ended_total', 'Payments that ended, by status', 'status'),
    breached: counter(
      'duebridge_partner_breaches_total',
      'Answers that break the interface',
      'kind',
    ),
    broken: (partner_id, open) => breaker.set({ partner_id }, open ? 1 : 0),
    detected: (partner_id, ms) => detection.observe({ partner_id }, ms / 1_000),
  };
}
