/** Metrics for Prometheus. */
import {
  collectDefaultMetrics,
  Counter,
  Gauge,
  Histogram,
  Registry,
  type OpenMetricsContentType,
  type PrometheusContentType,
} from 'prom-client';

/**
 * The metrics of one process. Names begin with `duebridge_`; labels have few, fixed values, never ids of customers or payments.
 */
export type Metrics = ReturnType<typeof createMetrics>;

/** From 1 ms to 30 s: a read from memory to the longest waiting read. */
const secondsBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/**
 * Creates the metrics of one process, with Node's own (memory, event loop, garbage collection) unless `processFigures` is false.
 */
export function createMetrics(options: { processFigures?: boolean } = {}) {
  const register = new Registry<PrometheusContentType | OpenMetricsContentType>();
  const registers = [register];
  if (options.processFigures ?? true) collectDefaultMetrics({ register });
  return {
    counter: (name: string, help: string, labelNames: readonly string[] = []): Counter =>
      new Counter({ name, help, labelNames, registers }),
    gauge: (
      name: string,
      help: string,
      labelNames: readonly string[] = [],
      collect?: () => number,
    ): Gauge =>
      new Gauge({
        name,
        help,
        labelNames,
        registers,
        collect() {
          if (collect !== undefined) this.set(collect());
        },
      }),
    /** `buckets` in the unit of the name, mostly seconds. */
    histogram: (
      name: string,
      help: string,
      labelNames: readonly string[] = [],
      buckets: readonly number[] = secondsBuckets,
    ): Histogram => new Histogram({ name, help, labelNames, registers, buckets: [...buckets] }),
    /** The answer of /metrics. */
    text: (): Promise<string> => register.metrics(),
    contentType: register.contentType,
  };
}
