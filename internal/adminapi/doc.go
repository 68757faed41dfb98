// Package adminapi serves the management API, /v1 over HTTP (specification,
// Endpoints; contract, sections 2 and 3). It reads requests, authorises them,
// calls package control and writes the answers; it decides nothing else.
//
// Each call is one operation: a row that says what the API document tells of
// it, what is checked before it runs, and how it runs. huma makes the document
// and the schemas from the rows and from the Go types of bodies and records;
// bodies are checked against those same schemas by this package, because the
// contract fixes the order of checks and the words of errors.
//
// A request passes these checks, in this order; the first that fails answers:
//
//	401 key · 404 path · 405 method · 429 the key's own limit · 403 scope ·
//	413 size · 415 media type · 400 syntax · 422 values ·
//	then in control: 404 record · 412 If-Match · 409 state
package adminapi
