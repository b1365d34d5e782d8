// Takes pictures of pages of the console, for the walk through the failures (internal/test/verify/e2e): one JSON
// object a line, with url, file, width, height and dark; answers a line each. Its argument is the browser.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const browser = await chromium.launch({ executablePath: process.argv[2], args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
for await (const line of createInterface({ input: process.stdin })) {
  const o = JSON.parse(line);
  try {
    const page = await browser.newPage({ viewport: { width: o.width, height: o.height }, colorScheme: o.dark ? "dark" : "light" });
    await page.goto(o.url, { timeout: 10000 });
    await page.getByRole("heading", { level: 1 }).waitFor({ timeout: 10000 });
    for (let i = 0; i < 60 && await page.getByText("Loading …").count(); i++) await page.waitForTimeout(50);
    await page.waitForTimeout(150);
    await page.screenshot({ path: o.file });
    await page.close();
    console.log("done");
  } catch (e) {
    console.log(`${e}`.split("\n")[0]);
  }
}
await browser.close();
