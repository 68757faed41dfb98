// Package upstream keeps the connections to upstream services and sends requests over
// them (contract, 4.4 and 4.6).
//
// There are three kinds of pool, and a Pools finds each by Origin, which is everything
// that a connection depends on:
//
//   - A Pool sends requests with net/http's Transport, over HTTP/1.1 or HTTP/2. What it
//     adds to the Transport: it bounds the time to the head of the response without
//     cutting an upload that makes progress, retries only what may be retried, keeps
//     request targets byte for byte, and tells failures apart.
//   - An H1Pool holds plain TCP connections for the HTTP/1.1 engine, which does its own
//     reading and writing.
//   - An H2Pool shares HTTP/2 connections between exchanges: it reads and writes, and calls
//     them with what arrives.
//
// Gateways of an account whose upstreams have the same Origin share a pool, so a change of any other
// setting leaves their connections alone. Every attempt to connect resolves the name
// again and asks the netguard.Guard.
//
// # Age
//
// A connection is not used for new requests after Origin.MaxConnAge, so that a name that
// moves to another address is followed. An H1Pool gives each connection a lifetime. A Pool
// replaces its transports instead; the type transports says how.
//
// # Connection limit
//
// If an origin's connections are limited (Origin.MaxConns, Config.MaxConns), each
// connection holds a slot of an H1Pool. A Pool takes its slots from an H1Pool too: for
// scheme http from the one that the engine uses, and for the others from one that lends them
// to the H2Pool as well. So all together keep to the limit. Requests that find no free slot wait in a FIFO queue. H1Pool and waitQueue
// draw the states of a slot and of a waiter.
//
// # Why not httputil.ReverseProxy
//
// ReverseProxy does not forward request trailers, forwards response trailers
// unfiltered, re-encodes some queries, and has no hook to stop a body that grows too
// large.
package upstream
