/** The period of the charts, and its figures. */
import type { Figures } from '@duebridge/contract';
import { get } from './api.ts';
import { useRead } from './parts.tsx';
import { query, withQuery } from './route.ts';

const ranges = ['1h', '24h', '7d'] as const;

/** Chooses the period of the charts; the address keeps it. */
export function Ranges() {
  const range = query.value.get('range') ?? '24h';
  return (
    <nav class="views" aria-label="Time">
      {ranges.map((one) => (
        <a
          key={one}
          href={withQuery({ range: one })}
          aria-current={one === range ? 'page' : undefined}
        >
          {one}
        </a>
      ))}
    </nav>
  );
}

/** The figures of the chosen period: of all partners, or of one. */
export function useFigures(partner_id?: string) {
  const range = query.value.get('range') ?? '24h';
  const search = new URLSearchParams({
    range,
    ...(partner_id === undefined ? {} : { partner_id }),
  });
  return useRead(`figures ${search}`, () => get<Figures>(`/figures?${search}`));
}
