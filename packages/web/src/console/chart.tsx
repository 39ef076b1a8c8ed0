/** Charts over time, each with a table for people who cannot see the canvas. */
import type { Figures } from '@duebridge/contract';
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { lasting, moment, Table } from './parts.tsx';

type Point = Figures['points'][number];
/** Below this many samples a percentile means little; the table shows the number of samples. */
const FEW_SAMPLES = 20;

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Durations until the end of a payment: the median and the 95th and 99th percentile, on a logarithmic axis. */
export function TimesChart({ figures }: { figures: Figures }) {
  return (
    <Chart
      title="Time from confirm to posted"
      figures={figures}
      series={[
        { label: 'p50', color: '--blue', of: (point) => point.p50_ms },
        { label: 'p95', color: '--orange', of: (point) => point.p95_ms },
        { label: 'p99', color: '--red', of: (point) => point.p99_ms },
      ]}
      log
      text={(value) => (value === null ? '–' : lasting(value))}
      more={[
        {
          head: 'Samples',
          cell: (point) => `${point.samples}${point.samples < FEW_SAMPLES ? ' (few)' : ''}`,
        },
      ]}
    />
  );
}

/** How payments ended. */
export function OutcomesChart({ figures }: { figures: Figures }) {
  return (
    <Chart
      title="Payments by outcome"
      figures={figures}
      series={[
        { label: 'succeeded', color: '--green', of: (point) => point.succeeded },
        { label: 'failed', color: '--red', of: (point) => point.failed },
        { label: 'canceled', color: '--orange', of: (point) => point.canceled },
        { label: 'processing', color: '--blue', of: (point) => point.processing },
      ]}
      text={(value) => String(value ?? 0)}
      more={[]}
    />
  );
}

interface Series {
  readonly label: string;
  readonly color: string;
  readonly of: (point: Point) => number | null;
}

function Chart(props: {
  title: string;
  figures: Figures;
  series: readonly Series[];
  log?: boolean;
  text: (value: number | null) => string;
  more: readonly { head: string; cell: (point: Point) => string }[];
}) {
  const { title, figures, series, log = false, text } = props;
  const [asTable, setAsTable] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const host = place.current;
    if (host === null || asTable) return undefined;
    const { points } = figures;
    const ink = color('--ink');
    const grid = { stroke: color('--line'), width: 1 };
    const chart = new uPlot(
      {
        width: host.clientWidth,
        height: 200,
        scales: {
          x: { time: true },
          y: log ? { distr: 3 } : { range: (_, __, max) => [0, Math.max(1, max)] },
        },
        axes: [
          { stroke: ink, grid },
          {
            stroke: ink,
            grid,
            size: 70,
            values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : text(tick))),
          },
        ],
        series: [
          {},
          ...series.map((one) => ({
            label: one.label,
            stroke: color(one.color),
            width: 2,
            value: (_: uPlot, value: number | null) => text(value),
          })),
        ],
      },
      [
        points.map((point) => Date.parse(point.at) / 1_000),
        // A logarithmic axis has no zero.
        ...series.map((one) =>
          points.map((point) => (log ? one.of(point) || null : one.of(point))),
        ),
      ],
      host,
    );
    const follow = new ResizeObserver(() =>
      chart.setSize({ width: host.clientWidth, height: 200 }),
    );
    follow.observe(host);
    return () => {
      follow.disconnect();
      chart.destroy();
    };
  }, [figures, asTable]);
  return (
    <section class="chart" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <button type="button" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          As a table
        </button>
      </header>
      {asTable ? (
        <Table
          caption={title}
          rows={figures.points}
          keyOf={(point) => point.at}
          empty="No payments in this period."
          columns={[
            { head: 'From', cell: (point) => moment(point.at) },
            ...series.map((one) => ({
              head: one.label,
              number: true as const,
              cell: (point: Point) => text(one.of(point)),
            })),
            ...props.more,
          ]}
        />
      ) : (
        <div
          ref={place}
          role="img"
          aria-label={`${title}; the same as a table by the button above`}
        />
      )}
    </section>
  );
}
