// Actions: a button that opens a dialog with fields, a plan where there is one, and a confirmation.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Failed, refreshAll } from "./api";

export interface Field {
  name: string; label: string; hint?: string; value?: string; options?: [string, string][]; long?: boolean; number?: boolean; required?: boolean;
}
export type Values = Record<string, string>;

export interface ActionProps {
  label: string; title: string; text: ComponentChildren;
  button?: string;            // of the dialog; the label by default
  danger?: boolean;
  confirm?: string;           // the name of the object, which has to be typed: a click by mistake destroys nothing
  fields?: Field[];
  plan?: (v: Values) => Promise<ComponentChildren>; // shown before the action can be pressed
  run: (v: Values) => Promise<string>;              // the effect in a sentence
  done?: () => void;
  leave?: () => void;         // when the dialog closes after the action: its object is gone
  disabled?: boolean;
  hide?: boolean;             // there is nothing to do; an open dialog stays until it is closed
}

export function Action(p: ActionProps) {
  const [open, set] = useState<ActionProps>(); // as they were: the action itself changes what the page shows
  return <>
    {!p.hide && <button type="button" class={p.danger ? "danger" : ""} disabled={p.disabled} onClick={() => set(p)}>{p.label}</button>}
    {open && <Dialog {...open} close={() => set(undefined)} />}
  </>;
}

function Dialog(p: ActionProps & { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null), id = useId(), shown = useRef(0);
  const [values, setValues] = useState<Values>(() => Object.fromEntries((p.fields ?? []).map(f => [f.name, f.value ?? f.options?.[0]?.[0] ?? ""])));
  const [typed, setTyped] = useState(""), [busy, setBusy] = useState(false);
  const [result, setResult] = useState<{ text: string; bad: boolean }>();
  const [plan, setPlan] = useState<{ view: ComponentChildren; of: string }>();
  useEffect(() => { dialog.current?.showModal(); }, []);

  const key = JSON.stringify(values);
  const attempt = async (f: () => Promise<void>) => {
    const turn = ++shown.current;
    setBusy(true);
    setResult(undefined);
    try {
      await f();
    } catch (e) {
      if (turn === shown.current) setResult({ text: e instanceof Failed ? e.message : `The page failed: ${e}`, bad: true });
    }
    setBusy(false);
  };
  const see = () => attempt(async () => {
    const of = key, view = await p.plan!(values);
    setPlan({ view, of });
  });
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    if (p.plan && plan?.of !== key) { void see(); return; }
    void attempt(async () => {
      setResult({ text: await p.run(values), bad: false });
      setTyped("");
      setPlan(undefined);
      refreshAll();
      p.done?.();
    });
  };
  const planned = !p.plan || plan?.of === key, finished = result && !result.bad;
  return <dialog ref={dialog} aria-labelledby={id} onClose={() => { p.close(); if (finished) p.leave?.(); }}>
    <form onSubmit={submit}>
      <h2 id={id}>{p.title}</h2>
      <div class="about">{p.text}</div>
      {!finished && (p.fields ?? []).map(f => <Input key={f.name} field={f} value={values[f.name]} onChange={v => setValues(s => ({ ...s, [f.name]: v }))} />)}
      {!finished && plan?.of === key && <section class="plan" aria-label="Plan" role="status">{plan.view}</section>}
      {!finished && planned && p.confirm && <Input field={{ name: "confirm", label: `Type ${p.confirm} to ${p.title[0].toLowerCase()}${p.title.slice(1)}`, required: true }} value={typed} onChange={setTyped} />}
      <p class={`result ${result ? (result.bad ? "note bad" : "note good") : ""}`} role="status">{result?.text ?? (busy ? "Waiting for the broker …" : "")}</p>
      <div class="buttons">
        {!finished && <button type="submit" class={p.danger && planned ? "danger" : "main"} disabled={busy || (planned && p.confirm !== undefined && typed !== p.confirm)}>{planned ? p.button ?? p.label : "Show the plan"}</button>}
        <button type="button" onClick={() => dialog.current?.close()}>{finished ? "Close" : "Cancel"}</button>
      </div>
    </form>
  </dialog>;
}

export function Input({ field: f, value, onChange }: { field: Field; value: string; onChange: (v: string) => void }) {
  const id = useId(), hint = f.hint ? id + "-hint" : undefined;
  const common = { id, name: f.name, value, required: f.required, "aria-describedby": hint };
  return <div class="field">
    <label for={id}>{f.label}</label>
    {f.options ? <select {...common} onChange={e => onChange(e.currentTarget.value)}>{f.options.map(([v, text]) => <option key={v} value={v}>{text}</option>)}</select>
      : f.long ? <textarea {...common} rows={6} spellcheck={false} onInput={e => onChange(e.currentTarget.value)} />
      : <input {...common} type="text" inputMode={f.number ? "numeric" : undefined} pattern={f.number ? "[0-9]*" : undefined} autocomplete="off" autocapitalize="off" spellcheck={false} onInput={e => onChange(e.currentTarget.value)} />}
    {f.hint && <small id={hint}>{f.hint}</small>}
  </div>;
}
