// The reader's choices, kept in this browser: colours, time zone, range of the charts.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { clock } from "./format";

export type Theme = "auto" | "light" | "dark";
export interface Settings { theme: Theme; utc: boolean; dark: boolean }
export const SettingsContext = createContext<Settings>({ theme: "auto", utc: false, dark: false });

export function stored(name: string, otherwise: string): string {
  try { return localStorage.getItem("lockstep-" + name) ?? otherwise; } catch { return otherwise; }
}
export function store(name: string, value: string) {
  try { localStorage.setItem("lockstep-" + name, value); } catch { /* private window */ }
}

// useClock writes times in the chosen zone.
export function useClock(): (ms: number | null | undefined) => string {
  const { utc } = useContext(SettingsContext);
  return ms => clock(ms, utc);
}
