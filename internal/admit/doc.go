// Package admit decides whether a request is admitted (contract, 4.1 to 4.5): from a view
// of the request and the snapshot in force it makes a verdict. It knows no HTTP library,
// does no I/O and, for an admitted request, allocates nothing.
//
// An engine fills a Request from the head as received, calls Admitter.Decide, and does what
// Verdict.Action says. Every response carries the header fields of Verdict.EachField.
// Decide checks method, target and authority; the engine checks the syntax of the header.
//
// Without a lease (Config.Lease), nothing is admitted. An admitted request is reviewed (Review)
// directly before it goes upstream and for as long as its exchange lasts.
//
// The checks, in their order (contract, 4.2): gateway, CORS preflight, key, the key's
// gateway, the owner's state, route, method, scope, rate limits.
package admit
