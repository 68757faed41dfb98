// Package admit decides whether a request goes through (contract, 4.1 to 4.5):
// a view of the request and the snapshot in force give a verdict. It knows no
// HTTP library, does no I/O and, on the way through, allocates nothing.
//
// What a driver does: fill a Request from the head as received, call Decide,
// and act on the Verdict's Action. Every answer carries the fields of
// Verdict.EachField. Decide itself checks method, target and authority; the
// syntax of fields is the driver's.
package admit
