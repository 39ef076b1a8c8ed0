/** A world as an HTML page: one lane for each worker and partner, time running down, with what was sent, answered and recorded. */
import type { Event } from './history.ts';
import type { Outcome } from './world.ts';

const LANE_PX = 190;
const ROW_PX = 18;
/** Events on one page: beyond it nobody scrolls. */
const MAX_EVENTS = 4_000;

/** The page, in one file. */
export function chart({ seed, history, violations }: Outcome): string {
  const events = history.events.slice(0, MAX_EVENTS);
  const lanes = [...new Set(events.flatMap(lanesOf))].sort();
  const x = (lane: string): number => 130 + lanes.indexOf(lane) * LANE_PX;
  const calls = new Map<number, Extract<Event, { kind: 'sent' }>>();
  const rows = events.map((event, index) => {
    if (event.kind === 'sent') calls.set(event.call, event);
    const y = 40 + index * ROW_PX;
    const time = `<text x="8" y="${y}" class="t">${(event.at / 1_000).toFixed(3)} s</text>`;
    return time + drawn(event, y, x, calls);
  });
  const height = 60 + events.length * ROW_PX;
  const width = 160 + lanes.length * LANE_PX;
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Seed ${seed}</title>
<style>body{font:13px system-ui;margin:16px}text{font:11px ui-monospace,monospace}.t{fill:#777}.f{fill:#b00020}.r{fill:#0a6}.v{color:#b00020}line{stroke:#bbb}path{stroke:#36c;fill:none}</style>
<h1>Seed ${seed}</h1>
<ul>${violations.map(({ rule, what }) => `<li class="v"><b>${rule}</b> ${escape(what)}</li>`).join('') || '<li>Every guarantee held.</li>'}</ul>
<svg width="${width}" height="${height}" role="img" aria-label="Sequence of events">
${lanes.map((lane) => `<text x="${x(lane)}" y="16">${escape(lane)}</text><line x1="${x(lane)}" x2="${x(lane)}" y1="22" y2="${height}"/>`).join('\n')}
${rows.join('\n')}
</svg></html>
`;
}

function lanesOf(event: Event): string[] {
  return event.kind === 'sent'
    ? [event.by, event.partner]
    : event.kind === 'row'
      ? ['database']
      : [];
}

function drawn(
  event: Event,
  y: number,
  x: (lane: string) => number,
  calls: ReadonlyMap<number, Extract<Event, { kind: 'sent' }>>,
): string {
  const arrow = (a: number, b: number, text: string): string =>
    `<path d="M${a} ${y - 4} L${b} ${y - 4} l${a < b ? -6 : 6} -3 m0 6 l${a < b ? 6 : -6} -3"/><text x="${Math.min(a, b) + 6}" y="${y - 7}">${escape(text)}</text>`;
  switch (event.kind) {
    case 'sent':
      return arrow(x(event.by), x(event.partner), `${event.method} ${short(event.id)}`);
    case 'answered':
    case 'arrived': {
      const call = calls.get(event.call);
      if (call === undefined) return '';
      const what =
        event.kind === 'answered' ? (event.answer.status ?? event.answer.http) : event.answer;
      return event.kind === 'answered'
        ? `<text x="${x(call.partner) + 6}" y="${y}">answers ${escape(String(what))}</text>`
        : arrow(x(call.partner), x(call.by), String(what));
    }
    case 'row':
      return `<text class="r" x="${x('database') + 6}" y="${y}">${short(event.id)} ${escape(event.stage)} ${escape(event.status)}</text>`;
    case 'confirmed':
      return `<text class="r" x="130" y="${y}">a customer confirms ${short(event.id)} at ${escape(event.partner)}, ${event.cents} cents</text>`;
    case 'fault':
      return `<text class="f" x="130" y="${y}">${escape(event.what)}</text>`;
    case 'told':
      return `<text class="t" x="130" y="${y}">the page of ${short(event.id)} is told ${escape(event.status)}</text>`;
    case 'healed':
      return `<text class="r" x="130" y="${y}">everything heals</text>`;
  }
}

function short(id: string): string {
  return escape(id.slice(-6));
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
