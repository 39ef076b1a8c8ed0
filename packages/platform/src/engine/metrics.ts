/**
 * The engine's figures. Labels are partners and closed lists, never ids of payments or customers (PL15).
 */
import { createMetrics, type Metrics } from '@duebridge/runtime';

/** From a partner that posts at once to one that posts in a nightly run, in seconds. */
const PAYMENT_BUCKETS = [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200, 43_200, 86_400];

/** What the engine counts. */
export type EngineMetrics = ReturnType<typeof engineMetrics>;

/**
 * Partners with a label of their own; the rest are counted together as `other`. A partner has some eight lines, so that a page of
 * figures stays below a megabyte however many partners there are; at 5,000 it was 9 MB. Breakers are
 * told by name: those that ever opened are few.
 */
const MAX_LABELS = 500;

/** Returns the label of a partner: its id for the first MAX_LABELS that are named, `other` after that. */
function partnerLabels(): (partner_id: string) => string {
  const known = new Set<string>();
  return (partner_id) => {
    if (!known.has(partner_id) && known.size >= MAX_LABELS) return 'other';
    known.add(partner_id);
    return partner_id;
  };
}

/** What is read on each scrape. */
const GAUGES = {
  lease_age_seconds:
    'Time since the worker of this process last proved its lease; it relies on one for 7 s',
  oldest_due_call_seconds:
    'How long a due call has waited although it could have started; /readyz fails beyond 60 s',
  slots_owned: 'Slots that the worker of this process owns, of 1,024 that all share',
  payments_in_flight: 'Payments driven by this worker',
};

/** Registers the metrics, with what gives each gauge; without `metrics`, counts for nobody. */
export function engineMetrics(
  metrics: Metrics = createMetrics({ processFigures: false }),
  gauges: Readonly<Record<keyof typeof GAUGES, () => number>>,
) {
  const labelOf = partnerLabels();
  const counter = (name: string, help: string, label: string) => {
    const made = metrics.counter(name, help, ['partner_id', label]);
    return (partner_id: string, value: string): void =>
      made.inc({ partner_id: labelOf(partner_id), [label]: value });
  };
  for (const [name, read] of Object.entries(gauges))
    metrics.gauge(`duebridge_${name}`, GAUGES[name as keyof typeof GAUGES], [], read);
  const breaches = counter(
    'duebridge_partner_breaches_total',
    'Answers that violate the interface',
    'kind',
  );
  const ended = counter('duebridge_payments_ended_total', 'Payments that ended', 'status');
  const lasting = metrics.histogram(
    'duebridge_payment_seconds',
    'Time from the customer’s confirm to the end here, by status',
    ['status'],
    PAYMENT_BUCKETS,
  );
  const breaker = metrics.gauge('duebridge_breaker_open', 'Partners whose calls are held back', [
    'partner_id',
  ]);
  const detection = metrics.histogram(
    'duebridge_detection_seconds',
    'Time from the partner’s posted_at to the end here',
  );
  return {
    submitted: counter('duebridge_submits_total', 'PUTs of payments, by outcome', 'outcome'),
    polled: counter('duebridge_polls_total', 'GETs of payment status, by outcome', 'outcome'),
    /** A payment ended, `ms` after its customer confirmed it. */
    ended(partner_id: string, status: string, ms: number): void {
      ended(partner_id, status);
      lasting.observe({ status }, Math.max(0, ms) / 1_000);
    },
    /**
     * The partner broke the interface, in a way that had no effect or that froze a payment. The kinds are ours, except that a rejection
     * names the partner's own code, which may be any word.
     */
    breached: (partner_id: string, kind: string): void =>
      breaches(partner_id, /^rejected_\d{3}/.exec(kind)?.[0] ?? kind),
    broken: (partner_id: string, open: boolean): void => breaker.set({ partner_id }, open ? 1 : 0),
    /** Milliseconds from the end at the partner to the end here. */
    detected: (ms: number): void => detection.observe({}, ms / 1_000),
  };
}
