// Numbers, sizes, durations and times as texts. An unknown value is written as "unknown".
import type { Maybe } from "./types";

export const unknown = "unknown";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(v: Maybe<number>): string {
  return v == null ? unknown : whole.format(v);
}

// brief writes large numbers as 1.2M: for tiles and axes.
export function brief(v: Maybe<number>): string {
  if (v == null) return unknown;
  if (Math.abs(v) < 10 && v % 1 !== 0) return v.toFixed(1);
  return Math.abs(v) < 10000 ? whole.format(v) : short.format(v);
}

export function rate(v: Maybe<number>): string {
  if (v == null) return unknown;
  return `${brief(v)}/s`;
}

export function bytes(v: Maybe<number>): string {
  if (v == null) return unknown;
  let n = v, i = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  while (Math.abs(n) >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${i === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(1)} ${units[i]}`;
}

export function milliseconds(v: Maybe<number>): string {
  if (v == null) return unknown;
  return v >= 1000 ? seconds(v / 1000) : v === 0 ? "0 ms" : v >= 100 ? `${v.toFixed(0)} ms` : v >= 1 ? `${v.toFixed(1)} ms` : `${v.toFixed(2)} ms`;
}

export function seconds(v: Maybe<number>): string {
  if (v == null) return unknown;
  if (v < 10) return `${v === 0 ? 0 : v.toFixed(1)} s`;
  if (v < 120) return `${v.toFixed(0)} s`;
  if (v < 7200) return `${Math.floor(v / 60)} min`;
  if (v < 172800) return `${Math.floor(v / 3600)} h`;
  return `${Math.floor(v / 86400)} days`;
}

export function plural(n: Maybe<number>, one: string, many = one + "s"): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

const pad = (n: number, width = 2) => String(n).padStart(width, "0");

// clock writes a time as 14:03:07, with the date unless it is today's.
export function clock(ms: Maybe<number>, utc: boolean): string {
  if (ms == null) return unknown;
  const t = new Date(ms), now = new Date();
  const day = (d: Date) => utc ? `${d.getUTCFullYear()}-${pad(d.getUTCMonth() + 1)}-${pad(d.getUTCDate())}` : `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
  const time = utc ? `${pad(t.getUTCHours())}:${pad(t.getUTCMinutes())}:${pad(t.getUTCSeconds())}` : `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
  return (day(t) === day(now) ? "" : day(t) + " ") + time + (utc ? " UTC" : "");
}

// hex writes bytes as rows of 16: offset, hex digits, characters.
export function hex(data: Uint8Array): string {
  const rows: string[] = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const digits = part.map(b => b.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    rows.push(`${at.toString(16).padStart(8, "0")}  ${digits}  ${part.map(b => b > 31 && b < 127 ? String.fromCharCode(b) : ".").join("")}`);
  }
  return rows.join("\n");
}
