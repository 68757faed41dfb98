// Package adminapi implements the management API: /v1 over HTTP (specification,
// Endpoints; contract, sections 2 and 3). It decodes and authorizes requests,
// calls package control and encodes the responses. It contains no other rules.
//
// Each call is one operation: a value that holds its text in the OpenAPI
// document, the checks that apply to it, and the function that runs it. huma
// derives the document and the schemas from the operations and from the Go
// types of bodies and records. This package checks bodies against those schemas
// itself, because the contract prescribes the order of the checks and the form
// of the errors.
//
// A request passes these checks in this order, and the first one that fails
// determines the response:
//
//	401 key · 404 path · 405 method · 429 rate limit of the key · 403 scope ·
//	413 body size · 415 media type · 400 syntax · 422 values ·
//	then in control: 404 record · 412 If-Match · 409 state
package adminapi
