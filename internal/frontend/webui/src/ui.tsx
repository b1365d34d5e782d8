// Parts that all pages use.
import { Fragment, type ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Data } from "./api";
import { silentBrokers } from "./api";
import { unknown } from "./format";
import { place, to } from "./route";
import { useClock } from "./settings";
import type { Alarm, Event, Maybe, State, Unreachable } from "./types";

const marks: Record<State | "unknown", [string, string]> = {
  healthy: ["✓", "good"], degraded: ["!", "warn"], unsafe: ["✕", "bad"], unknown: ["?", "dim"],
};

// Mark is a state as a sign, a colour and a word.
export function Mark({ state, text }: { state: State | "unknown"; text?: string }) {
  const [sign, tone] = marks[state];
  return <span class={`mark ${tone}`}><span aria-hidden="true" class="sign">{sign}</span>{text ?? state}</span>;
}

// Light is one question of the overview and its answer.
export function Light({ state, question, children }: { state: State | "unknown"; question: string; children: ComponentChildren }) {
  const [sign, tone] = marks[state];
  return <section class={`light ${tone}`} data-state={state}>
    <h2><span aria-hidden="true" class="sign">{sign}</span>{question}<span class="hidden"> ({state})</span></h2>
    <div class="answer">{children}</div>
  </section>;
}

export function Title({ text, kind, children }: { text: string; kind?: string; children?: ComponentChildren }) {
  const h1 = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${text} – Lockstep`;
    if (navigated) h1.current?.focus();
  }, [text, kind]);
  return <div class="title"><h1 tabIndex={-1} ref={h1}>{kind && <span class="dim kind">{kind} </span>}{text}</h1>{children}</div>;
}

let navigated = false; // the first page does not take the focus
addEventListener("hashchange", () => { navigated = true; });

export interface Column<T> {
  head: string; cell: (row: T) => ComponentChildren; number?: boolean; sort?: string;
}

// Table has a caption for screen readers, and can also be scrolled sideways by keyboard. On a narrow screen each row is
// a card (app.css), which takes the roles from the elements: so they are written out.
export function Table<T>({ caption, columns, rows, empty, sort, order, onSort, keyOf }: {
  caption: string; columns: Column<T>[]; rows: T[]; empty: string; sort?: string; order?: string; onSort?: (sort: string, order: string) => void;
  keyOf?: (row: T) => string;
}) {
  if (rows.length === 0) return <p class="dim empty">{empty}</p>;
  return <div class="wide" role="region" tabIndex={0} aria-label={caption}><table role="table">
    <caption class="hidden">{caption}</caption>
    <thead role="rowgroup"><tr role="row">{columns.map(c => {
      const sorted = c.sort !== undefined && c.sort === sort;
      const next = sorted ? (order === "asc" ? "desc" : "asc") : c.sort === "name" ? "asc" : "desc";
      return <th scope="col" role="columnheader" class={c.number ? "n" : ""} aria-sort={sorted ? (order === "asc" ? "ascending" : "descending") : undefined}>
        {c.sort !== undefined && onSort ? <button type="button" class="plain" onClick={() => onSort(c.sort!, next)}>{c.head}<span aria-hidden="true">{sorted ? (order === "asc" ? " ▲" : " ▼") : ""}</span></button> : c.head}
      </th>;
    })}</tr></thead>
    <tbody role="rowgroup">{rows.map((row, i) => <tr role="row" key={keyOf ? keyOf(row) : i}>{columns.map((c, k) => {
      const content = c.cell(row);
      const cls = (c.number ? "n " : "") + (content === unknown ? "dim" : "");
      return k === 0 ? <th scope="row" role="rowheader" class={cls} data-head={c.head}>{content}</th> : <td role="cell" class={cls} data-head={c.head}>{content}</td>;
    })}</tr>)}</tbody>
  </table></div>;
}

// Facts is a list of names and values.
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return <dl class="facts">{facts.map(([name, value]) => <div><dt>{name}</dt><dd class={value === unknown ? "dim" : ""}>{value}</dd></div>)}</dl>;
}

// Tile is one number of the overview.
export function Tile({ name, value, note, state }: { name: string; value: string; note?: ComponentChildren; state?: State }) {
  return <div class={`tile ${state && state !== "healthy" ? marks[state][1] : ""}`}><dt>{name}</dt><dd class={value === unknown ? "dim" : ""}>{value}{note && <small>{note}</small>}</dd></div>;
}

export function Silent({ brokers }: { brokers?: Unreachable[] }) {
  const text = silentBrokers(brokers);
  return text ? <p class="note warn silent"><span aria-hidden="true" class="sign">!</span>{text}</p> : null;
}

// Loaded shows data when they are there, and the error in a sentence; old data stay, with their time.
export function Loaded<T>({ of, children }: { of: Data<T>; children: (data: T) => ComponentChildren }) {
  const clock = useClock();
  return <>
    {of.error && <p class="note bad" role="alert"><span aria-hidden="true" class="sign">✕</span>{of.error.message}
      {of.data !== undefined && of.at && ` This is as of ${clock(of.at)}.`}</p>}
    {of.data !== undefined ? children(of.data) : !of.error && <p class="dim" role="status">Loading …</p>}
  </>;
}

// Alarms lists the faults of a cluster, the worst first. The word for its state stands above them.
export function Alarms({ alarms, of }: { alarms: Alarm[]; of: State }) {
  const clock = useClock();
  if (alarms.length === 0) return null;
  return <ul class="alarms">{alarms.map(a => {
    const where = a.where ?? [], more = (a.where_count ?? where.length) - Math.min(where.length, 5);
    return <li class={marks[a.state][1]} key={a.code + a.text}>
      <Mark state={a.state} text={a.state === of ? "" : a.state} /> <strong>{sentence(a.text)}</strong>{a.since_ms != null && <span class="dim"> since {clock(a.since_ms)}</span>}
      {where.length > 0 && <div class="where">Where: {where.slice(0, 5).map((w, i) => <Fragment key={w}>{i > 0 && ", "}<a href={place(w)}>{w}</a></Fragment>)}{more > 0 && ` and ${more} more`}</div>}
      <div class="do">Do: {a.do}</div>
    </li>;
  })}</ul>;
}

// sentence begins with a capital and ends with a full stop. A name at the beginning stays as it is: capitals count in names.
export function sentence(text: string): string {
  const begins = /^[a-z]+[ ,:]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return text ? begins + (/[.!?]$/.test(text) ? "" : ".") : text;
}

export function Events({ events, empty }: { events: Event[]; empty: string }) {
  const clock = useClock();
  return <Table caption="Events, the newest first" rows={events} empty={empty} columns={[
    { head: "Time", cell: e => <time dateTime={new Date(e.time_ms).toISOString()}>{clock(e.time_ms)}</time> },
    { head: "Kind", cell: e => <Mark state={e.state} text={e.kind === "isr" ? "in-sync set" : e.kind.replaceAll("_", " ")} /> },
    { head: "What happened", cell: e => <span class="text" title={e.action}>{e.identity ? `${e.text}.` : sentence(e.text)}{e.do && <span class="do"> Do: {e.do}</span>}</span> },
    { head: "Where", cell: e => <Where e={e} /> },
    { head: "By", cell: e => e.identity ? `${e.identity}${e.result && e.result !== "ok" ? ` (${e.result})` : ""}` : (e.reported_by ?? []).join(", ") },
  ]} />;
}

function Where({ e }: { e: Event }) {
  if (e.where?.length) return <>{e.where.slice(0, 3).map((w, i) => <Fragment key={w}>{i > 0 && ", "}<a href={place(w)}>{w}</a></Fragment>)}{(e.count ?? e.where.length) > 3 && " …"}</>;
  if (e.topic) return e.partition !== undefined && e.partition >= 0 ? <a href={to.partition(e.topic, e.partition)}>{e.topic}/{e.partition}</a> : <a href={to.topic(e.topic)}>{e.topic}</a>;
  return <>{(e.brokers ?? []).map((b, i) => <Fragment key={b}>{i > 0 && ", "}<a href={to.broker(b)}>{b}</a></Fragment>)}</>;
}

export function Brokers({ names, dead }: { names: Maybe<string[]>; dead?: Set<string> }) {
  if (!names?.length) return <>none</>;
  return <>{names.map((b, i) => <Fragment key={b}>{i > 0 && " "}<a href={to.broker(b)} class={dead?.has(b) ? "bad" : ""}>{b}{dead?.has(b) && " (dead)"}</a></Fragment>)}</>;
}

const faults: Record<string, [State, string]> = {
  "": ["healthy", "healthy"], no_leader: ["unsafe", "no leader"], below_minimum: ["unsafe", "below minimum"], one_disk: ["unsafe", "on one disk"],
  damaged: ["unsafe", "damaged"], under_replicated: ["degraded", "under-replicated"],
};

// Fault is the fault of a partition, or the worst of a topic with the count of partitions that have it.
export function Fault({ code, count }: { code: string; count?: number }) {
  const [state, text] = faults[code] ?? ["degraded", code.replaceAll("_", " ")];
  return <Mark state={state as State} text={count ? `${count} ${text}` : text} />;
}

// Search is a field whose value is used when typing pauses.
export function Search({ label, value, onChange }: { label: string; value: string; onChange: (text: string) => void }) {
  const [text, set] = useState(value), id = useId(), timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => { set(value); }, [value]);
  const changed = (v: string) => {
    set(v);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(v), 250);
  };
  return <div class="field"><label for={id}>{label}</label><input id={id} type="search" value={text} autocomplete="off" spellcheck={false} onInput={e => changed(e.currentTarget.value)} /></div>;
}

export function Select({ label, value, options, onChange }: { label: string; value: string; options: [string, string][]; onChange: (v: string) => void }) {
  const id = useId();
  return <div class="field"><label for={id}>{label}</label><select id={id} value={value} onChange={e => onChange(e.currentTarget.value)}>
    {options.map(([v, text]) => <option value={v} key={v}>{text}</option>)}
  </select></div>;
}

export function Pager({ offset, limit, matched, onMove }: { offset: number; limit: number; matched: number; onMove: (offset: number) => void }) {
  if (matched <= limit && offset === 0) return null;
  return <nav class="pager" aria-label="Pages of the list">
    <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - limit))}>Previous</button>
    <span>{Math.min(offset + 1, matched)}–{Math.min(offset + limit, matched)} of {matched}</span>
    <button type="button" disabled={offset + limit >= matched} onClick={() => onMove(offset + limit)}>Next</button>
  </nav>;
}

export function Crumbs({ items }: { items: [string, string][] }) {
  return <nav class="crumbs" aria-label="Path">{items.map(([text, href], i) => <Fragment key={href}>{i > 0 && <span aria-hidden="true"> / </span>}<a href={href}>{text}</a></Fragment>)}</nav>;
}
