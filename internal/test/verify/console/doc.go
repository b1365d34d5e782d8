// Package console has the test of the web console (internal/frontend/webui) in a browser: Chromium, driven by
// walk/walk.mjs with playwright-core, visits every page and presses every action of three real brokers,
// some of which are killed in the meantime. axe-core judges every page, light, dark and as wide as a phone.
//
// It holds no test of the API of the console (internal/frontend/console) and none of the files (internal/frontend/webui).
//
// # Invariants
//
//  1. The effect of an action is read through the API, at another broker than the one that serves the page.
//  2. An error or a warning of the browser, or a request to another host, fails the test.
package console
