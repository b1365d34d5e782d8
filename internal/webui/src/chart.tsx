// Charts of the last hour, from the brokers' memory.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { useData, address } from "./api";
import { clock as clockOf, unknown } from "./format";
import { SettingsContext } from "./settings";
import type { Maybe, Series } from "./types";

export interface Line { name: string; label: string }
export interface Picture { title: string; lines: Line[]; format: (v: Maybe<number>) => string }

const tones = ["--line1", "--line2", "--line3"];

// Charts draws pictures of one object: of the cluster without arguments.
export function Charts({ of, pictures }: { of: Record<string, string>; pictures: Picture[] }) {
  const series = useData<Series>(address("v1/console/series", of), 10000);
  const s = series.data;
  return <section aria-labelledby="charts"><h2 id="charts">The last hour</h2>
    {series.error && <p class="note dim">There is no history to draw: {series.error.message}</p>}
    {s && !s.kept && <p class="dim">There is no history of it: it is younger than 20 seconds, or not among the topics and channels whose history the brokers keep.</p>}
    {s?.kept && <div class="charts">{pictures.map(p => <Chart key={p.title} series={s} picture={p} />)}</div>}
  </section>;
}

function Chart({ series, picture }: { series: Series; picture: Picture }) {
  const box = useRef<HTMLDivElement>(null), plot = useRef<uPlot>(undefined), [at, setAt] = useState<number | null>(null);
  const { utc, dark } = useContext(SettingsContext);
  const known = picture.lines.some(l => series.series[l.name]?.some(v => v != null));

  useEffect(() => {
    const parent = box.current;
    if (!parent || !known) return;
    const css = getComputedStyle(document.documentElement), colour = (name: string) => css.getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const u = new uPlot({
      width: parent.clientWidth || 320, height: 150, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      tzDate: t => utc ? uPlot.tzDate(new Date(t * 1000), "Etc/UTC") : new Date(t * 1000),
      scales: { y: { range: (_, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, values: "{HH}:{mm}", space: 60, size: 30 }, { ...axis, size: 76, values: (_, ticks) => ticks.map(t => picture.format(t)) }],
      series: [{}, ...picture.lines.map((l, i) => ({ label: l.label, stroke: colour(tones[i]), width: 2, dash: i === 1 ? [6, 4] : undefined }))],
      hooks: { setCursor: [(p: uPlot) => setAt(p.cursor.idx ?? null)] },
    }, points(series, picture), parent);
    plot.current = u;
    const resized = new ResizeObserver(() => { if (parent.clientWidth) u.setSize({ width: parent.clientWidth, height: 150 }); });
    resized.observe(parent);
    return () => { resized.disconnect(); u.destroy(); plot.current = undefined; };
  }, [known, utc, dark, picture.title]);

  useEffect(() => { plot.current?.setData(points(series, picture)); }, [series]);

  const index = (l: Line) => at ?? last(series.series[l.name]);
  const value = (l: Line) => picture.format(series.series[l.name]?.[index(l)]);
  const most = (l: Line) => {
    const values = (series.series[l.name] ?? []).filter((v): v is number => v != null);
    return values.length ? picture.format(Math.max(...values)) : unknown;
  };
  const summary = picture.lines.map(l => `${l.label}: now ${picture.format(series.series[l.name]?.[last(series.series[l.name])])}, at most ${most(l)}`).join("; ");
  return <figure class="chart">
    <figcaption><strong>{picture.title}</strong> {picture.lines.map((l, i) => <span key={l.name} class="legend"><span aria-hidden="true" class={`stroke stroke${i + 1}`} />{l.label} <b>{value(l)}</b></span>)}
      {at !== null && <span class="dim"> at {clockOf(series.from_ms + at * series.step_seconds * 1000, utc)}</span>}</figcaption>
    {known ? <div ref={box} role="img" aria-label={`${picture.title} in the last hour. ${summary}.`} class="plot" /> : <p class="dim plot nothing">Nothing is known yet: the first values come after 20 seconds.</p>}
  </figure>;
}

function last(values: Maybe<number>[] | undefined): number {
  for (let i = (values?.length ?? 0) - 1; i >= 0; i--) if (values![i] != null) return i;
  return -1;
}

function points(s: Series, p: Picture): uPlot.AlignedData {
  const n = Math.max(0, ...p.lines.map(l => s.series[l.name]?.length ?? 0));
  const x = Array.from({ length: n }, (_, i) => (s.from_ms + i * s.step_seconds * 1000) / 1000);
  return [x, ...p.lines.map(l => s.series[l.name] ?? new Array<null>(n).fill(null))] as uPlot.AlignedData;
}
