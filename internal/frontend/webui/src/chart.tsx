// Charts of the last hour, or a part of it, from the brokers' memory.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { useData, address } from "./api";
import { clock as clockOf, unknown } from "./format";
import { SettingsContext, store, stored } from "./settings";
import { Select } from "./ui";
import type { Maybe, Series } from "./types";

export interface Line { name: string; label: string }
export interface Picture { title: string; axis: string; lines: Line[]; format: (v: Maybe<number>) => string }

const height = 170; // px
const ranges: [string, string][] = [["5", "5 minutes"], ["15", "15 minutes"], ["30", "30 minutes"], ["60", "the last hour"]];
const tones = ["--line1", "--line2", "--line3"];

// Charts draws pictures of one object: of the cluster without arguments.
export function Charts({ of, pictures }: { of: Record<string, string>; pictures: Picture[] }) {
  const [minutes, setMinutes] = useState(() => ranges.find(([m]) => m === stored("minutes", ""))?.[0] ?? "60");
  const series = useData<Series>(address("v1/console/series", { ...of, minutes }), 10000);
  const s = series.data;
  return <section aria-labelledby="charts"><div class="title"><h2 id="charts">History</h2>
    <Select label="Range" value={minutes} options={ranges} onChange={m => { setMinutes(m); store("minutes", m); }} /></div>
    {series.error && <p class="note dim">The history cannot be shown: {series.error.message}</p>}
    {s && !s.kept && <p class="dim">No history yet: it is less than 20 seconds old, or not among the topics and channels whose history the brokers record.</p>}
    {s?.kept && <div class="charts">{pictures.map(p => <Chart key={p.title} series={s} picture={p} />)}</div>}
  </section>;
}

function Chart({ series, picture }: { series: Series; picture: Picture }) {
  const box = useRef<HTMLDivElement>(null), plot = useRef<uPlot>(undefined), [at, setAt] = useState<{ i: number; left: number; right: boolean } | null>(null);
  const { utc, dark } = useContext(SettingsContext);
  const brief = series.to_ms - series.from_ms < 20 * 60000; // its ticks are less than a minute apart
  const known = picture.lines.some(l => series.series[l.name]?.some(v => v != null));

  useEffect(() => {
    const parent = box.current;
    if (!parent || !known) return;
    const css = getComputedStyle(document.documentElement), colour = (name: string) => css.getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const u = new uPlot({
      width: parent.clientWidth || 320, height, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      tzDate: t => utc ? uPlot.tzDate(new Date(t * 1000), "Etc/UTC") : new Date(t * 1000),
      padding: [8, 12, 0, 0],
      scales: { y: { range: (_, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, values: brief ? "{HH}:{mm}:{ss}" : "{HH}:{mm}", space: brief ? 80 : 60, size: 28, label: utc ? "time, UTC" : "local time", labelSize: 16, labelFont: axis.font }, { ...axis, size: 70, label: picture.axis, labelSize: 18, labelFont: axis.font, values: (_, ticks) => ticks.map(t => picture.format(t)) }],
      series: [{}, ...picture.lines.map((l, i) => ({ label: l.label, stroke: colour(tones[i]), width: 2, dash: i === 1 ? [6, 4] : undefined, points: { show: true, size: 5, filter: alone } }))],
      hooks: { setCursor: [(p: uPlot) => setAt(p.cursor.idx == null ? null : { i: p.cursor.idx, left: p.over.offsetLeft + (p.cursor.left ?? 0), right: (p.cursor.left ?? 0) > p.over.clientWidth / 2 })] },
    }, points(series, picture), parent);
    plot.current = u;
    const resized = new ResizeObserver(() => { if (parent.clientWidth) u.setSize({ width: parent.clientWidth, height }); });
    resized.observe(parent);
    return () => { resized.disconnect(); u.destroy(); plot.current = undefined; };
  }, [known, utc, dark, brief, picture.title]);

  useEffect(() => { plot.current?.setData(points(series, picture)); }, [series]);

  const value = (l: Line, i: number) => picture.format(series.series[l.name]?.[i]), now = (l: Line) => value(l, last(series.series[l.name]));
  const most = (l: Line) => {
    const values = (series.series[l.name] ?? []).filter((v): v is number => v != null);
    return values.length ? picture.format(Math.max(...values)) : unknown;
  };
  const summary = picture.lines.map(l => `${l.label}: now ${now(l)}, at most ${most(l)}`).join("; ");
  return <figure class="chart">
    <figcaption><strong>{picture.title}</strong> {picture.lines.map((l, i) => <span key={l.name} class="legend"><span aria-hidden="true" class={`stroke stroke${i + 1}`} />{l.label} <b>{now(l)}</b></span>)}</figcaption>
    {known ? <div class="plot">
      <div ref={box} role="img" aria-label={`${picture.title}, ${picture.axis}. ${summary}.`} />
      {at && <div class="hover" aria-hidden="true" style={at.right ? { right: `calc(100% - ${at.left}px + 8px)` } : { left: `${at.left + 8}px` }}>
        <b>{clockOf(series.from_ms + at.i * series.step_seconds * 1000, utc)}</b>{picture.lines.map(l => <div key={l.name}>{l.label} {value(l, at.i)}</div>)}</div>}
    </div> : <p class="dim plot nothing">No data yet: the first values appear after 20 seconds.</p>}
  </figure>;
}

// alone finds the points without a neighbour: no line shows them.
function alone(u: uPlot, line: number, _show: boolean): number[] {
  const values: Maybe<number>[] = [...u.data[line]];
  return values.flatMap((v, i) => v != null && values[i - 1] == null && values[i + 1] == null ? [i] : []);
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
