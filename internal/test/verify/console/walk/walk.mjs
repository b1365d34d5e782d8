// Walks through the console in Chromium: every page, every action, each effect checked through the
// API, with brokers that are killed. TestConsole starts it with WALK, a JSON object: brokers (name → HTTP address), https
// (name → HTTPS address), control (the test's own server), shots (a folder for pictures, or ""), chromium, limit (milliseconds after which
// anything counts as hung; no other time is judged).
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const given = JSON.parse(process.env.WALK);
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light", timezoneId: "Europe/Berlin", ignoreHTTPSErrors: true });
context.setDefaultTimeout(given.limit);
const page = await context.newPage();
const faults = [], expected = [];
let at = "n1", secure = false, began = Date.now(), checks = 0;
page.on("pageerror", e => faults.push(`the page threw ${e}`));
page.on("console", m => {
  if (m.type() !== "error" && m.type() !== "warning") return;
  const text = `${m.text()} (${m.location().url})`;
  if (text.startsWith("Failed to load resource") && expected.some(e => e.test(text))) return;
  faults.push(`the browser says: ${text}`);
});
// expect allows a failing request from now on: its answer may come at any later time.
const expect = pattern => expected.push(pattern);
const served = new Set([...Object.values(given.brokers), ...Object.values(given.https)]);
page.on("request", r => { if (!served.has(new URL(r.url()).host)) faults.push(`the page asks another host: ${r.url()}`); });

function say(text) { console.log(`${((Date.now() - began) / 1000).toFixed(1)} s: ${text}`); }
function must(ok, text) { checks++; if (!ok) throw new Error(text); }
const pause = ms => new Promise(done => setTimeout(done, ms));
async function until(text, f) {
  const end = Date.now() + given.limit;
  let last;
  for (;;) {
    try { last = await f(); if (last) { checks++; return last; } } catch (e) { last = e; }
    if (Date.now() > end) throw new Error(`hangs: ${text} (last: ${last})`);
    await pause(20);
  }
}

let bearer = {};
async function api(path, { method = "GET", broker = "n2", body } = {}) {
  const answer = await fetch(`http://${given.brokers[broker]}/${path}`, { method, body, headers: bearer, signal: AbortSignal.timeout(given.limit) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  try { return JSON.parse(text); } catch { return text; }
}
const control = async what => { const r = await fetch(`${given.control}/${what}`, { method: "POST" }); if (!r.ok) throw new Error(`${what}: ${await r.text()}`); };

const visit = async (hash = "", title) => {
  await page.goto(`${secure ? `https://${given.https[at]}` : `http://${given.brokers[at]}`}/ui#/${hash}`);
  if (title) await page.getByRole("heading", { level: 1, name: title }).waitFor();
};
const seen = text => page.getByText(text).first().waitFor();

// act presses an action, fills its dialog, and returns its answer.
async function act(label, { fill = {}, choose = {}, confirm, plan = false, planned, within = page } = {}) {
  await within.getByRole("button", { name: label, exact: true }).first().click();
  const dialog = page.getByRole("dialog"), submit = dialog.locator("button[type=submit]");
  await dialog.waitFor();
  for (const [name, value] of Object.entries(choose)) await dialog.getByLabel(name, { exact: true }).selectOption(value);
  for (const [name, value] of Object.entries(fill)) await dialog.getByLabel(name, { exact: true }).fill(value);
  if (plan) {
    must(await submit.innerText() === "Show the plan", `${label} shows its plan first`);
    await submit.click();
    await dialog.getByText(/plan/i).first().waitFor();
    await until("the plan", async () => (await submit.innerText()) !== "Show the plan");
    if (planned) must(planned.test(await dialog.locator(".plan").innerText()), `the plan of ${label}: ${await dialog.locator(".plan").innerText()}`);
    say(`${label}: ${(await dialog.locator(".plan").innerText()).replaceAll("\n", " ").slice(0, 120)}`);
  }
  must(confirm !== undefined || !await submit.evaluate(e => e.classList.contains("danger")), `${label} destroys or moves something: it asks for a name first`);
  if (confirm) {
    must((await dialog.locator("label", { hasText: /^Type / }).innerText()).startsWith(`Type ${confirm} to `), `${label} says what the name is typed for`);
    must(await submit.isDisabled(), `${label} cannot be pressed before the name is typed`);
    await dialog.getByLabel(/^Type /).fill(confirm.slice(0, -1));
    must(await submit.isDisabled(), `${label} cannot be pressed with another name`);
    await dialog.getByLabel(/^Type /).fill(confirm);
  }
  await submit.click();
  const result = dialog.locator(".result.note");
  await result.waitFor();
  const text = await result.innerText();
  must(await result.evaluate(e => e.classList.contains("good")), `${label}: ${text}`);
  await dialog.getByRole("button", { name: "Close" }).click();
  await dialog.waitFor({ state: "detached" });
  return text;
}

// judge runs axe, all rules or some, and looks whether the page is wider than the window.
async function judge(name, rules) {
  if (!await page.evaluate(() => "axe" in window)) await page.evaluate(axe);
  const found = await page.evaluate(rules => axe.run({ resultTypes: ["violations"], ...(rules && { runOnly: rules }) })
    .then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.target.join(" ")).join(", "))), rules);
  must(found.length === 0, `axe on ${name}: ${found.join("; ")}`);
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  must(over <= 0, `${name} is ${over} pixels wider than the window`);
  const hidden = await page.evaluate(all => [...document.querySelectorAll(".wide")].filter(t => all || t.ariaLabel === "Brokers").filter(t => t.scrollWidth > t.clientWidth).map(t => t.ariaLabel), page.viewportSize().width < 600);
  must(hidden.length === 0, `${name} has tables that are cut off: ${hidden.join(", ")}`);
  const cut = await page.evaluate(() => Math.max(0, ...[...document.querySelectorAll("dialog")].map(d => d.scrollWidth - d.clientWidth)));
  must(cut === 0, `${name} has a dialog whose text is cut off by ${cut} pixels`);
}

// looks are the forms of a page, with the rules that they may break: the colours of the dark one, and what moves or
// shrinks on a phone. The light one is judged by all rules.
const looks = [
  { which: "light", width: 1280, scheme: "light" },
  { which: "dark", width: 1280, scheme: "dark", rules: ["color-contrast", "link-in-text-block"] },
  { which: "phone", width: 390, scheme: "light", rules: ["scrollable-region-focusable", "page-has-heading-one", "bypass", "region"] },
];

async function wear({ width, scheme }) {
  await page.setViewportSize({ width, height: width < 600 ? 844 : 800 });
  await page.emulateMedia({ colorScheme: scheme });
}

const pages = [["", "Overview"], ["topics", "Topics"], ["channels?sort=lag", "Channels"], ["topic/orders", "Topic orders"], ["topic/orders/channel/billing", "Channel billing"],
  ["topic/orders/partition/0", "Partition orders/0"], ["topic/orders/messages?from=earliest", "Messages of orders"], ["brokers", "Brokers"], ["broker/n2", "Broker n2"], ["events", "Events"], ["operations", "Operations"], ["no/such/page", "No such page"]];

async function picture(name) {
  if (given.shots) { await mkdir(given.shots, { recursive: true }); await page.screenshot({ path: `${given.shots}/${name}.png` }); }
}

// everyPage visits each page once, in all its looks.
async function everyPage(state, worn) {
  for (const [hash, title] of pages) {
    await visit(hash, title);
    await until(`${title} is loaded, without an error`, async () => (await page.getByText("Loading …").count()) + (await page.locator(".note.bad[role=alert]").count()) === 0);
    for (const look of worn) {
      const name = `${look.which}${state}`;
      await wear(look);
      await judge(`${title}, ${name}`, look.rules);
      await picture(`${title.toLowerCase().replaceAll(/[ /]/g, "-")}-${name}`);
    }
    await wear(looks[0]);
  }
  say(`every page${state}: axe finds nothing`);
}

async function prepare() {
  await api("topic/create?topic=orders&partitions=4", { method: "POST" });
  await api("channel/create?topic=orders&channel=billing", { method: "POST" });
  for (let i = 0; i < 20; i++) await api("pub?topic=orders", { method: "POST", body: JSON.stringify({ order: i }) });
  await control("consume?topic=orders&channel=shipping");
  const taken = await api("v1/consume?topic=orders&channel=billing&client=cron&max=2&wait=10s&msg_timeout=10m", { method: "POST", broker: "n3" });
  must(taken.messages.length > 0, "a consumer over HTTP got messages");
  await visit("topic/orders/channel/billing", "Channel billing");
  const row = page.getByRole("region", { name: "Consumers" }).getByRole("row", { name: /^cron over HTTP/ });
  await until("it is listed with the message that it holds, since when, and the attempt", async () => /orders\/\d, sequence \d+ since [\d:]+ \(.*\), attempt 1\s/.test(await row.innerText()));
  must((await row.getByRole("cell").nth(3).innerText()) === String(taken.messages.length), `and with how many: ${await row.innerText()}`);
  await until("its broker counts a consumer", async () => (await api("v1/console/brokers")).brokers.find(b => b.name === "n3").consumers === 1);
}

async function topics() {
  await visit("topics", "Topics");
  await act("Create a topic", { fill: { Name: "walk", Partitions: "2" } });
  const created = await until("the topic is there", async () => (await api("v1/cluster")).topics.find(t => t.topic === "walk"));
  must(created.partitions.length === 2 && created.replication_factor === 3, "with 2 partitions of 3 replicas");
  await page.getByLabel("Search").fill("wal");
  await seen("1 of 2 topics match.");
  must(page.url().includes("search=wal"), "the search is in the address");
  await page.getByRole("link", { name: "walk", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Topic walk" }).waitFor();

  const detail = () => api("v1/console/topic?topic=walk");
  await act("Limits", { fill: { "Retention": "1h" } });
  await until("messages are kept for an hour", async () => (await detail()).settings.retention_ms === 3600000);
  await act("Partitions", { fill: { Partitions: "3" } });
  await until("three partitions", async () => (await detail()).partitions.length === 3);
  await act("Create a channel", { fill: { Name: "c1" } });
  await until("the channel is there", async () => (await api("v1/topic/channels?topic=walk")).channels.some(c => c.channel === "c1"));
  await act("Pause");
  await until("the topic is paused", async () => (await detail()).topic.paused);
  await page.getByRole("button", { name: "Unpause" }).waitFor();
  await act("Unpause");
  await until("the topic is not paused", async () => !(await detail()).topic.paused);
  await act("Publish a test message", { fill: { Body: "{\"walk\":1}", Key: "a" } });
  await until("the message waits in the channel", async () => (await api("v1/console/channel?topic=walk&channel=c1")).channel.depth === 1);
  await act("Replication", { fill: { "Replication factor": "2", "Min in-sync replicas": "1" }, confirm: "walk" });
  await until("two replicas", async () => (await detail()).partitions.every(p => p.replicas.length === 2 && !p.target));
  say("topic: create, search, limits, channel, pause, publish, replication");
}

async function channels() {
  await visit("topic/walk/channel/c1", "Channel c1");
  const channel = async () => (await api("v1/console/channel?topic=walk&channel=c1")).channel;
  await act("Pause");
  await until("the channel is paused", async () => (await channel()).paused);
  await page.getByRole("button", { name: "Unpause" }).waitFor();
  await act("Unpause");
  await until("the channel is not paused", async () => !(await channel()).paused);
  await act("Make ordered");
  await until("the channel is ordered", async () => (await channel()).ordered);
  await page.getByRole("button", { name: "Make unordered" }).waitFor();
  await act("Make unordered");
  await until("the channel is not ordered", async () => !(await channel()).ordered);
  const skipped = await act("Seek", { choose: { "Go to": "latest" }, confirm: "c1", plan: true, planned: /1 message is skipped, and 0 messages come again/ });
  must(/1 message is skipped, 0 messages come again/.test(skipped), skipped);
  await until("the channel is at the end", async () => (await channel()).depth === 0);
  say(`seek: ${skipped}`);
  const back = await act("Seek", { choose: { "Go to": "earliest" }, confirm: "c1", plan: true, planned: /0 messages are skipped, and 1 message comes again/ });
  must(/1 message comes again/.test(back), back);
  await until("the channel is at the beginning", async () => (await channel()).depth === 1);
  await act("Empty", { confirm: "c1" });
  await until("the channel is empty", async () => (await channel()).depth === 0);

  await api("pub?topic=walk&defer=3600000", { method: "POST", body: "later" });
  const deferred = async () => (await api("v1/channel/deferred?topic=walk&channel=c1")).messages ?? [];
  await until("one message is delayed", async () => (await deferred()).length === 1);
  await visit("", "Overview");
  await visit("topic/walk/channel/c1", "Channel c1");
  await page.getByRole("checkbox").check();
  await act("Cancel 1 message", { confirm: "c1" });
  await until("the delayed message is cancelled", async () => (await deferred()).length === 0);

  await act("Policy", { fill: { Attempts: "1", "Dead-letter topic": "walk.dead" } });
  await until("the policy is set", async () => { const p = await api("v1/channel/policy?topic=walk&channel=c1"); return p.max_attempts === 1 && p.dead_letter_topic === "walk.dead"; });
  await api("pub?topic=walk", { method: "POST", body: "fails" });
  await control("fail?topic=walk&channel=c1");
  await until("the message is dead", async () => (await api("v1/console/channel?topic=walk&channel=c1")).dead_letters === 1);
  await page.getByRole("button", { name: "Redrive" }).waitFor();
  const redriven = await act("Redrive");
  must(redriven.startsWith("1 message"), redriven);
  await until("the message waits again", async () => (await channel()).depth === 1);
  await until("no dead letter is left", async () => (await api("v1/console/channel?topic=walk&channel=c1")).dead_letters === 0);
  await until("and the page says so", async () => /walk\.dead: 0\b/.test(await page.locator("dl.facts").innerText()));
  say("channel: pause, order, seek, empty, delayed, policy, dead letters");
}

async function messages() {
  const fullest = (await api("v1/cluster")).topics.find(t => t.topic === "orders").partitions.reduce((a, b) => b.committed_sequence > a.committed_sequence ? b : a);
  await visit(`topic/orders/messages?partition=${fullest.partition}&from=earliest`, "Messages of orders");
  const sequences = page.locator("ol.messages li .head strong");
  await until("several messages", async () => await sequences.count() > 1);
  const shown = (await sequences.allInnerTexts()).map(Number);
  must(shown.every((s, i) => i === 0 || s < shown[i - 1]), `the newest message stands first: ${shown}`);
  await visit("topic/walk/messages", "Messages of walk");
  for (const p of (await api("v1/cluster")).topics.find(t => t.topic === "walk").partitions) {
    if (p.committed_sequence > 0) { await page.getByLabel("Partition").selectOption(String(p.partition)); break; }
  }
  await page.getByLabel("From").selectOption("earliest");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  const first = page.locator("ol.messages li").first().locator("pre");
  await first.waitFor();
  const text = await first.innerText();
  await page.getByLabel("hex").check();
  await until("the body as hex", async () => (await first.innerText()).startsWith("00000000"));
  await page.getByLabel("JSON").check();
  await until("the body as JSON", async () => /^(\{\n {2}"walk": 1\n\}|Not JSON: .*)$/.test(await first.innerText()));
  await page.getByLabel("text").check();
  await until("the body as text", async () => await first.innerText() === text);
  for (const place of [new Date(Date.now() - 3600000).toISOString(), "0"]) {
    await page.getByLabel("From").selectOption("other");
    await page.getByLabel("Time or sequence", { exact: true }).fill(place);
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await until(`from ${place}`, async () => page.url().includes(encodeURIComponent(place)) && await first.innerText() === text);
  }
  expect(/status of 400 .*nonsense/);
  await page.getByLabel("Time or sequence", { exact: true }).fill("nonsense");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await until("the error in a sentence", async () => (await page.getByRole("alert").innerText()).includes("nonsense"));
  await act("Publish a test message", { fill: { Body: "from the page of messages" } });
  say("messages: oldest, time, sequence; text, JSON, hex; publish");
}

async function cluster() {
  const walk = async () => (await api("v1/console/topic?topic=walk")).partitions[0];
  const before = await walk(), others = Object.keys(given.brokers).filter(b => !before.replicas.includes(b));
  await visit("topic/walk/partition/0", "Partition walk/0");
  const from = before.replicas.find(b => b !== before.leader);
  await until("the other broker can be chosen", async () => page.getByRole("button", { name: "Move a replica" }).isEnabled());
  await act("Move a replica", { choose: { "From the broker": from, "To the broker": others[0] }, plan: true, confirm: "walk/0" });
  await until("the replica has moved", async () => { const p = await walk(); return p.replicas.includes(others[0]) && !p.replicas.includes(from); });

  await visit("operations", "Operations");
  await act("Balance", { plan: true });
  await until("the audit has the balance", async () => (await api("v1/console/events?kind=audit")).events.some(e => /^\w+ balanced the cluster$/.test(e.text)));
  must((await api("v1/console/events?kind=audit")).events.every(e => !/POST |GET |PUT /.test(e.text)), "the audit is in words");
  await page.getByLabel("Topic or channel").fill("walk");
  await page.getByRole("link", { name: "walk/c1" }).waitFor();

  await visit("broker/n3", "Broker n3");
  const drain = async () => (await api("v1/cluster")).brokers.find(b => b.name === "n3").drain;
  await act("Drain", { plan: true, confirm: "n3" });
  await until("n3 is drained of its leaderships", async () => await drain() === "leaders");
  await until("n3 leads nothing", async () => (await api("v1/cluster")).topics.every(t => t.partitions.every(p => p.leader !== "n3")));
  await page.getByRole("button", { name: "End the drain" }).waitFor();
  await act("End the drain");
  await until("n3 is not drained any more", async () => !await drain());
  const leaving = async () => (await api("v1/cluster")).brokers.find(b => b.name === "n3").leaving;
  await act("Decommission", { confirm: "n3", plan: true });
  await until("n3 is leaving", leaving);
  await seen(/The broker is leaving: \d+ replicas? ha(s|ve) still to move\./);
  await page.getByRole("button", { name: "Cancel the decommission" }).waitFor();
  await act("Cancel the decommission");
  await until("n3 stays", async () => !await leaving());
  say("cluster: move, balance, decommission and its end");
}

async function removals() {
  await visit("topic/walk/channel/c1", "Channel c1");
  expect(/status of 404 .*topic=walk/); // its page may ask for it once more
  await act("Delete", { confirm: "c1" });
  await page.getByRole("heading", { level: 1, name: "Topic walk" }).waitFor();
  await until("the channel is gone", async () => !((await api("v1/topic/channels?topic=walk")).channels ?? []).some(c => c.channel === "c1"));
  await visit("topic/walk", "Topic walk");
  await act("Empty", { confirm: "walk" });
  await act("Delete", { confirm: "walk" });
  await page.getByRole("heading", { level: 1, name: "Topics" }).waitFor();
  await until("the topic is gone", async () => !await there("walk"));
  say("channel deleted, topic emptied and deleted");
}

const there = async name => (await api("v1/cluster")).topics.some(t => t.topic === name);

// trash brings deleted topics back, and removes one permanently.
async function trash() {
  await visit("operations", "Operations");
  const row = (text = "walk") => page.getByRole("region", { name: "Deleted topics" }).getByRole("row").filter({ hasText: text });
  const list = async () => (await api("v1/topic/trash")).topics ?? [];
  await until("the deleted topic is in the trash", async () => await row().count() === 1);
  const [first] = await list(), shown = await row().innerText();
  must(/^walk\s/.test(shown) && /\s3\s/.test(shown) && /2[34] h/.test(shown) && new RegExp(`\\s${first.by}\\s`).test(shown), `its row has its name, its 3 partitions, by whom, and the time left: ${shown}`);
  await act("Undelete", { within: row() });
  await until("the topic is back", () => there("walk"));
  await until("and the trash is empty", async () => await row().count() === 0 && await page.getByText("The trash is empty.").count() === 1);

  await api("channel/create?topic=walk&channel=c2", { method: "POST" });
  for (let i = 0; i < 5; i++) await api("pub?topic=walk", { method: "POST", body: "kept" });
  const depth = async () => (await api("v1/console/channel?topic=walk&channel=c2")).channel.depth;
  await until("5 messages wait", async () => await depth() === 5);
  await api("topic/delete?topic=walk", { method: "POST" });
  await api("topic/create?topic=walk", { method: "POST" });
  await until("it is in the trash again", async () => await row().count() === 1);
  expect(/status of 409 .*undelete/);
  await row().getByRole("button", { name: "Undelete" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.locator("button[type=submit]").click();
  await until("the page says that another topic has the name", async () => (await dialog.locator(".result").innerText()).includes("nother topic has the name walk"));
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await api("topic/delete?topic=walk", { method: "POST" });
  await until("both are in the trash", async () => await row().count() === 2);
  const old = (await list()).find(t => t.channels > 0);
  await until("their ids tell them apart", async () => await row(old.id).count() === 1);
  for (const look of looks) {
    await wear(look);
    await judge(`the trash, ${look.which}`, look.rules);
    await page.getByRole("heading", { name: "Trash" }).evaluate(h => h.scrollIntoView());
    await picture(`trash-${look.which}`);
  }
  await row(old.id).getByRole("button", { name: "Delete now" }).click();
  await dialog.waitFor();
  await judge("the dialog of Delete now");
  await picture("trash-delete-now");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await wear(looks[0]);
  await act("Undelete", { within: row(old.id) });
  await until("the earlier one is back with its messages", async () => await there("walk") && await depth() === 5);
  await until("the later one is left", async () => await row().count() === 1 && (await list())[0].id !== old.id);
  await act("Delete now", { confirm: "walk", within: row() });
  await until("the trash is empty", async () => (await list()).length === 0 && await row().count() === 0);
  await until("the other topic of the name stays", async () => await there("walk") && await depth() === 5);
  await api("topic/delete?topic=walk&now=true", { method: "POST" });
  say("trash: undelete, a name that is taken, delete now");
}

async function keyboard() {
  await visit("topic/orders", "Topic orders");
  await page.reload();
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.keyboard.press("Tab");
  await until("the first stop of the keyboard skips the navigation", async () => await page.evaluate(() => document.activeElement.className) === "skip");
  await page.keyboard.press("Enter");
  await until("to the content", async () => await page.evaluate(() => document.activeElement.id) === "main");
  const button = page.getByRole("button", { name: "Create a channel" });
  await button.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await until("a dialog takes the focus", async () => await page.evaluate(() => document.activeElement.closest("dialog") !== null));
  await judge("a dialog");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await until("the button has the focus again", async () => button.evaluate(b => b === document.activeElement));
  await page.getByRole("link", { name: "Events", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Events" }).waitFor();
  await until("a new page gives the focus to its title", async () => await page.evaluate(() => document.activeElement.tagName) === "H1");
  const local = await page.locator("tbody time").first().innerText();
  await page.getByLabel("Time zone").selectOption("utc");
  await until("the times are in UTC", async () => (await page.locator("tbody time").first().innerText()).endsWith("UTC"));
  must(!local.endsWith("UTC"), "the times were local");
  await page.getByLabel("Time zone").selectOption("local");
  await page.getByLabel("Colours").selectOption("dark");
  await until("dark by choice", async () => await page.evaluate(() => document.documentElement.dataset.theme) === "dark");
  await page.getByLabel("Colours").selectOption("auto");
  say("keyboard, time zone, colours");
}

async function charts() {
  await visit("", "Overview");
  const plot = page.getByRole("img", { name: /^Messages per second, messages\/s\. published: now / });
  await plot.waitFor();
  const drawn = plot.locator(".u-over"); // a mouse that comes before the chart is drawn is over nothing
  await drawn.hover({ position: { x: (await drawn.boundingBox()).width - 20, y: 60 } });
  await until("the point under the mouse is read out, with its time", async () => /^\d\d:\d\d:\d\d\s*published .*\s*delivered .*\s*refused /.test(await page.locator(".hover").innerText()));
  await picture("chart-hover");
  const asked = page.waitForRequest(r => /console\/series\?minutes=5$/.test(r.url()));
  await page.getByLabel("Range").selectOption("5");
  await asked;
  for (const look of looks) { await wear(look); await plot.waitFor(); await judge(`charts of 5 minutes, ${look.which}`, look.rules); await plot.scrollIntoViewIfNeeded(); await picture(`charts-${look.which}`); }
  await wear(looks[0]);
  await page.getByLabel("Range").selectOption("60");
  say("charts: axes, a point under the mouse, another range");
}

async function killed() {
  await visit("", "Overview");
  const light = question => page.locator("section.light", { hasText: question });
  await until("messages are safe at first", async () => await light("Are messages safe?").getAttribute("data-state") === "healthy");
  expect(/status of 50[0-9] /);
  await control("kill?broker=n2");
  await until("the page says that n2 is dead", async () => /n2 is dead/.test(await light("Are all brokers up?").innerText()));
  say("n2 was killed: the page says so");
  await until("the page says what is at risk", async () => await light("Are messages safe?").getAttribute("data-state") !== "healthy");
  await until("and what to do", async () => await light("What should I do?").getAttribute("data-state") !== "healthy" && /start/i.test(await light("What should I do?").innerText()));
  await visit("broker/n2", "Broker n2");
  await until("its page does not call that good", async () => /It is dead: start it/.test(await page.locator(".note.bad").first().innerText()) && await page.locator(".note.good").count() === 0);
  await everyPage(", n2 dead", [{ ...looks[0], rules: ["color-contrast"] }]);
  await api("pub?topic=orders", { method: "POST", body: "with n2 dead", broker: "n1" });
  await visit("topic/orders", "Topic orders");
  await act("Pause");
  await until("an action works with n2 dead", async () => (await api("v1/console/topic?topic=orders", { broker: "n3" })).topic.paused);
  await page.getByRole("button", { name: "Unpause" }).waitFor();
  await act("Unpause");
  await control("start?broker=n2");
  await visit("", "Overview");
  await until("the page is green again", async () => await light("Are messages safe?").getAttribute("data-state") === "healthy" && await light("Are all brokers up?").getAttribute("data-state") === "healthy");
  say("n2 is back: all lights are green");

  [at, secure] = ["n3", true];
  await visit("", "Overview");
  await until("all is shown", async () => await light("Are all brokers up?").count() === 1);
  expect(new RegExp(`ERR_(CONNECTION|EMPTY).*//${given.https.n3}/`));
  await control("kill?broker=n3");
  await until("the page says that its broker does not answer", async () => /No answer from this broker since \d/.test(await page.locator(".unanswered").innerText()));
  const others = () => page.locator(".unanswered a").evaluateAll(all => all.map(a => a.host + " " + a.protocol));
  await until("and names the others, where they serve the page over HTTPS", async () => JSON.stringify((await others()).sort()) === JSON.stringify([given.https.n1, given.https.n2].map(a => `${a} https:`).sort()));
  await judge("a page without its broker");
  await picture("unanswered");
  await page.locator(".unanswered a").first().click();
  await until("another broker's page continues", async () => await page.locator(".unanswered").count() === 0 && await light("Are all brokers up?").count() === 1);
  await page.goBack().catch(() => {});
  await control("start?broker=n3");
  await visit("", "Overview");
  await until("n3 serves the page again", async () => await light("Are all brokers up?").count() === 1 && await page.locator(".unanswered").count() === 0);
  [at, secure] = ["n1", false];
  say("the page's own broker was killed, and came back");

  await control("kill?broker=n2&broker=n3");
  await visit("", "Overview");
  await until("the page says that clients cannot publish", async () => await light("Can clients publish?").getAttribute("data-state") === "unsafe" && /No: no partition accepts messages through n1/.test(await light("Can clients publish?").innerText()));
  const words = await page.locator("main").evaluate(m => { const copy = m.cloneNode(true); copy.querySelectorAll(".hidden").forEach(h => h.remove()); return copy.textContent.match(/unsafe/gi) ?? []; });
  must(words.length === 1, `two brokers of three are down: the page says ${words.length} times that the cluster is unsafe`);
  for (const look of looks) { await wear(look); await judge(`two of three down, ${look.which}`, look.rules); await picture(`two-down-${look.which}`); }
  await wear(looks[0]);
  await control("start?broker=n2&broker=n3");
  await until("clients can publish again", async () => await light("Can clients publish?").getAttribute("data-state") === "healthy");
  say("two of three brokers were killed: unsafe, and no client can publish");

  await api("topic/create?topic=kept", { method: "POST", broker: "n2" });
  const created = async () => (await api("v1/console/events?kind=audit", { broker: "n1" })).events.some(e => / created the topic kept$/.test(e.text));
  await until("the audit has an action at n2", created);
  const started = async () => (await api("v1/console/brokers", { broker: "n1" })).brokers.find(b => b.name === "n2").started_ms;
  const points = async before => { const s = await api("v1/console/series?broker=n2", { broker: "n1" }); return s.series.connections.filter((v, i) => v !== null && s.from_ms + i * s.step_seconds * 1000 < before).length; };
  const ended = Date.now();
  await until("n2 has a point", async () => await points(ended) > 0);
  const before = await started();
  await control("stop?broker=n2");
  await control("start?broker=n2");
  await until("n2 has started again", async () => await started() > before);
  await until("its history of before is there", async () => await points(ended) > 0);
  await until("and the action at it", created);
  say("n2 was restarted: its last hour and its events are there");
}

const cookies = async () => (await context.cookies(`http://${given.brokers[at]}/`)).filter(c => c.name === "lockstep_session");
async function poke(where) { // the page reads its data again
  await where.bringToFront(); // a tab in the background draws nothing
  await where.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
}

async function enter(token, where = page) {
  await where.getByLabel("Token").fill(token);
  await where.getByRole("button", { name: "Sign in", exact: true }).click();
}

// signs waits until the page shows the sign-in, with a reason.
async function signs(reason, where = page) {
  await until(`the sign-in says ${reason}`, async () => { await poke(where); return await where.getByRole("heading", { level: 1, name: "Sign in" }).count() === 1 && reason.test(await where.locator("main").innerText()); });
}

// keepsNoSecret looks wherever a script of the page can look.
async function keepsNoSecret(...secrets) {
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, document.documentElement.outerHTML, [...document.querySelectorAll("input")].map(i => i.value)]));
  for (const s of secrets) must(!kept.includes(s), "a script of the page finds no secret");
}

async function signIn() {
  expect(/status of 40[13] /);
  const create = "v1/user/create?name=root&admin=true";
  const refused = await fetch(`http://${given.brokers.n1}/${create}`, { method: "POST" }).then(r => r.json());
  must(refused.message === "FIRST_ADMINISTRATOR_NEEDS_SECRET", `no secret, no administrator: ${refused.message}`);
  bearer = { Authorization: `Bearer ${(await readFile(refused.file, "utf8")).trim()}` };
  const { token } = await api(create, { method: "POST", broker: "n1" });
  bearer = { Authorization: `Bearer ${token}` };
  const user = async name => (await api(`v1/user/create?name=${name}`, { method: "POST", broker: "n1" })).token;
  const watcher = await user("watcher"), stranger = await user("stranger");
  await api("v1/acl/grant?user=watcher&cluster=observe", { method: "POST", broker: "n1" });
  await visit("topics", undefined);
  await signs(/This cluster has users/);
  await judge("the sign-in");
  await enter("wrong");
  await until("a wrong token is refused", async () => (await page.getByRole("alert").innerText()).includes("does not know"));
  await enter(stranger);
  await until("a user without the right is refused", async () => (await page.getByRole("alert").innerText()).includes("stranger may not observe"));
  must((await cookies()).length === 0, "a refused sign-in leaves no cookie");

  await page.reload();
  const before = Date.now() / 1000;
  await enter(watcher);
  await page.getByRole("heading", { level: 1, name: "Topics" }).waitFor();
  const [cookie] = await cookies();
  must(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.value !== watcher, `the cookie is ${JSON.stringify({ ...cookie, value: "…" })}`);
  const end = cookie.expires - 12 * 3600;
  must(end > before - 2 && end < Date.now() / 1000 + 2, `it ends twelve hours after the sign-in, in whole seconds: ${end}`);
  await keepsNoSecret(watcher, stranger, cookie.value);
  await judge("a page of a user");
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Topics" }).waitFor();
  await seen("watcher");
  const tab = await context.newPage();
  await tab.goto(`http://${given.brokers.n1}/ui#/brokers`);
  await tab.getByRole("heading", { level: 1, name: "Brokers" }).waitFor();
  must(true, "another tab is signed in, too");
  await page.bringToFront();
  await page.getByRole("button", { name: "Create a topic" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill("forbidden");
  await dialog.locator("button[type=submit]").click();
  await until("the page says that the right is missing", async () => (await dialog.locator(".result").innerText()).includes("do not have the right"));
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await until("and stays where it was", async () => await page.getByRole("heading", { level: 1, name: "Topics" }).count() === 1);
  say("sign-in: wrong token, no right, cookie, reload, another tab, a refused action");

  await api("v1/acl/revoke?user=watcher&cluster=observe", { method: "POST", broker: "n1" });
  await signs(/watcher may not observe the cluster/);
  await judge("a user whose right is revoked");
  await picture("right-revoked");
  await api("v1/acl/grant?user=watcher&cluster=observe", { method: "POST", broker: "n1" });
  await page.getByRole("button", { name: "Try again as watcher" }).click();
  await page.getByRole("heading", { level: 1, name: "Topics" }).waitFor();
  await api("v1/user/rotate?name=watcher", { method: "POST", broker: "n1" });
  await signs(/Your sign-in has ended/);
  await signs(/Your sign-in has ended/, tab);
  await page.bringToFront();
  await enter(watcher);
  await until("the earlier token is refused", async () => (await page.getByRole("alert").innerText()).includes("does not know"));
  say("sign-in: a right revoked and given back, a token rotated");

  await enter(token);
  await page.getByRole("heading", { level: 1, name: "Topics" }).waitFor();
  await context.addCookies([{ ...(await cookies())[0], expires: Date.now() / 1000 + 1 }]); // as after twelve hours
  await until("the browser drops the cookie", async () => (await cookies()).length === 0);
  await signs(/Your sign-in has ended/);
  await enter(token);
  await page.getByRole("heading", { level: 1, name: "Topics" }).waitFor();
  await act("Create a topic", { fill: { Name: "signed" } });
  await until("the topic is root's", async () => (await api("v1/cluster", { broker: "n1" })).topics.find(t => t.topic === "signed")?.owner === "root");
  await foreign();
  const [last] = await cookies();
  await keepsNoSecret(token, last.value);
  await page.getByRole("button", { name: "Sign out" }).click();
  await signs(/You are signed out/);
  await signs(/Your sign-in has ended/, tab);
  must((await cookies()).length === 0, "the cookie is gone");
  await page.bringToFront();
  const after = await fetch(`http://${given.brokers.n1}/v1/cluster`, { headers: { Cookie: `lockstep_session=${last.value}` } });
  must(after.status === 401, `a copy of the cookie is worth nothing after the sign-out: ${after.status}`);
  await tab.close();
  say("sign-in: expired, action, foreign pages, sign-out");
}

// foreign lets pages of other origins use the cookie of the signed-in administrator.
async function foreign() {
  const control = new URL(given.control), target = `http://${given.brokers.n1}/topic/delete?topic=signed`;
  const other = await context.newPage(), wire = await context.newCDPSession(other), sent = new Set();
  await wire.send("Network.enable"); // Playwright does not show the cookies that the browser adds
  wire.on("Network.requestWillBeSentExtraInfo", e => e.associatedCookies.forEach(c => { if (c.blockedReasons.length === 0) sent.add(c.cookie.name); }));
  const post = async url => {
    sent.clear();
    const answered = other.waitForResponse(url);
    await other.evaluate(u => { fetch(u, { method: "POST", mode: "no-cors", credentials: "include" }).catch(() => {}); }, url);
    return { status: (await answered).status(), cookie: sent.has("lockstep_session") };
  };
  await other.goto(`${given.control}/foreign`); // the same host, another port: a browser calls that the same site
  const near = await post(target);
  must(near.cookie && near.status === 403, `a page of another port has the cookie, and is refused: ${near.status}`);
  await other.goto(`http://localhost:${control.port}/foreign`); // another site
  const far = await post(target);
  must(!far.cookie && far.status === 403, `a page of another site has no cookie, and is refused: ${far.status}`);
  await other.evaluate(u => { const f = document.createElement("form"); f.method = "post"; f.action = u; document.body.append(f); f.submit(); }, target);
  await other.waitForURL(target);
  must(/CROSS_ORIGIN/.test(await other.locator("body").innerText()), "so is its form");
  must((await api("v1/cluster", { broker: "n1" })).topics.some(t => t.topic === "signed"), "the topic is still there");
  await other.goto(`http://localhost:${control.port}/foreign`);
  await other.evaluate(u => { const a = document.createElement("a"); a.href = u; a.textContent = "go"; document.body.append(a); }, `http://${given.brokers.n1}/ui#/topics`);
  await other.getByText("go").click();
  await other.getByRole("heading", { level: 1, name: "Topics" }).waitFor();
  must(true, "a link on a page of another site leads to the console, signed in: SameSite=Strict is about the page's own requests");
  await other.close();
}

let code = 0;
try {
  await prepare();
  for (const part of [() => everyPage("", looks), topics, channels, messages, cluster, removals, trash, keyboard, charts, killed, signIn]) await part();
  must(faults.length === 0, "nothing went wrong in the browser");
  say(`${checks} checks`);
} catch (e) {
  console.log(`FAILED: ${e.stack}\nat ${page.url()}\n${(await page.locator("body").innerText().catch(() => "")).slice(0, 1500)}`);
  code = 1;
}
for (const f of new Set(faults)) { console.log(`FAULT: ${f}`); code = 1; }
await browser.close();
process.exit(code);
